"""`gpumon once`: one sample of this node as text or JSON."""

from __future__ import annotations

import argparse
import json
import time

from gpumon.errors import EXIT_OK
from gpumon.model.reading import MEASURING, NOT_SAMPLED, Missing, Reading
from gpumon.model.sample import Header, Rows, Sample

#: between two readings of the same counters: rates of CPU, and of GPM where 0.1 s are needed
_WINDOW_S = 0.05
_GPM_WINDOW_S = 0.11
#: on a node so busy that reading the counters took a good part of that: once more, after this
_BUSY_WINDOW_S = 0.5
#: how long a device may take to answer; the agent, which asks again, waits much less
_ANSWER_S = 2.0
_MAY_COME = ("measuring", "not-sampled", "timeout", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs; docs/json.md")


def run(args: argparse.Namespace) -> int:
    return show(as_json=args.json)


def show(*, as_json: bool) -> int:
    """Take a sample and print it; never waits for a device that does not answer."""
    header, sample = take()
    if as_json:
        from gpumon.export.sample_json import sample_json

        print(json.dumps(sample_json(header, sample)))
    else:
        from gpumon.export.sample_text import sample_text

        print(sample_text(header, sample))
        if not header.devices:
            print("'gpumon demo' shows a recorded job with GPUs, in a terminal.")
    from gpumon.collect.agent import leave

    leave(EXIT_OK)


def take() -> tuple[Header, Sample]:
    """Two ticks a moment apart; the second adds the rates, and what came late.

    What the first has measured stands: the driver's own samples of utilization come a few times a
    second, so that in the second tick "nothing new" would read as "idle".
    """
    from gpumon.collect.agent import Agent
    from gpumon.collect.base import Schedule

    Schedule.everything = True
    agent = Agent(interval_s=1.0)
    agent.devices.deadline_s = _ANSWER_S
    agent.start()
    first = agent.sample()
    gpm = any(device.facts.get("gpm") == 1 for device in agent.devices.devices)
    # GPM refuses a shorter window, and with many devices the last is read at the tick's end
    passed_s = 0.0 if gpm else time.monotonic() - first.mono
    time.sleep(max(0.0, (_GPM_WINDOW_S if gpm else _WINDOW_S) - passed_s))
    second = agent.sample()
    rows = merged(first.rows, second.rows)
    events = [*first.events, *second.events]
    if rows.get("host", {}).get("", {}).get("cpu_percent") == MEASURING:
        time.sleep(_BUSY_WINDOW_S)
        second = agent.sample()
        rows = merged(rows, second.rows)
        events += second.events
    return agent.header(), second._replace(rows=rows, events=events)


def merged(first: Rows, second: Rows) -> Rows:
    """The readings of the first, in place, and the second's where those were not there yet."""
    for entity, table in second.items():
        known = first.setdefault(entity, {})
        for key, readings in table.items():
            row = known.setdefault(key, {})
            for name, reading in readings.items():
                if entity in ("agent", "collector") or _may_come(row.get(name, NOT_SAMPLED)):
                    row[name] = reading
    return first


def _may_come(reading: Reading) -> bool:
    """Whether a second look may find what is missing here."""
    return isinstance(reading, Missing) and reading.reason in _MAY_COME
