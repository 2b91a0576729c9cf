"""Draw gpumon beside nvtop, nvitop and btop: the same emulated driver, the same minutes.

    python screenshots/beside.py [--minutes 6]

The pictures go to docs/beside/. The driver is that of the tests: eight A100, moving values, and 16
processes that hold them. Programs that are not found are named. Needs what `make.py` needs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bed import bed  # noqa: E402
from benchmarks.programs import LIVE, find  # noqa: E402
from screenshots.terminal_png import Session, render  # noqa: E402

FOLDER = ROOT / "docs" / "beside"
SIZE = (120, 40)
NAMES = {
    "gpumon": "gpumon", "nvtop 1 s": "nvtop", "nvitop 1 s": "nvitop", "btop (no GPUs)": "btop",
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=6.0, help="how long they run (6)")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    with bed() as ground, ExitStack() as stack:
        found = find([], ground.program_env())
        running: dict[str, Session] = {}
        for program in LIVE:
            if program.name not in NAMES:
                continue
            if (argv := found.argv(program)) is None:
                print(f"{NAMES[program.name]}: {found.missing[program.argv[0]]}")
                continue
            env = {"PATH": os.environ["PATH"], "TZ": "UTC", **ground.program_env()}
            no_processes(Path(env["XDG_CONFIG_HOME"], "btop"))
            session = stack.enter_context(Session(argv, SIZE, env))
            session.wait_for(program.marker)
            running[NAMES[program.name]] = session
        time.sleep(args.minutes * 60)
        for name, session in running.items():
            path = FOLDER / f"{name}.png"
            render(session.screen()).save(path, optimize=True)
            print(path.relative_to(ROOT))
    return 0


def no_processes(folder: Path) -> None:
    """btop lists all of the machine's, which are nobody's business."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "btop.conf").write_text('shown_boxes = "cpu mem net"\n')


if __name__ == "__main__":
    sys.exit(main())
