"""`gpumon collect`: the agent on standard output."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import count, interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=interval, default=1.0, metavar="S", help="seconds between samples (1)"
    )
    parser.add_argument("--count", type=count, metavar="N", help="stop after N samples")
    parser.add_argument(
        "--job",
        metavar="JOBID",
        help="collect for JOBID only; exit with an error if that is not possible",
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="number of GPUs of the job on this node"
    )
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--heartbeat",
        action="store_true",
        help="like --until-eof, and stop after 45 s without input",
    )
    parser.add_argument("--label", action="store_true", help="prefix each line with the node name")
    parser.add_argument(
        "--spread",
        action="store_true",
        help="tick at a second of the interval that depends on the node name",
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave
    from gpumon.collect.job.guard import parse_target
    from gpumon.collect.stream import Reader
    from gpumon.collect.stream import run as run_agent
    from gpumon.errors import UsageError

    try:
        target = parse_target(args.job, args.gpus) if args.job else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    reader = Reader(args.until_eof or args.heartbeat, args.heartbeat, args.label, args.spread)
    leave(run_agent(args.interval, args.count, reader, target))
