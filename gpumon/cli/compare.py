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
    from gpumon.services.library import runs_for, with_one_job

    if len(args.runs) > 2:
        raise UsageError(f"{len(args.runs)} runs were named; compare two at a time")
    names = runs_for("compare", args.runs, 2, last=args.last)

    def compared(runs: list[str]) -> str:
        if args.json:
            return json.dumps(compared_json(*runs), allow_nan=False)
        return compared_text(*runs)

    text = with_one_job("compare", names, compared) if names else None
    if text is None:
        return EXIT_INTERRUPTED
    print(text)
    return EXIT_OK
