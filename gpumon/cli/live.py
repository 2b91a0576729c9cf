"""`gpumon` without a command: the live dashboard."""

from __future__ import annotations

import argparse
import os
import sys

from gpumon.cli.arguments import interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=interval, metavar="S", help="seconds between samples (1)"
    )
    parser.add_argument(
        "--node", action="store_true", help="show the whole node, also inside a job"
    )
    parser.add_argument(
        "--no-record", dest="record", action="store_false", default=None, help="only show"
    )
    add_screen_arguments(parser)


def add_screen_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that opens the screen."""
    parser.add_argument("--ascii", action="store_true", default=None, help="no braille, no blocks")
    parser.add_argument("--theme", metavar="T", help="dark, light, colour-blind, ansi or mono")


def run(args: argparse.Namespace) -> int:
    from gpumon.config import load_settings
    from gpumon.terminal import can_show_screen

    settings = load_settings(
        interval_s=args.interval, theme=args.theme, ascii=args.ascii, record=args.record
    )
    reason = can_show_screen()
    if reason:
        from gpumon.cli import once

        print(f"gpumon: {reason}; one sample as text instead", file=sys.stderr)
        return once.show(as_json=False)
    from gpumon.cli.record import marks_dir, start_retention
    from gpumon.collect.base import node_name
    from gpumon.sources.local import LocalSource
    from gpumon.sources.tee import Tee
    from gpumon.tui.app import run_app

    source = LocalSource(node_name(os.environ), settings.interval_s)
    if settings.record:
        start_retention(settings)
    tee = Tee(source, marks_dir(), record=settings.record)
    return run_app(tee, settings, whole_node=args.node)
