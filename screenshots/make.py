"""Make the pictures of this folder anew, from the real app on the recorded demo.

    python screenshots/make.py

Needs tmux, Pillow and DejaVu Sans Mono, as `tests/run` installs them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from screenshots.terminal_png import Session  # noqa: E402

#: file, terminal, keys, arguments
PICTURES = (
    ("job-120x40", (120, 40), (), ()),
    ("job-80x24", (80, 24), (), ()),
    ("job-200x60", (200, 60), (), ()),
    ("device-120x40", (120, 40), ("Down", "2"), ()),
    ("processes-120x40", (120, 40), ("3", "v"), ()),
    ("job-light-120x40", (120, 40), (), ("--theme", "light")),
    ("job-ascii-80x24", (80, 24), (), ("--ascii", "--theme", "mono")),
)


def main() -> int:
    for name, size, keys, arguments in PICTURES:
        command = [sys.executable, "-m", "gpumon", "demo", *arguments]
        with Session(command, size, {"PYTHONPATH": str(FOLDER.parent), "TZ": "UTC"}) as session:
            session.wait_for("mem")
            session.keys(*keys, pause_s=0.5)
            time.sleep(1.5)
            theme = "light" if "light" in name else "dark"
            session.png(FOLDER / f"{name}.png", theme)
            print(FOLDER.name, f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
