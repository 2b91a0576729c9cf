"""What recorders and dashboards ask of a state folder that lies on a file server.

    python -m benchmarks.home [--seconds 60] [--nodes 64] [--python PYTHON]

Counts system calls on the folder and all that lies in it (strace, which must be installed), in a
minute that begins 15 s after the start: of `gpumon record` beside a command, of the dashboard of
one node, and of what a dashboard of many nodes records, without its screen and its agents. A list
of a folder counts once. `--python` is another checkout's, to compare with.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.budgets import HOME_CALLS_A_MINUTE
from benchmarks.running import Running
from benchmarks.table import rows_table

SETTLE_S = 15.0
#: they move the recording's own data, or do not leave the machine
DATA = frozenset(
    (
        "read",
        "pread64",
        "readv",
        "write",
        "pwrite64",
        "writev",
        "close",
        "dup",
        "dup2",
        "dup3",
        "lseek",
        "fcntl",
        "ioctl",
        "getcwd",
    )
)
_LINE = re.compile(r"^\d+ +(\d+\.\d+) (\w+)\((.*)")
_LOCK = re.compile(r"F_(OFD_)?SETLKW?")
MANY = """\
import sys, threading, time
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording.runs import marks_dir
from tests.recording import made

class Source:
    name = "made"
    def start(self, sink): self.sink = sink
    def stop(self): pass

class Silent:
    def header(self, node, header): pass
    def add(self, node, sample, received=None): pass

source, names = Source(), [f"gpu{n:02d}" for n in range(int(sys.argv[1]))]
stage = RecorderStage(source, marks_dir(), record=True)
stage.start(Silent())
began = time.time()
for name in names:
    source.sink.header(name, made.header(name)._replace(time=began))
until = began + float(sys.argv[2])
for n, sample in enumerate(made.samples(int(float(sys.argv[2])))):
    time.sleep(max(0.0, began + n - time.time()))
    for name in names:
        source.sink.add(name, sample._replace(time=began + n, mono=100.0 + n, events=[]))
stage.stop()
"""


class Case(NamedTuple):
    name: str
    argv: list[str]
    is_screen: bool
    nodes: int


def counted(log: Path, folder: str, begin: float, end: float) -> tuple[Counter[str], Counter[str]]:
    """Calls on the folder between two times: what was asked, and what moved data."""
    asked, data, before = Counter[str](), Counter[str](), ("", "")
    for line in log.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None or folder not in found[3] or not begin <= float(found[1]) < end:
            continue
        name, place = found[2], found[3].split(",")[0]
        is_list = name == "getdents64"
        if name in DATA and not _LOCK.search(found[3]):
            data[name] += 1
        elif not (is_list and before == (name, place)):
            asked[name] += 1
            if is_list and before in (("newfstatat", place), ("fstat", place)):
                asked[before[0]] -= 1  # which opendir asks of the same folder
        if name not in ("fcntl", "dup", "lseek"):
            before = name, place
    return +asked, data


def measure(
    case: Case, python: str, seconds: float, top: Path
) -> tuple[Counter[str], Counter[str]]:
    folder, log = top / "state" / case.name.replace(" ", "-"), top / "strace.txt"
    folder.mkdir(0o700, parents=True)
    run = top / "run"
    run.mkdir(0o700, exist_ok=True)
    env = {
        **os.environ,
        "GPUMON_STATE": str(folder),
        "XDG_RUNTIME_DIR": str(run),
        "TERM": "xterm-256color",
    }
    strace = ["strace", "-f", "-y", "-ttt", "-s", "8", "-e", "trace=%file,%desc", "-o", str(log)]
    argv = [*strace, python, *case.argv]
    began = time.time()
    if case.is_screen:
        running = Running(argv, env, (160, 50), "")
        running.start()
        running.pump(SETTLE_S + seconds)
        running.stop()
    else:
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    return counted(log, str(folder), began + SETTLE_S, began + SETTLE_S + seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.home", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--python", default=sys.executable, help="of the checkout to measure")
    args = parser.parse_args()
    if shutil.which("strace") is None:
        print("not measured: install strace", file=sys.stderr)
        return 1
    last = SETTLE_S + args.seconds + 5
    cases = [
        Case("record", ["-m", "gpumon", "record", "--", "sleep", f"{last}"], False, 1),
        Case("dashboard", ["-m", "gpumon"], True, 1),
        Case(f"dashboard of {args.nodes}", ["-c", MANY, f"{args.nodes}", f"{last}"], False,
             args.nodes),
    ]  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as top:
        for case in cases:
            asked, data = measure(case, args.python, args.seconds, Path(top))
            a_minute = 60 / args.seconds
            number = asked.total() * a_minute / case.nodes
            what = ", ".join(f"{name} {count}" for name, count in asked.most_common())
            moved = ", ".join(f"{name} {count}" for name, count in data.most_common(3))
            verdict = "within" if number <= HOME_CALLS_A_MINUTE else "over"
            rows.append([case.name, f"{asked.total() * a_minute:.0f}", f"{number:.1f}", verdict,
                         what or "none", moved])  # fmt: skip
    head = ["program", "calls a minute", "of each recorder", f"budget {HOME_CALLS_A_MINUTE}"]
    print(rows_table([*head, "which", "data"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
