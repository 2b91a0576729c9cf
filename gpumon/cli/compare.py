"""`gpumon compare`: two recorded runs side by side."""

from __future__ import annotations

import argparse

from gpumon.errors import EXIT_INTERRUPTED, EXIT_OK, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="two runs, each a recording, a folder of recordings, or an ID of 'gpumon runs'; "
        "default: a list",
    )
    parser.add_argument("--last", action="store_true", help="compare the two newest runs")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json

    from gpumon.services.comparing import compared_json, compared_text
    from gpumon.services.library import runs_for

    if len(args.runs) > 2:
        raise UsageError(f"{len(args.runs)} runs were named; compare two at a time")
    names = runs_for("compare", args.runs, 2, last=args.last)
    if not names:
        return EXIT_INTERRUPTED
    if args.json:
        print(json.dumps(compared_json(*names), allow_nan=False))
    else:
        print(compared_text(*names))
    return EXIT_OK
