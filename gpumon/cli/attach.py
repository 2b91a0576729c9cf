"""`gpumon attach`: the dashboard on all nodes of a running job."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import add_live_arguments, add_login, settings_of

#: those of gpumon.transport.available, which `--help` must not load
VIAS = ("ssh", "openssh", "srun")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOBID|NAME",
        help="job ID as printed by Slurm (123, 123_4, 123+1) or name of one of your jobs; "
        "default: your running job, or a list of them to choose from",
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="attach to your most recently started job, running or ended",
    )
    parser.add_argument(
        "--via", choices=(*VIAS, "prometheus"), help="use only this transport to reach the nodes"
    )
    add_login(parser)
    parser.add_argument(
        "--nodes", metavar="LIST", help="watch only these nodes, e.g. gpu[01-02],gpu07"
    )
    add_live_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one sample of each node as JSON")


def run(args: argparse.Namespace) -> int:
    from gpumon.services.attach import Attachment
    from gpumon.terminal import can_show_screen

    settings = settings_of(args)
    on_screen = not args.json and not can_show_screen()
    on_end = None
    if args.on_end is not None:
        from gpumon.services.on_end import OnEnd

        on_end = OnEnd(args.on_end, on_screen=on_screen)
    code = Attachment(args.via, args.login, on_end=on_end).attach(
        args.job,
        settings,
        last=args.last,
        nodes=args.nodes,
        own_pace=args.interval is None,
        as_json=args.json,
        on_screen=on_screen,
    )
    return on_end.finish(code) if on_end is not None else code
