"""Small parts of the state and the news of an aggregate, as rollup lines hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from gpumon.analysis.statistics import finite
from gpumon.model.sample import Event, Process


def facts_event(number: int, facts: Process) -> Event:
    """Who the process with this number on its device is."""
    data = facts._asdict()
    del data["pid"]
    return Event(0.0, "process", number, facts.pid, data=data)


def optional(value: object) -> float | None:
    """A number or none. Raises TypeError, ValueError."""
    return None if value is None else finite(value)


def runs(values: Sequence[float]) -> list[list[float]]:
    """Values one after another as (how often, value)."""
    return [[len(list(same)), value] for value, same in groupby(values)]


def unrolled(found: Sequence[Sequence[float]], most: int) -> list[float]:
    """The values of such runs, at most `most`. Raises TypeError, ValueError."""
    values: list[float] = []
    for count, value in found:
        if not isinstance(count, int) or not 0 < count <= most - len(values):
            raise ValueError("too many values")
        values += [finite(value)] * count
    return values
