"""`gpumon demo`: a recorded story, through the same path as live data."""

from __future__ import annotations

import argparse
import sys

from gpumon.cli.arguments import add_replay_arguments, settings_of
from gpumon.errors import EXIT_OK

DEFAULT = "finetune"
_AHEAD_S = 470.0  # the story so far: the plots are not empty, and a GPU is too hot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default=DEFAULT, help=f"name of the recording ({DEFAULT})"
    )
    parser.add_argument("--list", action="store_true", help="list the recordings")
    add_replay_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon import demos

    if args.list:
        print("\n".join(f"{name}  {demos.path(name)}" for name in demos.names()))
        return EXIT_OK
    path = demos.path(args.name)
    from gpumon.services.replay import play
    from gpumon.sources.files import tracks_of
    from gpumon.sources.replay import ReplaySource

    settings = settings_of(args)
    source = ReplaySource(tracks_of([path]), speed=args.speed, ahead_s=_AHEAD_S, loop=True)
    code = play(source, settings, "demo", path)
    print("This was a recording. To watch this machine, run 'gpumon'.", file=sys.stderr)
    return code
