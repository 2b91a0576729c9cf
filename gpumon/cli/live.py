"""`gpumon` without a command: the live dashboard."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import TYPE_CHECKING

from gpumon.cli.arguments import add_live_arguments, settings_of

if TYPE_CHECKING:
    from gpumon.services.on_end import OnEnd


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node", action="store_true", help="show the whole node, even inside a job"
    )
    add_live_arguments(parser)


def run(args: argparse.Namespace) -> int:
    gc.disable()  # until the screen is drawn: collections take an eighth of its start
    try:
        return _run(args)
    finally:
        gc.enable()


def _run(args: argparse.Namespace) -> int:
    from gpumon.services.around import is_in_job
    from gpumon.terminal import can_show_screen

    settings = settings_of(args)
    reason = can_show_screen()
    on_end = _on_end(args, on_screen=not reason)
    if reason:
        print(f"gpumon: {reason}; printing one sample as text instead", file=sys.stderr)
    if not args.node and is_in_job(os.environ):
        from gpumon.services.own_job import jobs_around

        jobs = jobs_around(os.environ)
        if jobs:
            from gpumon.services.attach import Attachment

            own_pace, on_screen = args.interval is None, not reason
            attachment = Attachment(on_end=on_end)
            code = attachment.attach_own(jobs, settings, own_pace=own_pace, on_screen=on_screen)
            return on_end.finish(code) if on_end is not None else code
    if reason:
        from gpumon.cli import once

        return once.show(as_json=False)
    from gpumon.services.dashboard import show_node

    return show_node(settings, whole_node=args.node)


def _on_end(args: argparse.Namespace, *, on_screen: bool) -> OnEnd | None:
    """What runs at the job's end. Raises UsageError where gpumon would not see that."""
    if args.on_end is None:
        return None
    from gpumon.errors import UsageError
    from gpumon.services.on_end import OnEnd

    job = "" if args.node else os.environ.get("SLURM_JOB_ID", "")
    if not job:
        raise UsageError("--on-end needs a job; run 'gpumon attach JOBID --on-end CMD'")
    if os.environ.get("SLURMD_NODENAME"):
        raise UsageError(
            "--on-end: on a node of the job, gpumon ends together with it; run 'gpumon attach "
            "JOBID --on-end CMD' on a login node"
        )
    return OnEnd(args.on_end, on_screen=on_screen)
