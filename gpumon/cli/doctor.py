"""`gpumon doctor`: what works here and what does not, and why."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gpumon.errors import EXIT_OK

_SIGNS = {"ok": "ok", "limited": "!!", "absent": "--"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave
    from gpumon.services.diagnosis import examine

    checks = examine()
    if args.json:
        body: dict[str, Any] = {"version": 1, "checks": [check._asdict() for check in checks]}
        print(json.dumps(body))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{_SIGNS[check.result]}  {check.name:<{width}}  {check.detail}")
    leave(EXIT_OK)
