"""`gpumon replay`: the live dashboard on recorded samples."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gpumon.cli.arguments import speed
from gpumon.cli.live import add_screen_arguments
from gpumon.errors import GpumonError

if TYPE_CHECKING:
    from gpumon.sources.replay import ReplaySource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="FILE|JOBID", help="a recording, a folder, or a job's id")
    parser.add_argument("--speed", type=speed, default=1.0, metavar="N", help="times faster (1)")
    add_screen_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon.cli.recorded import is_plain
    from gpumon.config import load_settings
    from gpumon.recording import resolve
    from gpumon.sources.replay import ReplaySource, tracks_of
    from gpumon.terminal import can_show_screen

    settings = load_settings(theme=args.theme, ascii=args.ascii)
    unread: list[str] = []
    paths = [args.run]
    if not is_plain(args.run):
        found = resolve(args.run)
        paths, unread = found.paths, list(found.unread)
    source = ReplaySource(tracks_of(paths, unread), speed=args.speed, unread=unread)
    for why in unread:
        print(f"gpumon: {why}", file=sys.stderr)
    reason = can_show_screen()
    if reason:
        raise GpumonError(f"{reason}; run 'gpumon replay' in a terminal")
    import threading

    from gpumon.tui.app import run_app

    threading.Thread(target=_look_for_findings, args=(source, args.run), daemon=True).start()
    return run_app(source, settings)


def _look_for_findings(source: ReplaySource, run: str) -> None:
    """So that "next" goes to findings too, as soon as the whole run was read."""
    from gpumon.cli.recorded import finding_moments

    try:
        source.moments = finding_moments(run)
    except GpumonError:  # what cannot be read, the replay itself says
        return
