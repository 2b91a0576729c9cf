"""Draw every screen at every size in every theme, to be looked at.

    python screenshots/tour.py FOLDER [--sizes 80x24 ...] [--themes dark ...] [--show ...]

A picture for each size and theme holds all screens, one below the other. Without a command they
show the demo's job, then the job of 16 nodes that `make.py` makes. Needs what `make.py` needs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpumon.tui.theme import NAMES  # noqa: E402
from screenshots.terminal_png import Session, render  # noqa: E402
from tests.tui.cluster import record  # noqa: E402

SIZES = ("80x24", "120x40", "160x50", "200x60", "300x80")
#: keys pressed one after the other; a picture after each
STEPS = (
    (), ("Down", "2"), ("3",), ("v",), ("/",), ("Escape", "4"), ("5",), ("1", "?"), ("Escape",),
)  # fmt: skip
GAP = 8  # pixels between two screens


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="COLUMNSxROWS")
    parser.add_argument("--themes", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--show", nargs=argparse.REMAINDER, help="gpumon's arguments: demo")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        commands = [args.show] if args.show else [["demo"], ["replay", home]]
        if not args.show:
            record(Path(home), 16, seconds=400)
        for size in args.sizes:
            columns, rows = map(int, size.split("x"))
            for theme in args.themes:
                for command in commands:
                    screens = list(shown([*command, "--theme", theme], (columns, rows), home))
                    path = args.folder / f"{command[0]}-{size}-{theme}.png"
                    below_each_other(screens).save(path, optimize=True)
                    print(path, flush=True)
    return 0


def shown(words: list[str], size: tuple[int, int], home: str) -> Iterator[Image.Image]:
    """What it looks like after each step."""
    theme = "light" if "light" in words else "dark"
    # a home of its own: neither settings nor recordings of whoever makes the pictures
    env = {"PYTHONPATH": str(ROOT), "TZ": "UTC", "HOME": home, "PATH": os.defpath}
    with Session([sys.executable, "-m", "gpumon", *words], size, env) as session:
        session.wait_for("Quit")
        if words[0] == "replay":  # 20 × a tenth of the plots' time: far enough for findings
            session.keys(*("]",) * 20, pause_s=0.3)
        time.sleep(6)  # findings come every 5 s
        for keys in STEPS:
            session.keys(*keys, pause_s=0.3)
            time.sleep(1)
            wait_for_report(session)
            yield render(session.screen(), theme)


def wait_for_report(session: Session) -> None:
    """It comes with the next evaluation."""
    for _ in range(60):  # of many nodes on a busy machine
        if "collecting data" not in session.screen().text():
            return
        time.sleep(1)


def below_each_other(screens: list[Image.Image]) -> Image.Image:
    width = max(each.width for each in screens)
    height = sum(each.height + GAP for each in screens)
    sheet = Image.new("RGB", (width, height), "#808080")
    y = 0
    for each in screens:
        sheet.paste(each, (0, y))
        y += each.height + GAP
    return sheet


if __name__ == "__main__":
    sys.exit(main())
