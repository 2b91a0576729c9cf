"""`gpumon replay`: the live dashboard on recorded samples."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import add_replay_arguments, settings_of
from gpumon.errors import EXIT_INTERRUPTED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="?",
        metavar="FILE|JOBID",
        help="a recording, a folder of recordings, or an ID of 'gpumon runs'; default: a list",
    )
    parser.add_argument("--last", action="store_true", help="play the newest run")
    add_replay_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon.services.library import runs_for
    from gpumon.services.replay import replay

    settings = settings_of(args)
    for run in runs_for("replay", [args.run] if args.run else [], 1, last=args.last):
        return replay(run, settings, args.speed)
    return EXIT_INTERRUPTED
