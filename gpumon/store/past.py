"""What the store keeps of a frame: series, and the courses of processes."""

from __future__ import annotations

from array import array
from typing import Collection, Iterable, Iterator, Mapping, NamedTuple

from gpumon.frames.device import DeviceFrame
from gpumon.frames.frame import Frame
from gpumon.model.fields import COURSES, SERIES
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Key
from gpumon.store.row import EXTREMES, PEAKS

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


def parts_of(frame: Frame, devices: Mapping[int, int]) -> Iterator[Part]:
    """All of a frame. `devices`: the key of each, by its place in the frame."""
    for place, device in enumerate(frame.devices):
        if place in devices:
            yield from _of_device(frame, device, devices[place])
    for (entity, key, field), rollup in frame.rollups.items():
        if field in SERIES.get(entity, ()) or (field in COURSES.get(entity, ())):
            yield _part(frame, entity, key, field, rollup)


def _of_device(frame: Frame, device: DeviceFrame, key: int) -> Iterator[Part]:
    for field in [name for name in device.rollups if name in SERIES["device"] or name in PEAKS]:
        inner = [device.rollups[n] for n in EXTREMES.get(field, ()) if n in device.rollups]
        yield _part(frame, "device", key, field, _widened(device.rollups[field], inner))
    for process in device.processes:
        for entity, field, rollup in process.rollups():
            if field in COURSES[entity] and len(rollup):
                yield _part(frame, entity, (key, process.facts.pid), field, rollup)


def _part(frame: Frame, entity: str, key: Key, field: str, rollup: Rollup) -> Part:
    first_time = max(rollup.first * frame.step_s, frame.samples.first)
    if _MINUTE_S % frame.step_s:  # steps that no series has
        rollup = rollup.expanded(round(frame.step_s / STEP_S))
    return Part(entity, key, field, rollup, first_time)


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


def only(parts: Iterable[Part], pids: Collection[int]) -> Iterator[Part]:
    """Without those of processes that are not among these."""
    for part in parts:
        pid = part.key[1] if isinstance(part.key, tuple) else part.key
        if part.entity not in COURSES or pid in pids:
            yield part


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
