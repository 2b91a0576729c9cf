"""`gpumon demo`: a recorded story, through the same path as live data."""

from __future__ import annotations

import argparse
import sys

from gpumon.cli.arguments import speed
from gpumon.cli.live import add_screen_arguments
from gpumon.errors import EXIT_OK, GpumonError

DEFAULT = "finetune"
_AHEAD_S = 470.0  # the story so far: the plots are not empty, and a GPU is too hot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=DEFAULT, help=f"which ({DEFAULT})")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--speed", type=speed, default=1.0, metavar="N", help="times faster (1)")
    add_screen_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon import demos

    if args.list:
        print("\n".join(demos.names()))
        return EXIT_OK
    path = demos.path(args.name)
    from gpumon.config import load_settings
    from gpumon.sources.replay import ReplaySource, tracks_of
    from gpumon.terminal import can_show_screen

    settings = load_settings(theme=args.theme, ascii=args.ascii)
    source = ReplaySource(tracks_of([path]), speed=args.speed, ahead_s=_AHEAD_S, loop=True)
    reason = can_show_screen()
    if reason:
        raise GpumonError(f"{reason}; run 'gpumon demo' in a terminal")
    from gpumon.tui.app import run_app

    code = run_app(source, settings)
    print("That was a recording. 'gpumon' shows this machine.", file=sys.stderr)
    return code
