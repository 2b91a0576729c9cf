"""`gpumon` without a command: the live dashboard."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.cli.arguments import interval

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.slurm.job import Job


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
        print(f"gpumon: {reason}; one sample as text instead", file=sys.stderr)
    if not args.node:
        from gpumon.cli.own_job import jobs_around

        jobs = jobs_around(os.environ)
        if jobs:
            if args.interval is None:
                from gpumon.cli.attach import paced

                settings = paced(settings, sum(len(job.nodes) for job in jobs))
            return _attach(jobs, settings, on_screen=not reason)
    if reason:
        from gpumon.cli import once

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
    id = os.environ.get("SLURM_JOB_ID", "")
    if args.node or not id:
        return run_app(tee, settings, whole_node=args.node)
    from gpumon.cli.own_job import OwnJob
    from gpumon.sources.jobfiles import JobFiles

    own = OwnJob(id)
    return run_app(tee, settings, job=own, output=JobFiles(own.job))


def _attach(jobs: Sequence[Job], settings: Settings, *, on_screen: bool) -> int:
    """All nodes of the allocation around this shell, of which this may be one."""
    from gpumon.cli.attach import open_screen, watch
    from gpumon.cli.attach_text import print_samples
    from gpumon.cli.own_job import known_better
    from gpumon.cli.prompting import Prompting
    from gpumon.slurm.client import Slurm
    from gpumon.slurm.runner import LocalRunner
    from gpumon.sources.ways import Ways, here

    prompting = Prompting()
    slurm = Slurm(LocalRunner())
    jobs = known_better(jobs)
    ways = Ways(prompting, here(os.environ))
    watched = watch(jobs, slurm, ways, (), settings)
    return open_screen(watched, settings, prompting) if on_screen else print_samples(watched)
