"""`gpumon stack`: where each rank of a job, or a Python process of this node, stands."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import add_login, settings_of
from gpumon.cli.attach import VIAS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="JOBID|PID",
        help="running job, or Python process of this node; a number of both is the process; "
        "default: the job around this shell, else your Python programs on this node's GPUs",
    )
    parser.add_argument(
        "--threads", action="store_true", help="show all threads, which needs py-spy on the node"
    )
    parser.add_argument("--via", choices=VIAS, help="use only this transport to reach the nodes")
    add_login(parser)
    parser.add_argument("--nodes", metavar="LIST", help="ask only these nodes, e.g. gpu[01-02]")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from gpumon.model.stack import ANY, THREADS
    from gpumon.services.stacks import print_stacks

    return print_stacks(
        args.target,
        THREADS if args.threads else ANY,
        settings_of(args),
        via=args.via,
        login=args.login,
        nodes=args.nodes,
        as_json=args.json,
    )
