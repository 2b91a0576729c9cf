"""The agent on a node without GPUs and without a job, beside thousands of resting processes.

    python -m benchmarks.crowd [--processes 9000] [--seconds 30] [--before DIR]

There the agent shows the busiest processes of the node, so its cost grows with the number of all.
Everything runs in a PID namespace of its own (unshare), so that other processes of the machine are
neither seen nor counted, and all end with this one. The processes are `sleep`s of 0.1 MiB each.
`--before`: another checkout, measured at the same time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks.bed import ROOT
from benchmarks.processes import cpu_s, memory
from benchmarks.running import Running
from benchmarks.table import MIB, rows_table

BUDGET_PERCENT = 0.6  # of a core
_SETTLE_S = 15.0  # the first looks at all processes, and the second at those that are shown
_UNSHARE = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
_START = 'n=0; while [ $n -lt "$1" ]; do sleep 3600 & n=$((n+1)); done; echo; wait'


def start_crowd(count: int) -> None:
    shell = subprocess.Popen(["sh", "-c", _START, "sh", str(count)], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    shell.stdout.readline()


def agent(checkout: Path) -> Running:
    env = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    argv = [sys.executable, "-m", "gpumon", "collect", "--interval", "1"]
    # from another folder: with -m Python looks for modules in the current one first
    return Running(["env", "--chdir=/", f"PYTHONPATH={checkout}", *argv], env, None, "\n")


def pump(agents: Collection[Running], seconds: float) -> float:
    """Read what they print for so long; returns the seconds it took."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        for each in agents:
            each.pump(min(left, 0.5))
    return time.monotonic() - began


def measure(checkouts: dict[str, Path], count: int, seconds: float) -> list[list[str]]:
    """A row for each checkout."""
    start_crowd(count)
    agents = {name: agent(checkout) for name, checkout in checkouts.items()}
    for each in agents.values():
        each.start()
    pump(agents.values(), _SETTLE_S)
    before = {name: cpu_s([each.pid]) for name, each in agents.items()}
    took_s = pump(agents.values(), seconds)
    rows = []
    for name, each in agents.items():
        percent = 100 * (cpu_s([each.pid]) - before[name]) / took_s
        verdict = "within" if percent <= BUDGET_PERCENT else "over"
        pss_mib = memory([each.pid]).pss_bytes / MIB
        rows.append([name, f"{percent:.2f}", f"{pss_mib:.1f}", verdict])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd")
    parser.add_argument("--processes", type=int, default=9000)
    parser.add_argument("--seconds", type=float, default=30, help="of the window")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout")
    args = parser.parse_args()
    if os.getpid() != 1:
        again = [*_UNSHARE, sys.executable, "-m", "benchmarks.crowd", *sys.argv[1:]]
        os.execvp(again[0], again)
    checkouts = {"now": ROOT} | ({"before": args.before.resolve()} if args.before else {})
    rows = measure(checkouts, args.processes, args.seconds)
    head = [f"agent beside {args.processes}", "CPU %", "PSS MiB", f"budget {BUDGET_PERCENT} %"]
    print(rows_table(head, rows))


if __name__ == "__main__":
    main()
