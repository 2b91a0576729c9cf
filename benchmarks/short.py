"""The short set, in about five minutes: one command for all that has a budget.

    python -m benchmarks.short [--before DIR] [--only crowd scale ...]

Runs each benchmark with few samples and prints its table, with the load before and after it. The
dashboard, its agent, nvitop and nvtop run at the same time on the same emulated driver. `--before`:
another checkout of gpumon, beside this one where a benchmark can.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Part(NamedTuple):
    """A benchmark and its arguments."""

    name: str
    arguments: tuple[str, ...]
    takes_before: bool = False

    @property
    def module(self) -> str:
        return "benchmarks" if self.name == "peers" else f"benchmarks.{self.name}"


_PEERS = "--together --rounds 1 --seconds 30 --settle 10 --runs 3 --size 200x60 --only"
_SCALE = "--nodes 64 --real 0 --record yes --screens job --seconds 15 --settle 15"
PARTS = (
    Part("peers", (*_PEERS.split(), "gpumon", "nvitop", "nvtop"), True),
    Part("crowd", ("--seconds", "20"), True),
    Part("scale", tuple(_SCALE.split())),
    Part("recording", ("--samples", "3600")),
    Part("seek", ("--hours", "1")),
    Part("export", ("--samples", "2400"), True),
    Part("report", ("--rounds", "1", "--only=--user"), True),
)
_WITHIN_S = 240


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of gpumon")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    args = parser.parse_args()
    failed = 0
    for part in PARTS:
        if args.only and part.name not in args.only:
            continue
        argv = [sys.executable, "-m", part.module, *part.arguments]
        argv += ["--before", str(args.before)] if args.before and part.takes_before else []
        began, load = time.monotonic(), os.getloadavg()[0]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=_WITHIN_S)
        print(f"\n## {part.name}: {' '.join(argv[1:])}\n\n{done.stdout.strip()}\n")
        loads = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
        code = f"; failed: {done.returncode}" if done.returncode else ""
        print(f"{time.monotonic() - began:.0f} s; {loads}{code}", flush=True)
        failed += bool(done.returncode)
    return failed


if __name__ == "__main__":
    sys.exit(main())
