"""`gpumon collect`: the agent on standard output."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import count, interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--interval", type=interval, default=1.0, metavar="S", help="seconds (1)")
    parser.add_argument("--count", type=count, metavar="N", help="end after N samples")
    parser.add_argument(
        "--until-eof", action="store_true", help="end when standard input ends (ssh, local)"
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave
    from gpumon.collect.agent import run as run_agent

    leave(run_agent(args.interval, args.count, until_eof=args.until_eof))
