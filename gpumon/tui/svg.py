"""The screen as a picture in a file, as SVG."""

from __future__ import annotations

import os
import re
import time

from textual.app import App

from gpumon.files import write_file

#: Rich's pictures name a font on a server of others: a picture that is opened must ask nobody
_FONT = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)


def save_svg(app: App[None]) -> str:
    """Write what the screen shows into this folder; the full path. Raises NotWritten."""
    name = time.strftime("gpumon-%Y%m%d-%H%M%S.svg")
    write_file(name, _FONT.sub("", app.export_screenshot(title="gpumon")), regular=True)
    return os.path.abspath(name)
