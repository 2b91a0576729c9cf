"""`gpumon jobs`: one's running and recent jobs at a glance."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import add_screen_arguments, settings_of
from gpumon.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="U", help="jobs of user U; default: your own")
    parser.add_argument(
        "--since",
        metavar="T",
        help="jobs since T, in the format of sacct -S, e.g. 2026-11-01 (now-3days)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_screen_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from gpumon.model import clock
    from gpumon.report.render.jobs import json_text, text_table
    from gpumon.services.asking import shared_slurm
    from gpumon.services.jobs_overview import JobsOverview
    from gpumon.services.my_jobs import user_here
    from gpumon.services.this_site import this_site
    from gpumon.slurm.runner import LocalRunner
    from gpumon.terminal import can_show_screen

    settings = settings_of(args)
    user = args.user or user_here()
    overview = JobsOverview(shared_slurm(LocalRunner()), user, args.since, this_site())
    if not args.json and not can_show_screen():
        from gpumon.services.jobs_screen import show_jobs

        return show_jobs(overview, settings, user)
    listing = overview.whole()
    if args.json:
        print(json_text(listing, clock.now()))
    else:
        print(text_table(listing, clock.now()), end="")
    return EXIT_OK
