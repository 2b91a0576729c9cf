"""`gpumon once`: one sample of this node as text or JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time

from gpumon.errors import EXIT_OK
from gpumon.model.sample import Header, Sample

#: between two readings of the same counters: rates of CPU, and of GPM where 0.1 s are needed
_WINDOW_S = 0.05
_GPM_WINDOW_S = 0.11


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs; docs/json.md")


def run(args: argparse.Namespace) -> int:
    return show(as_json=args.json)


def show(*, as_json: bool) -> int:
    """Take a sample and print it; never waits for a device that does not answer."""
    header, sample = take()
    if as_json:
        from gpumon.export.sample_json import sample_json

        print(json.dumps(sample_json(header, sample), ensure_ascii=False))
    else:
        from gpumon.export.sample_text import sample_text

        text = sample_text(header, sample)
        encoding = sys.stdout.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding))
    from gpumon.collect.agent import leave

    leave(EXIT_OK)
    return EXIT_OK


def take() -> tuple[Header, Sample]:
    """Two ticks a moment apart, so that rates are known; the second's readings over the first's."""
    from gpumon.collect.agent import Agent
    from gpumon.collect.base import Schedule

    Schedule.everything = True
    agent = Agent(interval_s=1.0)
    agent.start()
    first = agent.sample()
    gpm = any(device.facts.get("gpm") == 1 for device in agent.devices.devices)
    time.sleep(_GPM_WINDOW_S if gpm else _WINDOW_S)
    second = agent.sample()
    header = agent.header()
    rows = first.rows
    for entity, table in second.rows.items():
        known = rows.setdefault(entity, {})
        for key, readings in table.items():
            known.setdefault(key, {}).update(readings)
    return header, second._replace(rows=rows, events=[*first.events, *second.events])
