"""Make the pictures of this folder anew, from the real app on recorded data.

    python screenshots/make.py [NAME...]

The job of four GPUs is the demo's, recorded by gpumon's own agent (`record_demo.py`). The job of
16 nodes is made: `tests/tui/cluster.py` writes its recordings, with one idle node that lost a GPU
and one slow node. For the printed report `accounting.py` stands in for `sacct`. Needs tmux, Pillow
and DejaVu Sans Mono, as `tests/run` installs them.
"""

from __future__ import annotations

import gzip
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
sys.path.insert(0, str(ROOT))

from gpumon.model.sample import Sample  # noqa: E402
from gpumon.wire.decoder import Decoder  # noqa: E402
from screenshots.terminal_png import Session, render  # noqa: E402
from tests.tui.cluster import record  # noqa: E402

DEMO = str(ROOT / "gpumon" / "demos" / "finetune.jsonl.gz")
NODES = "NODES"  # stands for the folder with the recordings of the job of 16 nodes


class Picture(NamedTuple):
    """A command in a terminal of (columns, rows), and the keys pressed once it shows `until`."""

    name: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    words: tuple[str, ...] = ("demo",)
    until: str = "mem"


PICTURES = (
    Picture("job-120x40", (120, 40)),
    Picture("job-80x24", (80, 24)),
    Picture("job-200x60", (200, 60)),
    Picture("device-120x40", (120, 40), ("Down", "2")),
    Picture("processes-120x40", (120, 40), ("3", "v")),
    Picture("job-light-120x40", (120, 40), words=("demo", "--theme", "light")),
    Picture("job-ascii-80x24", (80, 24), words=("demo", "--ascii", "--theme", "mono")),
    Picture("report-120x40", (120, 40), ("5",)),
    # 20 × a tenth of the plots' time: far enough for what takes minutes
    Picture("nodes-120x40", (120, 40), ("4", *("]",) * 20, "Home"), ("replay", NODES), "gpu16"),
    Picture("report-page", (100, 80), (), ("report", "--recording", DEMO, "4711"), "Source:"),
)


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), 16, seconds=400)
        make_sacct(Path(folder))
        for picture in PICTURES:
            if names and picture.name not in names:
                continue
            draw(picture, folder)
            print(FOLDER.name, f"{picture.name}.png")
    return 0


def make_sacct(folder: Path) -> None:
    """A command `sacct` that knows the demo's job; it began 50 s before its recording."""
    decoder = Decoder()
    with gzip.open(DEMO, "rt") as lines:
        times = [item.time for item in map(decoder.line, lines) if isinstance(item, Sample)]
    words = [sys.executable, str(FOLDER / "accounting.py"), str(times[0] - 50), str(times[-1])]
    command = folder / "sacct"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)


def draw(picture: Picture, nodes: str) -> None:
    words = [nodes if word == NODES else word for word in picture.words]
    # a home of its own: neither settings nor recordings of whoever makes the pictures
    env = {"PYTHONPATH": str(ROOT), "TZ": "UTC", "HOME": nodes, "PATH": f"{nodes}:{os.defpath}"}
    with Session([sys.executable, "-m", "gpumon", *words], picture.size, env) as session:
        session.wait_for(picture.until)
        session.keys(*picture.keys, pause_s=0.5)
        time.sleep(6)  # findings come every 5 s
        theme = "light" if "light" in picture.name else "dark"
        screen = session.screen()
    used = len(screen.text().rstrip().split("\n"))  # what a command printed may be short
    screen = screen._replace(rows=used, cells=screen.cells[:used])
    render(screen, theme).save(FOLDER / f"{picture.name}.png", optimize=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
