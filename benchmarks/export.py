"""What `gpumon export` of a node-day costs: CPU seconds of the whole command.

    python -m benchmarks.export [--samples 3600] [--to csv json parquet] [--before DIR]

The recordings are made (eight H100, 16 busy processes, every field moves). What the longer one
costs more than one of a tenth is extrapolated to 86,400 samples. Beside it what parsing the JSON of
its lines alone takes, as a measure of how fast the cores are just now. `--before`: another
checkout, in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bed import ROOT
from benchmarks.recording import DAY, record, stream
from benchmarks.table import rows_table
from gpumon.model.sample import Header, Sample
from gpumon.wire.encoder import Encoder

BUDGET_S = 12.0  # of CPU, as CSV
_ROUNDS = 3


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_s(checkout: Path, arguments: list[str]) -> float:
    """CPU seconds of gpumon with these arguments."""
    before = children_s()
    # from another folder: with -m Python looks for modules in the current one first
    argv = ["env", "--chdir=/", f"PYTHONPATH={checkout}", sys.executable, "-m", "gpumon"]
    subprocess.run([*argv, *arguments], check=True, stdout=subprocess.DEVNULL)
    return children_s() - before


def least_s(checkout: Path, folder: Path, count: int, to: str) -> float:
    """CPU seconds of an export, the least of some."""
    took = []
    for _ in range(_ROUNDS):
        output = folder / "out"
        arguments = ["export", str(folder / f"{count}.gpumon"), "--to", to]
        took.append(
            command_s(checkout, [*arguments, *(["-o", str(output)] if to != "json" else [])])
        )
        shutil.rmtree(output, ignore_errors=True)
    return min(took)


def parsing_s(items: Iterator[Header | Sample]) -> float:
    encoder = Encoder()
    lines = [encoder.header(i) if isinstance(i, Header) else encoder.sample(i) for i in items]
    began = time.process_time()
    for line in lines:
        json.loads(line)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export")
    parser.add_argument("--samples", type=int, default=3600)
    parser.add_argument("--to", nargs="+", choices=("csv", "json", "parquet"), default=["csv"])
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of gpumon")
    args = parser.parse_args()
    checkouts = {"now": ROOT} | ({"before": args.before.resolve()} if args.before else {})
    rows = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        counts = (args.samples // 10, args.samples)
        for count in counts:
            record(stream(None, count), folder / f"{count}.gpumon")
        for to in args.to:
            for checkout, place in checkouts.items():
                short_s, long_s = (least_s(place, folder, count, to) for count in counts)
                each_s = (long_s - short_s) / (counts[1] - counts[0])
                rows.append([f"{to}, {checkout}", f"{long_s + each_s * (DAY - counts[1]):.1f}"])
    parsed_s = parsing_s(stream(None, args.samples)) * DAY / args.samples
    rows.append(["its JSON parsed, nothing else", f"{parsed_s:.1f}"])
    print(rows_table([f"export of a node-day (budget {BUDGET_S:.0f} s as CSV)", "CPU s"], rows))


if __name__ == "__main__":
    main()
