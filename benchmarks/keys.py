"""What a key costs the terminal, with full plots: bytes, on the emulated 8 × A100.

python -m benchmarks.keys [--size 200x60] [--age 660]
"""

from __future__ import annotations

import argparse

from benchmarks.aged import program
from benchmarks.bed import bed
from benchmarks.running import EndedEarly, Running
from benchmarks.table import rows_table

#: key as it is typed, and what it does; one after the other
KEYS = (
    ("2", "Device"),
    ("3", "Processes"),
    ("4", "Nodes"),
    ("5", "Report"),
    ("1", "Job"),
    ("?", "Help"),
    ("\x1b", "close it"),
    ("+", "zoom in"),
    ("-", "zoom out"),
    ("\x1b[B", "select the next GPU"),
    ("t", "another theme"),
    ("\x0c", "draw all of it"),
)
_SETTLE_S = 10.0
_PAUSE_S = 1.2  # after a key, in which a drawing or two of a second come, too


def measure(running: Running) -> list[list[str]]:
    """Rows of bytes by key."""
    by_key: list[list[str]] = []
    for key, name in KEYS:
        running.pump(_PAUSE_S)
        before = running.bytes
        running.send(key)
        running.pump(_PAUSE_S)
        by_key.append([name, str(running.bytes - before)])
    return by_key


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=__doc__)
    parser.add_argument("--size", default="200x60", help="columns x rows of the terminal")
    parser.add_argument("--age", type=int, default=660, help="seconds of past, at the start")
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    with bed() as on:
        running = Running(*program(on, args.age), (columns, rows), "busy")
        try:
            running.start()
            running.pump(_SETTLE_S)
            by_key = measure(running)
        except EndedEarly as ended:
            print(f"Failed: {ended}")
            return
        finally:
            running.stop()
    print(rows_table(["key", "bytes"], by_key))


if __name__ == "__main__":
    main()
