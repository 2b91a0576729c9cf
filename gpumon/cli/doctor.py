"""`gpumon doctor`: what works here and what does not, and why."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gpumon.errors import EXIT_OK

_SIGNS = {"ok": "ok", "limited": "!!", "absent": "--"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--prometheus",
        nargs="?",
        const="",
        metavar="URL",
        help="check what a Prometheus server has (default: the site's), and print the section of "
        "the site's file for it",
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave

    section = ""
    if args.prometheus is None:
        from gpumon.services.diagnosis import examine

        checks = examine()
    else:
        from gpumon.services.survey import examine_server

        checks, section = examine_server(args.prometheus or None)
    if args.json:
        body: dict[str, Any] = {"version": 1, "checks": [check._asdict() for check in checks]}
        print(json.dumps(body))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{_SIGNS[check.result]}  {check.name:<{width}}  {check.detail}")
        if section:
            print(f"\nFor /etc/gpumon/site.toml:\n\n{section}", end="")
    leave(EXIT_OK)
