"""What `gpumon exporter` costs a node, beside nvitop-exporter: `python -m benchmarks.exporter`.

Both run at the same time on the same emulated driver (eight A100, 16 processes), read it every
5 s and are scraped every 15 s. A scrape's cost is taken from a burst of them at the end.
nvitop-exporter is installed in an environment of its own (`--peers FOLDER/bin`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Collection
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from benchmarks.bed import Bed, Calls, bed
from benchmarks.processes import cpu_s, memory, tree
from benchmarks.running import Running
from tests.prometheus.server import free_port

_BURST = 40


class Figures(NamedTuple):
    """`idle` includes the scrapes of every 15 s."""

    idle_cpu_percent: float
    pss_mib: float
    nvml_calls_per_min: float
    scrape_cpu_ms: float
    scrape_wall_ms: float
    scrape_kib: float


class _Exporter:
    def __init__(self, bed: Bed, argv: list[str], port: int, marker: str) -> None:
        self._bed, self._env = bed, bed.program_env()
        self._url = f"http://127.0.0.1:{port}/metrics"
        self.running = Running(argv, self._env, None, marker)
        self._cpu_s = self._idle_s = self._calls_per_min = 0.0
        self._calls = Calls(0, 0)

    def scrape(self) -> tuple[float, int]:
        """Seconds, and bytes."""
        began = time.monotonic()
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            size = len(answer.read())
        return time.monotonic() - began, size

    def used_s(self) -> float:
        return cpu_s(tree(self.running.pid))

    def begin(self) -> None:
        self._cpu_s, self._calls = self.used_s(), self._bed.calls(self._env)

    def idled(self, took_s: float) -> None:
        self._idle_s = took_s
        self._cpu_s = self.used_s() - self._cpu_s
        calls = self._bed.calls(self._env).total - self._calls.total
        self._calls_per_min = 60 * calls / took_s

    def figures(self) -> Figures:
        pss = memory(tree(self.running.pid)).pss_bytes
        before = self.used_s()
        scrapes = [self.scrape() for _ in range(_BURST)]
        return Figures(
            100 * self._cpu_s / self._idle_s,
            pss / 2**20,
            self._calls_per_min,
            1000 * (self.used_s() - before) / _BURST,
            1000 * median(seconds for seconds, _ in scrapes),
            scrapes[-1][1] / 1024,
        )


def measure(seconds: float, every_s: float, peers: str) -> dict[str, Figures]:
    """Both at the same time."""
    ours, theirs = free_port(), free_port()
    period = "5"
    with bed() as one, ExitStack() as ending:
        programs = {
            "gpumon exporter": _Exporter(
                one,
                [sys.executable, "-m", "gpumon", "exporter", "--interval", period,
                 "--processes", "--listen", f"127.0.0.1:{ours}"],
                ours, "metrics at",
            ),
            "nvitop-exporter": _Exporter(
                one,
                [os.path.join(peers, "nvitop-exporter"), "--interval", period,
                 "--port", str(theirs)],
                theirs, str(theirs),
            ),
        }  # fmt: skip
        for each in programs.values():
            ending.callback(each.running.stop)
            each.running.start()
        _watch(programs.values(), 3 * every_s, every_s)
        for each in programs.values():
            each.begin()
        took_s = _watch(programs.values(), seconds, every_s)
        for each in programs.values():
            each.idled(took_s)
        return {name: each.figures() for name, each in programs.items()}


def _watch(programs: Collection[_Exporter], seconds: float, every_s: float) -> float:
    """Scrape all of them at their pace; the seconds it took."""
    began = due = time.monotonic()
    while time.monotonic() - began < seconds:
        for each in programs:
            each.scrape()
        due += every_s
        for each in programs:
            each.running.pump(max(0.0, due - time.monotonic()))
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the window")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between scrapes")
    parser.add_argument("--peers", default="", help="folder with the command nvitop-exporter")
    args = parser.parse_args()
    if shutil.which(os.path.join(args.peers, "nvitop-exporter")) is None:
        sys.exit("not measured: no nvitop-exporter; name its folder with --peers")
    found = measure(args.seconds, args.every, args.peers)
    ours, theirs = found.values()
    print(f"{'':20}" + "".join(f"{name:>18}" for name in found) + f"{'ratio':>8}")
    for name, a, b in zip(Figures._fields, ours, theirs):
        print(f"{name:20}{a:18.2f}{b:18.2f}{a / b if b else float('nan'):8.2f}")


if __name__ == "__main__":
    main()
