"""`gpumon once`: one sample of this node as text or JSON."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from gpumon.errors import EXIT_OK

if TYPE_CHECKING:
    from gpumon.services.once import Taken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    return show(as_json=args.json)


def show(*, as_json: bool) -> int:
    """Take a sample and print it; never waits for a device that does not answer."""
    from gpumon.collect.agent import leave
    from gpumon.services.once import take

    module = "gpumon.export.sample_json" if as_json else "gpumon.export.sample_text"
    taken = take(meanwhile=lambda: import_module(module))
    print(_json(taken) if as_json else _text(taken))
    leave(EXIT_OK)


def _json(taken: Taken) -> str:
    import json

    from gpumon.export.sample_json import sample_json

    return json.dumps(sample_json(*taken))


def _text(taken: Taken) -> str:
    from gpumon.export.sample_text import sample_text

    text = sample_text(taken.header, taken.sample)
    if taken.header.devices:
        return text
    return f"{text}\nTo see a job with GPUs, run 'gpumon demo' in a terminal."
