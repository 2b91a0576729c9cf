"""`gpumon exporter`: this node's readings for Prometheus."""

from __future__ import annotations

import argparse

from gpumon.cli.arguments import interval
from gpumon.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        help="address to answer scrapes on (default: 127.0.0.1:9835; ':9835' for all interfaces)",
    )
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        help="write FILE (*.prom) after each sample, for node_exporter's textfile collector",
    )
    parser.add_argument(
        "--interval", type=interval, default=5.0, metavar="S", help="seconds between samples"
    )
    parser.add_argument(
        "--web-config",
        metavar="FILE",
        help="TLS and users, in the format of Prometheus's own exporters",
    )
    parser.add_argument(
        "--names",
        action="append",
        choices=("dcgm", "jobstats"),
        default=[],
        help="also give the metrics that dashboards of these exporters expect",
    )
    parser.add_argument(
        "--processes", action="store_true", help="also give a series for each process on a GPU"
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.services.exporter import serve

    if args.textfile and not args.textfile.endswith(".prom"):
        raise UsageError(f"--textfile: {args.textfile} must end in .prom, or it is not read")
    return serve(
        listen=args.listen,
        textfile=args.textfile,
        interval_s=args.interval,
        web_config=args.web_config,
        names=tuple(dict.fromkeys(args.names)),
        processes=args.processes,
    )
