"""`gpumon export`: a recorded run as tables for pandas, polars, DuckDB, R or a spreadsheet."""

from __future__ import annotations

import argparse
import sys

from gpumon.errors import EXIT_OK
from gpumon.export.formats import FORMATS

#: the tables of `export.tables`, which `--help` must not load
TABLES = (
    "device", "usage", "process", "pool", "program", "host", "job", "net", "disk", "event",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a recording, a folder of recordings, or a job ID"
    )
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help="format")
    parser.add_argument("--table", choices=TABLES, help="export this table only, into one file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file (- for standard output); CSV and Parquet without --table: a new folder "
        "(gpumon-RUN)",
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.services.export import export

    for problem in export(args.run, args.to, args.table, args.output):
        print(f"gpumon: {problem}", file=sys.stderr)
    return EXIT_OK
