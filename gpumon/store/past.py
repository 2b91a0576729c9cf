"""What the store keeps of a frame: series, and the courses of processes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpumon.frames.frame import Frame
from gpumon.model.fields import SERIES
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Key
from gpumon.store.node import EXTREMES

#: a process whose rollups end so long before the frame does is not there any more
_RECENT_S = 60.0
_MINUTE_S = 60


class Part(NamedTuple):
    """One reading; its first sample was at `first_time`, epoch s."""

    entity: str
    key: Key
    field: str
    rollup: Rollup
    first_time: float


def parts_of(frame: Frame, keys: Mapping[int, int]) -> Iterator[Part]:
    """All of a frame. `keys`: of devices, by their places in the frame; others are left out."""
    key: Any
    for (entity, key, field), rollup in frame.named():
        if field not in SERIES.get(entity, ()) or not len(rollup):
            continue
        first_time = max(rollup.first * frame.step_s, frame.samples.first)
        if isinstance(key, tuple):
            place, number = key
            key = keys.get(place), frame.devices[place].processes[number].facts.pid
        elif entity == "device":
            own = frame.devices[key].rollups
            inner = [own[name] for name in EXTREMES.get(field, ()) if name in own]
            key, rollup = keys.get(key), _widened(rollup, inner)
        if _MINUTE_S % frame.step_s:  # steps that no series has
            rollup = rollup.expanded(round(frame.step_s / STEP_S))
        if None not in (key, key[0] if isinstance(key, tuple) else key):
            yield Part(entity, key, field, rollup, first_time)


def is_recent(frame: Frame, rollup: Rollup) -> bool:
    """Whether it goes on to the end of the frame."""
    end = frame.extent[1] if frame.extent is not None else 0
    return (end + 1) * frame.step_s - (rollup.last + 1) * rollup.step_s <= _RECENT_S


def processes_of(frame: Frame) -> Mapping[int, float]:
    """The start of each process that it knows, epoch s, by PID; of several the latest."""
    found = {pid: facts.start for pid, facts in frame.facts.items()}
    for device in frame.devices:
        found.update((each.facts.pid, each.facts.start) for each in device.processes)
    return found


def _widened(rollup: Rollup, inner: Iterable[Rollup]) -> Rollup:
    """The rollup, as low and high as `inner` knows from within its ticks."""
    low, high = rollup.low, rollup.high
    for each in inner:  # its NaN is neither less nor more
        _, least, most = each.padded(rollup.first, len(low))
        low = array("f", [b if b < a else a for a, b in zip(low, least)])
        high = array("f", [b if b > a else a for a, b in zip(high, most)])
    found = Rollup(rollup.step_s)
    found.join(rollup.first, rollup.count[:], rollup.mean, low, high)
    return found
