"""One sample of this node, rates included, as fast as it can be had."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

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


class Taken(NamedTuple):
    """A sample, and the seconds that its rates cover."""

    header: Header
    sample: Sample
    window_s: float


def take(meanwhile: Callable[[], object] = bool) -> Taken:
    """Two ticks a moment apart; the second adds the rates, and what came late. `meanwhile`: what
    else has to be done, as the counters move.

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
    read_at = time.monotonic()
    meanwhile()
    gpm = any(device.facts.get("gpm") == 1 for device in agent.devices.devices)
    # GPM refuses a shorter window, and with many devices the last is read at the tick's end
    passed_s = time.monotonic() - (read_at if gpm else first.mono)
    time.sleep(max(0.0, (_GPM_WINDOW_S if gpm else _WINDOW_S) - passed_s))
    second = agent.sample()
    window_s = second.mono - first.mono
    rows = merged(first.rows, second.rows)
    events = [*first.events, *second.events]
    if rows.get("host", {}).get("", {}).get("cpu_percent") == MEASURING:
        time.sleep(_BUSY_WINDOW_S)
        first, second = second, agent.sample()
        if _cores(rows) == MEASURING:
            window_s = second.mono - first.mono
        rows = merged(rows, second.rows)
        events += second.events
    sample = second._replace(rows=rows, events=events)
    return Taken(agent.header(), sample, window_s)


def _cores(rows: Rows) -> Reading:
    return rows.get("job", {}).get("", {}).get("cpu_cores_used", NOT_SAMPLED)


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
