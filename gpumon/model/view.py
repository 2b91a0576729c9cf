"""What the store answers: readings with their age, devices, processes, and aggregates over them."""

from __future__ import annotations

from typing import Any, Dict, Iterable, NamedTuple, Optional

from gpumon.model.reading import Reading, number
from gpumon.model.sample import Device, Event, Process, State


class Latest(NamedTuple):
    """A reading and how old it is. `fresh`: young enough to stand for now."""

    reading: Reading
    time: float  # epoch s of the sample it came in, by the node's clock; 0 when never sampled
    age_s: float
    fresh: bool


class Aggregate(NamedTuple):
    """One number over several readings: over `n` that were there and fresh, of `total`."""

    value: Optional[float]
    n: int
    total: int


class Status(NamedTuple):
    """Of a stream: `connecting`, `live`, `stale`, `lost` or `ended`, since when, and why."""

    state: str
    since: float  # epoch s
    detail: str = ""
    source: str = ""  # local, ssh, …


class DeviceView(NamedTuple):
    """A device as the store knows it. Its key and its place never change."""

    key: int
    device: Device
    state: Optional[State]  # None: well
    gone: bool  # the node's latest header no longer names it
    xid: Optional[Event]  # the latest
    generation: int  # grows with every change


class ProcessView(NamedTuple):
    """A process: what does not change, its readings, and its usage by device key."""

    facts: Process
    ended: Optional[float]  # epoch s
    readings: Dict[str, Latest]
    usage: Dict[int, Dict[str, Latest]]


def mean_of(readings: Iterable[Latest]) -> Aggregate:
    """The mean of those that are fresh numbers, and over how many of how many it is."""
    result = sum_of(readings)
    return result._replace(value=None if result.value is None else result.value / result.n)


def sum_of(readings: Iterable[Latest]) -> Aggregate:
    """The sum of those that are fresh numbers; None when there is none."""
    latest = list(readings)
    numbers = [number(each.reading) for each in latest if each.fresh]
    known = [value for value in numbers if value is not None]
    return Aggregate(sum(known) if known else None, len(known), len(latest))


def process_of(event: Event) -> Process:
    """The facts that a `process` event carries; what is missing or of a wrong type is left out."""
    facts: Dict[str, Any] = {"user": "", "command": "", "name": ""}
    example = Process(0, "", "", "")
    for field in Process._fields[1:]:
        value = event.data.get(field)
        if isinstance(value, type(getattr(example, field))):
            facts[field] = value
        elif field == "start" and isinstance(value, int):
            facts[field] = float(value)
    return Process(event.pid or 0, **facts)
