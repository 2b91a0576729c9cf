"""Every screen and zoom with full plots, beside nvitop in the same windows: CPU and bytes.

    python -m benchmarks.screens [--size 200x60] [--only Job Device] [--age 660]

The dashboard begins with a past of `--age` seconds (`benchmarks.aged`), so its plots are full at
once. Plots move on by an eighth of their width: each window is as long as it takes to do so.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

from benchmarks.aged import program
from benchmarks.bed import bed
from benchmarks.processes import cpu_s, tree
from benchmarks.programs import find
from benchmarks.running import ANSWERS, EndedEarly, Running
from benchmarks.table import rows_table


class Screen(NamedTuple):
    """Keys from the Job screen to it, and back; `window_s` holds whole moves of its plots."""

    name: str
    there: str
    back: str
    window_s: float


SCREENS = (
    Screen("Job, 10 min", "", "", 75),
    Screen("Job, 5 min", "+", "-", 75),
    Screen("Job, 1 min", "++", "--", 40),
    Screen("Job, all", "-------", "+++++++", 88),
    Screen("Device, 10 min", "2", "1", 75),
    Screen("Device, 5 min", "2+", "-1", 75),
    Screen("Device, 1 min", "2++", "--1", 40),
    Screen("Processes", "3", "1", 30),
    Screen("Process", "3\r", "1", 75),
    Screen("Nodes", "4", "1", 30),
    Screen("Node, 10 min", "4\r", "1", 75),
    Screen("Report", "5", "1", 30),
    Screen("Finding", "5\r", "1", 30),
    Screen("Help", "?", "\x1b", 30),
    Screen("Job, frozen", " ", " ", 30),
)
_PAUSE_S = 0.7  # after a key
_OPENED_S = 4.0  # what opening costs is over: plotext is imported for the first figure
_SETTLE_S = 30.0  # what the start costs is over: imports, the first findings


class Cost(NamedTuple):
    cpu_percent: float
    bytes_per_s: float


class Both:
    """The dashboard and nvitop; the output of both is always read."""

    def __init__(self, dashboard: Running, nvitop: Running) -> None:
        self._dashboard = dashboard
        self._all = (dashboard, nvitop)

    def costs(self, seconds: float) -> list[Cost]:
        """Of the dashboard and of nvitop, over the same window."""
        with ThreadPoolExecutor(len(self._all)) as at_once:
            return list(at_once.map(_cost, self._all, repeat(seconds)))

    def type(self, keys: str) -> None:
        for key in keys:
            self._dashboard.send(key)
            self.costs(_PAUSE_S)


def _cost(running: Running, seconds: float) -> Cost:
    cpu, wrote = cpu_s(tree(running.pid)), running.bytes
    took_s = running.pump(seconds)
    used_s = cpu_s(tree(running.pid)) - cpu
    return Cost(100 * used_s / took_s, (running.bytes - wrote) / took_s)


def _row(name: str, own: Cost, peer: Cost) -> list[str]:
    cells = [name]
    for ours, others, form in zip(own, peer, (".2f", ".0f")):
        ratio = f"{ours / others:.2f}" if others else ""
        cells += [format(ours, form), format(others, form), ratio]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screens", description=__doc__)
    parser.add_argument("--size", default="200x60", help="columns x rows of the terminal")
    parser.add_argument("--age", type=int, default=660, help="seconds of past, at the start")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="part of a name")
    parser.add_argument("--plain", action="store_true", help="a terminal without REP")
    args = parser.parse_args()
    if args.plain:
        ANSWERS[b"\x1b[6n"] = b"\x1b[1;1R"
    columns, rows = map(int, args.size.split("x"))
    rows_found: list[list[str]] = []
    with bed() as on:
        env = on.program_env()
        aged, aged_env = program(on, args.age)
        nvitop = find([], env).commands["nvitop"]
        running = [
            Running(aged, aged_env, (columns, rows), "busy"),
            Running([*nvitop, "--interval", "1"], env, (columns, rows), "Processes:"),
        ]
        try:
            for each in running:
                each.start()
            both = Both(*running)
            both.costs(_SETTLE_S)
            for screen in SCREENS:
                if not args.only or any(text in screen.name for text in args.only):
                    both.type(screen.there)
                    both.costs(_OPENED_S)
                    rows_found.append(_row(screen.name, *both.costs(screen.window_s)))
                    print(*rows_found[-1], sep="  ", file=sys.stderr)
                    both.type(screen.back)
        except EndedEarly as ended:
            print(f"Failed: {ended}")
        finally:
            for each in running:
                each.stop()
    head = ["screen", "CPU %", "nvitop", "×", "bytes/s", "nvitop", "×"]
    print(rows_table(head, rows_found))


if __name__ == "__main__":
    main()
