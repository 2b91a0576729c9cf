"""`gpumon runs`: the recordings there are."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import add_screen_arguments, settings_of
from gpumon.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_screen_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon.recording.runs import find_runs, state_dir
    from gpumon.report.render.runs import json_text, text_table
    from gpumon.services.runs import note
    from gpumon.terminal import can_show_screen

    if not args.json and not can_show_screen():
        from gpumon.services.replay import show_runs

        return show_runs(settings_of(args))
    unread: list[str] = []
    runs = find_runs(unread)
    for why in unread:
        note(why)
    if args.json:
        print(json_text(runs))
    elif runs:
        print(text_table(runs, state_dir()), end="")
    elif unread:
        print(f"No recordings in {state_dir()} can be read.")
    else:
        print(f"No recordings in {state_dir()}; 'gpumon' and 'gpumon record' create them.")
    return EXIT_OK
