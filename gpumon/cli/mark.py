"""`gpumon mark`: a line on the time axis of the recording that runs."""

from __future__ import annotations

import argparse

from gpumon.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="+", metavar="TEXT", help="text of the mark")


def run(args: argparse.Namespace) -> int:
    from gpumon.services.mark import mark

    mark(" ".join(args.text))
    return EXIT_OK
