"""`gpumon collect`: the agent on standard output."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import count, interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--interval", type=interval, default=1.0, metavar="S", help="seconds (1)")
    parser.add_argument("--count", type=count, metavar="N", help="end after N samples")
    parser.add_argument("--job", metavar="JOBID", help="speak for this job only, or say why not")
    parser.add_argument("--gpus", type=int, metavar="N", help="how many the job has on this node")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    parser.add_argument(
        "--heartbeat", action="store_true", help="that, and when it was silent for 45 s"
    )
    parser.add_argument("--label", action="store_true", help="name the node in front of each line")


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave, reader_of
    from gpumon.collect.agent import run as run_agent
    from gpumon.collect.guard import parse_target
    from gpumon.errors import UsageError

    try:
        target = parse_target(args.job, args.gpus) if args.job else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    leave(run_agent(args.interval, args.count, reader_of(args), target))
