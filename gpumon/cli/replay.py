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
    from gpumon.services.library import runs_for, with_one_job
    from gpumon.services.replay import replay

    settings = settings_of(args)

    def play(runs: list[str]) -> int:
        return replay(runs[0], settings, args.speed)

    runs = runs_for("replay", [args.run] if args.run else [], 1, last=args.last)
    code = with_one_job("replay", runs, play) if runs else None
    return EXIT_INTERRUPTED if code is None else code
