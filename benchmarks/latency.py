"""How long a key takes to the screen, and quitting while every GPU hangs: seconds by the clock.

    python -m benchmarks.latency [--size 200x60] [--keys 100] [--quits 5]

On the emulated 8 × A100. A key's answer is complete when the terminal has been given nothing for
30 ms; a drawing of a second that begins in between counts, too. Beside it nvitop, if it is
installed, which has no screens: there the selection moves.
"""

from __future__ import annotations

import argparse
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles

from benchmarks.bed import Bed, bed
from benchmarks.programs import GPUMON, find
from benchmarks.running import BURST_GAP_S, EndedEarly, Running
from benchmarks.table import rows_table

#: screens, selection, zoom, the help and back
_KEYS = ("2", "3", "4", "5", "1", "\x1b[B", "\x1b[A", "-", "+", "?", "\x1b")
_SELECT = ("\x1b[B", "\x1b[A")
_SETTLE_S = 10.0
_PAUSE_S = 0.37  # between keys: they come at any time within a second
_AT_MOST_S = 2.0
_HANG = "[system]\nrule = nvmlDeviceGet* hang\n"
_HANGS_S = 5.0  # until every worker hangs


def answer_s(running: Running, key: str) -> tuple[float, float]:
    """Until the first byte and until the last one of the answer."""
    wrote, began = running.bytes, time.monotonic()
    running.send(key)
    first_s = last_s = 0.0
    while (now_s := time.monotonic() - began) < _AT_MOST_S:
        if running.bytes > wrote:
            wrote, last_s = running.bytes, now_s
            first_s = first_s or now_s
        elif first_s and now_s - last_s > BURST_GAP_S:
            break
        running.read(BURST_GAP_S)
    return first_s, last_s


def keys_row(name: str, running: Running, keys: tuple[str, ...], count: int) -> list[str]:
    running.start()
    running.pump(_SETTLE_S)
    answers = []
    for key in islice(cycle(keys), count):
        answers.append(answer_s(running, key))
        running.pump(_PAUSE_S)
    cells = [name]
    for times in zip(*answers):
        p95 = quantiles(times, n=20)[-1]
        cells += [f"{1000 * each:.0f}" for each in (median(times), p95, max(times))]
    return cells


def quit_s(on: Bed, size: tuple[int, int]) -> float:
    """From `q` to the end of the program, in which no GPU answers any more."""
    env = on.program_env()
    override = Path(env["FAKE_NVML_OVERRIDE"])
    running = Running([*GPUMON], env, size, "busy")
    try:
        running.start()
        running.pump(_SETTLE_S)
        override.write_text(_HANG)
        running.pump(_HANGS_S)
        began = time.monotonic()
        running.send("q")
        try:
            running.pump(30)
        except EndedEarly:
            return time.monotonic() - began
        raise SystemExit("it did not end within 30 s")
    finally:
        override.write_text("")
        running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--size", default="200x60", help="columns x rows of the terminal")
    parser.add_argument("--keys", type=int, default=100, help="how many are typed")
    parser.add_argument("--quits", type=int, default=5, help="how often it is quit")
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    size = columns, rows
    table = []
    with bed() as on:
        programs = [("gpumon", [*GPUMON, "--no-record"], "busy", _KEYS)]
        if nvitop := find([], on.program_env()).commands.get("nvitop"):
            programs.append(("nvitop", [*nvitop, "--interval", "1"], "Processes:", _SELECT))
        for name, argv, marker, keys in programs:
            running = Running(argv, on.program_env(), size, marker)
            try:
                table.append(keys_row(name, running, keys, args.keys))
            finally:
                running.stop()
        quits = sorted(quit_s(on, size) for _ in range(args.quits))
    print(rows_table(["ms", "first byte", "p95", "max", "last byte", "p95", "max"], table))
    print(f"\nquit while every GPU hangs, s: {' '.join(f'{each:.2f}' for each in quits)}")


if __name__ == "__main__":
    main()
