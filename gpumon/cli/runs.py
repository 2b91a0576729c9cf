"""`gpumon runs`: the recordings there are."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from gpumon.errors import EXIT_OK

if TYPE_CHECKING:
    from gpumon.recording import Run

_HEAD = ("JOB", "NAME", "NODE", "START", "LENGTH", "SIZE", "STATE")
_MAX_NAME = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    from gpumon.recording import find_runs, state_dir

    unread: list[str] = []
    runs = find_runs(unread)
    for why in unread:
        print(f"gpumon: {why}", file=sys.stderr)
    if args.json:
        print(json.dumps({"version": 1, "runs": [_body(each) for each in runs]}))
    elif runs:
        print("\n".join(_table([_HEAD, *map(_row, runs)])))
    else:
        print(f"No recordings in {state_dir()}; 'gpumon' and 'gpumon record' make them.")
    return EXIT_OK


def _body(each: Run) -> dict[str, Any]:
    """As JSON; `job` and `name` are null outside of a job."""
    return {
        "cluster": each.cluster or None,
        "job": each.job or None,
        "name": each.name or None,
        "nodes": each.nodes,
        "start": each.start,
        "end": each.end,
        "size_bytes": each.size_bytes,
        "state": each.state,
        "paths": each.paths,
    }


def _row(each: Run) -> tuple[str, ...]:
    from gpumon.model.units import bytes_text, clock_text

    more = len(each.nodes) - 1
    return (
        each.job or "-",
        each.name[:_MAX_NAME] or "-",
        (each.nodes[0] if each.nodes else "-") + (f" +{more}" if more > 0 else ""),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(each.start)),
        clock_text(each.end - each.start),
        bytes_text(each.size_bytes),
        each.state,
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    right = (_HEAD.index("LENGTH"), _HEAD.index("SIZE"))
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
