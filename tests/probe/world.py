"""Programs under the probe: what they need around them, and what they told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpumon.services import probing
from tests.support.waiting import HANGS_S

#: gives a program a way to wait until its own probe has told something
WAIT = f"""
import glob, json, os, time

def told(test, pid=None):
    until = time.monotonic() + {HANGS_S}
    while time.monotonic() < until:
        for path in glob.glob(os.environ["GPUMON_PROBE_DIR"] + f"/{{pid or os.getpid()}}-*.json"):
            with open(path) as file:
                found = json.load(file)
            if test(found):
                return found
        time.sleep(0.05)
    raise SystemExit("it was not told")
"""


class World:
    """A folder of programs, one of packages, and one that the probe writes into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "site-packages"
        self.packages.mkdir()
        self.told = folder / "told"
        self.told.mkdir(mode=0o700)

    def run(
        self,
        text: str,
        *flags: str,
        probed: bool = True,
        python: Path | str = sys.executable,
        **more: str,
    ) -> tuple[int, bytes, bytes]:
        """A program's exit status, output and errors."""
        program = self.folder / "program.py"
        program.write_text(text)
        environ = {
            **os.environ,
            "PYTHONPATH": str(self.packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.folder),
            **more,
        }
        if probed:
            environ |= probing.probe_of(environ).variables | {"GPUMON_PROBE_DIR": str(self.told)}
        done = subprocess.run(
            [str(python), *flags, str(program)],
            env=environ, capture_output=True, timeout=HANGS_S, cwd=self.folder,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def files(self) -> list[Path]:
        return sorted(self.told.glob("*.json"))

    def last(self) -> dict[str, Any]:
        """What the only process told."""
        (path,) = self.files()
        assert path.stat().st_mode & 0o777 == 0o600
        return json.loads(path.read_text())
