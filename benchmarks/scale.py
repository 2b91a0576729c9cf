"""Many nodes on one screen: what the dashboard costs, and how late a sample is.

    python -m benchmarks.scale [--nodes 64 256 1024:5] [--real N] [--seconds N]
                               [--screens job nodes ...] [--record no yes] [--together]

Nodes with eight GPUs each, a sample every second, or every S of `--nodes N:S`. `--real` of them
run gpumon's agent on the emulated driver; the others are played by feeders
(`benchmarks.scale_feed`) through named pipes. The dashboard (`benchmarks.scale_screen`) runs in a
pseudo-terminal of 200x60.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.bed import Bed, bed
from benchmarks.processes import core_wait_s, cpu_s, memory, tree
from benchmarks.running import EndedEarly, Running
from benchmarks.scale_screen import COMPLETE, LOG, names
from benchmarks.table import MIB, rows_table
from gpumon.sources.attach import is_spread

SIZE = (200, 60)
KEYS = {"job": "1", "device": "2", "processes": "3", "nodes": "4", "report": "5"}
FED_BY_ONE = 256
COMPLETE_WITHIN_S = 240
QUIT_WITHIN_S = 60
SETTLE_S, TURN_S = 10, 3  # after the first complete screen, and after a change of screens


class Case(NamedTuple):
    """One dashboard."""

    fed: int
    real: int
    record: bool
    interval_s: int
    is_spread: bool

    def __str__(self) -> str:
        agents = f", {self.real} real" if self.real else ""
        agents += f", every {self.interval_s} s" if self.interval_s > 1 else ""
        together = not self.is_spread and is_spread(self.fed + self.real, self.interval_s)
        agents += " together" if together else ""
        recording = "recording" if self.record else "not recording"
        return f"{self.fed + self.real}{agents}, {recording}"


class Window(NamedTuple):
    """One screen for some seconds; `began` and `ended` on the wall clock."""

    screen: str
    began: float
    ended: float
    cpu_percent: float
    child_cpu_percent: float
    core_wait_percent: float
    pss_bytes: float
    child_pss_bytes: float
    output_bytes_per_s: float
    threads: int


class Lateness(NamedTuple):
    """From a sample's time, s: to the store, and to the end of the first drawing with it."""

    stored_p99: float
    stored_most: float
    drawn_p99: float
    drawn_most: float
    draws_per_s: float
    draw_s: float  # mean


@contextlib.contextmanager
def feeding(case: Case, folder: Path, env: dict[str, str], stream: Path | None) -> Iterator[None]:
    """The feeders' processes; a line on standard error if they themselves were late."""
    fed, _ = names(case.fed, case.real)
    for name in fed:
        os.mkfifo(folder / name)
    shares = [fed[at : at + FED_BY_ONE] for at in range(0, len(fed), FED_BY_ONE)]
    more = ["--stream", str(stream)] if stream else []
    more += ["--interval", str(case.interval_s)]
    more += ["--spread"] if case.is_spread else []
    command = [sys.executable, "-m", "benchmarks.scale_feed", str(folder)]
    feeders = [
        subprocess.Popen([*command, *share, *more], env=env, stdout=subprocess.PIPE, text=True)
        for share in shares
    ]
    try:
        yield
    finally:
        for feeder in feeders:
            feeder.terminate()
            said, _ = feeder.communicate()
            found = json.loads(said)
            note(f"  feeder: {found['latest_s'] * 1e3:.0f} ms late at most, "
                 f"{found['most_waiting_bytes']} bytes waited")  # fmt: skip


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def watch(running: Running, screen: str, seconds: float) -> Window:
    """Turn to a screen and measure it."""
    running.send(KEYS[screen])
    running.pump(TURN_S)
    pid, began, wrote = running.pid, time.time(), running.bytes
    own, whole, waited = cpu_s([pid]), cpu_s(tree(pid)), core_wait_s(pid)
    took_s = running.pump(seconds)
    pids = tree(pid)
    own_s, whole_s = cpu_s([pid]) - own, cpu_s(pids) - whole
    wait_s = core_wait_s(pid) - waited
    used, by_children = memory([pid]), memory(pids[1:])
    return Window(
        screen, began, time.time(), 100 * own_s / took_s, 100 * (whole_s - own_s) / took_s,
        100 * wait_s / took_s, used.pss_bytes, by_children.pss_bytes,
        (running.bytes - wrote) / took_s, threads(pid),
    )  # fmt: skip


def lateness(folder: Path, window: Window) -> Lateness:
    stored, drawn = (between(folder, name, window) for name in ("stored", "drawn"))
    draws = between(folder, "draws", window)
    p99 = [sorted(late)[int(0.99 * (len(late) - 1))] if late else -1.0 for late in (stored, drawn)]
    span_s = window.ended - window.began
    return Lateness(
        p99[0], max(stored, default=-1.0), p99[1], max(drawn, default=-1.0),
        len(draws) / span_s, sum(draws) / max(1, len(draws)),
    )  # fmt: skip


def between(folder: Path, name: str, window: Window) -> list[float]:
    """The seconds between the two times of each pair that ended in the window."""
    times = array("d", (folder / f"{LOG}.{name}").read_bytes())
    pairs = zip(times[::2], times[1::2])
    return [after - before for before, after in pairs if window.began <= after < window.ended]


def complete_s(running: Running, folder: Path, began: float) -> float:
    """Seconds from exec to the first screen with a sample of every node."""
    file = folder / COMPLETE
    while not (file.exists() and file.read_text()):
        if time.time() - began > COMPLETE_WITHIN_S:
            raise EndedEarly(f"no complete screen within {COMPLETE_WITHIN_S} s")
        running.pump(0.2)
    return float(file.read_text()) - began


def leave(running: Running) -> float:
    """Seconds from `q` to the end of the process, which writes its lists before."""
    began = time.monotonic()
    running.send("q")
    with contextlib.suppress(EndedEarly):
        running.pump(QUIT_WITHIN_S)
    return time.monotonic() - began


def run(on: Bed, case: Case, args: argparse.Namespace) -> list[list[str]]:
    """A row for each screen."""
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        env = {**on.program_env(), "PATH": os.environ["PATH"], "GPUMON_RECORD": "1"}
        with feeding(case, folder, env, args.stream):
            return measured(case, args, folder, env)


def measured(
    case: Case, args: argparse.Namespace, folder: Path, env: dict[str, str]
) -> list[list[str]]:
    argv = [sys.executable, "-m", "benchmarks.scale_screen", str(folder)]
    argv += ["--fed", str(case.fed), "--real", str(case.real)]
    argv += ["--interval", str(case.interval_s)]
    argv += ["--record"] if case.record else []
    began = time.time()
    running = Running(argv, env, SIZE, "")
    windows: list[Window] = []
    try:
        running.start()
        first_s = complete_s(running, folder, began)
        running.pump(args.settle)
        for screen in args.screens:
            windows.append(watch(running, screen, args.seconds))
        quit_s = leave(running)
    except EndedEarly as error:
        return [failed(case, len(windows), error, running)]
    finally:
        running.stop()
    return [row(case, each, lateness(folder, each), first_s, quit_s) for each in windows]


HEAD = ["nodes", "screen", "CPU % (children)", "waits for a core %", "PSS MiB (children)",
        "stored p99, max s", "drawn p99, max s", "draws/s × ms", "bytes/s",
        "threads", "complete, quit s"]  # fmt: skip


def row(case: Case, window: Window, late: Lateness, first_s: float, quit_s: float) -> list[str]:
    children = window.child_pss_bytes > 0
    return [
        str(case),
        window.screen,
        f"{window.cpu_percent:.1f}" + (f" ({window.child_cpu_percent:.1f})" if children else ""),
        f"{window.core_wait_percent:.1f}",
        f"{window.pss_bytes / MIB:.0f}"
        + (f" ({window.child_pss_bytes / MIB:.0f})" if children else ""),
        f"{late.stored_p99:.3f}, {late.stored_most:.3f}",
        f"{late.drawn_p99:.3f}, {late.drawn_most:.3f}",
        f"{late.draws_per_s:.1f} × {late.draw_s * 1e3:.1f}",
        f"{window.output_bytes_per_s:.0f}",
        str(window.threads),
        f"{first_s:.1f}, {quit_s:.1f}",
    ]


def failed(case: Case, windows: int, error: EndedEarly, running: Running) -> list[str]:
    """A row that says so, with what it took until then and how long it needed to quit."""
    used, took_s = memory(tree(running.pid)), cpu_s(tree(running.pid))
    quit_s = leave(running)
    text = f"failed: {error}; {took_s:.0f} CPU s so far, {windows} screens measured"
    return [str(case), text, "", "", f"{used.pss_bytes / MIB:.0f}", *[""] * 5, f"-, {quit_s:.1f}"]


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def counted(text: str) -> tuple[int, int]:
    """`N` or `N:S`: nodes, and seconds between samples of each."""
    nodes, _, interval_s = text.partition(":")
    return int(nodes), int(interval_s or 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--nodes", nargs="+", type=counted, default=[(64, 1)], metavar="N[:S]")
    parser.add_argument("--real", type=int, default=4)
    parser.add_argument("--screens", nargs="+", choices=KEYS, default=["job", "nodes"])
    parser.add_argument("--record", nargs="+", choices=("no", "yes"), default=["no", "yes"])
    parser.add_argument("--seconds", type=float, default=20, help="window of each screen")
    parser.add_argument("--settle", type=float, default=SETTLE_S, help="s before the first window")
    parser.add_argument("--together", action="store_true", help="have all nodes tick at once")
    parser.add_argument("--stream", type=Path, help="play this file, not the made H100 samples")
    args = parser.parse_args()
    rows = []
    with bed() as on:
        for (nodes, interval_s), record in product(args.nodes, args.record):
            real = args.real
            spread = is_spread(nodes, interval_s) and not args.together
            case = Case(nodes - real, real, record == "yes", interval_s, spread)
            note(str(case))
            rows += run(on, case, args)
    print(rows_table(HEAD, rows))


if __name__ == "__main__":
    main()
