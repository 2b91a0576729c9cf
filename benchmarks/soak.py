"""Does the dashboard stay flat? Hours of it, while processes come and go and screens change.

    python -m benchmarks.soak --minutes 120

The dashboard records on the emulated 8 × A100 in a terminal of 200 × 60; every other second one of
24 real processes ends and another begins, and every ten seconds a key is typed. Each minute a line
says what the dashboard and its agent hold. At the end, the slope of each after `--settle` minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.bed import ROOT
from benchmarks.processes import cpu_s, memory, tree
from benchmarks.programs import GPUMON
from benchmarks.running import EndedEarly, Running
from tests.nvml.emulator import Emulated
from tests.nvml.library import library_dir

_SIZE = (200, 60)
#: typed in turn: every screen, zoom, tree, theme, sorting, one device, the help, frozen and not
_KEYS = (*"123451", "+", "+", "-", *"vvts", "\r", "\x1b", "?", "\x1b", " ", " ")
_KEY_EVERY_S, _CHURN_EVERY_S, _PROCESSES, _GPUS = 10.0, 2.0, 24, 8


class Held(NamedTuple):
    """What one process holds."""

    pss_mib: float
    anonymous_mib: float
    descriptors: int
    threads: int


def held(pid: int) -> Held:
    anonymous_kib = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            anonymous_kib = int(line.split()[1])
    return Held(
        memory([pid]).pss_bytes / 2**20,
        anonymous_kib / 2**10,
        len(os.listdir(f"/proc/{pid}/fd")),
        len(os.listdir(f"/proc/{pid}/task")),
    )


class Churn:
    """Real processes on the emulated GPUs; each lives about a minute, some much longer."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pids"
        self._random = random.Random(1)
        self._numbers = itertools.count()
        self._running: list[tuple[subprocess.Popen[bytes], str]] = []
        for _ in range(_PROCESSES):
            self._begin()
        self._tell()

    def _begin(self) -> None:
        number = next(self._numbers)
        process = subprocess.Popen(
            ("python", "train.py", "--trial", str(number), "--name", "x" * (number % 90)),
            executable=library_dir() / "sleeper",
            env={**os.environ, "SLEEPER_MB": str(1 + number % 5)},
        )
        mib, sm = self._random.randint(300, 20_000), self._random.randint(0, 99)
        line = f"{number % _GPUS} {process.pid} {mib} {sm} C"
        self._running.append((process, line))

    def turn(self) -> None:
        """One ends, one begins."""
        process, _ = self._running.pop(self._random.randrange(_PROCESSES // 2 + 1))
        process.kill()
        process.wait()
        self._begin()
        self._tell()

    def _tell(self) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for _, line in self._running))
        fresh.replace(self.file)

    def end(self) -> None:
        for process, _ in self._running:
            process.kill()
            process.wait()


def slope_per_hour(points: list[tuple[float, float]]) -> float:
    """Least squares, of (minutes, value)."""
    n = len(points)
    mean_x, mean_y = (sum(point[axis] for point in points) / n for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def soak(minutes: float, settle: float, keys: bool, record: bool) -> None:
    with Emulated("a100x8") as gpus:
        folder = Path(gpus.env["FAKE_NVML_OVERRIDE"]).parent
        churn = Churn(folder)
        env = {
            **gpus.env,
            "FAKE_NVML_PIDS": str(churn.file),
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "GPUMON_RECORD": "1" if record else "0",
        }
        running = Running([*GPUMON], env, _SIZE, "busy")
        try:
            running.start()
            watch(running, churn, minutes, settle, keys)
        except EndedEarly as ended:
            print(f"the dashboard {ended}")
        finally:
            running.stop()
            churn.end()


def watch(running: Running, churn: Churn, minutes: float, settle: float, keys: bool) -> None:
    typed = itertools.cycle(_KEYS)
    began = time.monotonic()
    next_key, next_churn, next_line = _KEY_EVERY_S, _CHURN_EVERY_S, 60.0
    lines: list[tuple[float, Held, Held]] = []
    print("minute | dashboard: PSS, anonymous MiB, files, threads, CPU % | agent: the same, no CPU")
    used = 0.0
    while (passed := time.monotonic() - began) < 60 * minutes:
        running.pump(min(next_key, next_churn, next_line) - passed)
        passed = time.monotonic() - began
        if passed >= next_key:
            next_key += _KEY_EVERY_S
            if keys:
                running.send(next(typed))
        if passed >= next_churn:
            next_churn += _CHURN_EVERY_S
            churn.turn()
        if passed >= next_line:
            next_line += 60.0
            pids = tree(running.pid)
            own, agent = held(pids[0]), held(pids[1])
            now = cpu_s(pids)
            lines.append((passed / 60, own, agent))
            cpu_percent = 100 * (now - used) / 60
            print(f"{passed / 60:6.0f} | {row(own)} {cpu_percent:5.1f} | {row(agent)}", flush=True)
            used = now
    settled = [line for line in lines if line[0] >= settle]
    if len(settled) >= 2:
        say("dashboard", settle, [(minute, own) for minute, own, _ in settled])
        say("agent", settle, [(minute, agent) for minute, _, agent in settled])


def row(of: Held) -> str:
    return f"{of.pss_mib:6.1f} {of.anonymous_mib:6.1f} {of.descriptors:3} {of.threads:3}"


def say(name: str, settle: float, points: list[tuple[float, Held]]) -> None:
    slopes = [slope_per_hour([(minute, of[n]) for minute, of in points]) for n in range(4)]
    print(
        f"{name} after minute {settle:.0f}, an hour: {slopes[0]:+.2f} MiB PSS, "
        f"{slopes[1]:+.2f} MiB anonymous, {slopes[2]:+.2f} files, {slopes[3]:+.2f} threads"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--settle", type=float, default=15, help="minutes before the slopes begin")
    parser.add_argument("--no-keys", action="store_true", help="stay on the first screen")
    parser.add_argument("--no-record", action="store_true")
    given = parser.parse_args()
    soak(given.minutes, given.settle, not given.no_keys, not given.no_record)
