"""A process on a device, and its framework's pool of device memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Optional

from gpumon.frames.counting import finite, greatest, of_field, optional
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Process
from gpumon.model.untrusted import time_of

Row = Mapping[str, Reading]
#: epoch s, and what was read then
Rows = Sequence[tuple[float, Row]]

#: for so long after it came is a process's memory kept in full resolution
RISE_S = 600.0
MAX_RISE = 6000  # readings; the shortest interval is 0.1 s
#: of a pool, of which only the most is kept: a program may reset its own peaks
_MOST = (
    "used_bytes", "reserved_bytes", "peak_bytes", "reserved_peak_bytes", "limit_bytes", "retries",
    "ooms",
)  # fmt: skip
_USAGE, _POOL = ("mem_bytes", "sm_percent"), ("used_bytes", "reserved_bytes")


class PoolFrame:
    """One pool, as a probe reports it."""

    def __init__(self) -> None:
        self.rollups = {field: Rollup() for field in _POOL}
        self.most: dict[str, float] = {}
        self.last = 0.0  # epoch s of the newest reading

    def add(self, index: int, rows: Rows) -> None:
        """Its rows of one bucket, in order of time."""
        self.last = max(self.last, rows[-1][0])
        for field in _MOST:
            known = [v for _, row in rows if (v := number(row.get(field))) is not None]
            if known:
                self._raise(field, max(known))
                if field in self.rollups:
                    self.rollups[field].put(index, known)

    def _raise(self, field: str, value: float) -> None:
        self.most[field] = float(max(value, self.most.get(field, 0.0)))

    def extend(self, later: PoolFrame) -> None:
        for field, rollup in later.rollups.items():
            self.rollups[field].extend(rollup)
        for field, value in later.most.items():
            self._raise(field, value)
        self.last = max(self.last, later.last)

    def told(self) -> list[Any]:
        return [self.last, self.most]

    def take(self, told: Sequence[Any]) -> None:
        """Raises what Python does on what `told` never gives."""
        last, most = told
        self.last = time_of(last)
        if not most.keys() <= set(_MOST):
            raise ValueError("no such figure of a pool")
        self.most = {field: of_field(value, "pool", field) for field, value in most.items()}


class ProcessFrame:
    """One process on one device."""

    def __init__(self, facts: Process, first: float, *, appeared: bool) -> None:
        self.facts = facts
        self.first = self.last = first  # epoch s
        self.came = first  # `first` as the newest of the joined frames has it
        self.appeared = appeared  # it came while its device was watched
        self.ended = False
        self.others_bytes: Optional[float] = None  # in use beside it when it came
        self.mem_bytes, self.sm_percent = Rollup(), Rollup()
        self.pool: Optional[PoolFrame] = None  # where a probe tells of it
        self.rise = array("d"), array("d")  # of its first minutes: epoch s, bytes

    def add(self, index: int, rows: Rows) -> None:
        """Its rows of one bucket, in order of time."""
        self.last = max(self.last, rows[-1][0])
        held = [(time, v) for time, row in rows if (v := number(row.get("mem_bytes"))) is not None]
        if held:
            self.mem_bytes.put(index, [value for _, value in held])
            if held[0][0] <= self.first + RISE_S:
                self._add_rise(held)
        sm = [v for _, row in rows if (v := number(row.get("sm_percent"))) is not None]
        if sm:
            self.sm_percent.put(index, sm)

    def _add_rise(self, points: Iterable[tuple[float, float]]) -> None:
        times, values = self.rise
        for time, value in points:
            if time <= self.first + RISE_S and len(times) < MAX_RISE:
                times.append(time)
                values.append(value)

    def add_pool(self, index: int, rows: Rows) -> None:
        self.pool = self.pool or PoolFrame()
        self.pool.add(index, rows)

    def rollups(self) -> Iterable[tuple[str, str, Rollup]]:
        """(entity, field, rollup) of those that it has."""
        yield "usage", "mem_bytes", self.mem_bytes
        yield "usage", "sm_percent", self.sm_percent
        if self.pool is not None:
            for field, rollup in self.pool.rollups.items():
                yield "pool", field, rollup

    def put(self, entity: str, field: str, rollup: Rollup) -> None:
        """One of them, as a file has it. Raises KeyError where there can be no such rollup."""
        if entity == "usage" and field in _USAGE:
            setattr(self, field, rollup)
        elif entity == "pool" and field in _POOL:
            self.pool = self.pool or PoolFrame()
            self.pool.rollups[field] = rollup
        else:
            raise KeyError(field)

    def is_same(self, later: ProcessFrame) -> bool:
        """Whether one of the next frame with the same PID is this one."""
        if self.ended:  # of which something came afterwards
            return later.ended and later.came == self.came
        return len({self.facts.start, later.facts.start} - {0.0}) <= 1

    def extend(self, later: ProcessFrame) -> None:
        self.facts, self.ended, self.came = later.facts, later.ended, later.came
        self.last = max(self.last, later.last)
        self.mem_bytes.extend(later.mem_bytes)
        self.sm_percent.extend(later.sm_percent)
        self._add_rise(zip(*later.rise))
        if later.pool is not None:
            self.pool = self.pool or PoolFrame()
            self.pool.extend(later.pool)

    def copy(self) -> ProcessFrame:
        """With rollups of its own."""
        found = self.successor()
        found.extend(self)
        return found

    def successor(self) -> ProcessFrame:
        """The same without what was measured, in the frame behind this one."""
        found = ProcessFrame(self.facts, self.first, appeared=self.appeared)
        found.last, found.others_bytes, found.ended = self.last, self.others_bytes, self.ended
        return found

    def told(self) -> list[Any]:
        """As a file holds it, without facts and rollups. Of `rise` times are ms since the one
        before, which is what the wire keeps of them, and both are runs.
        """
        times = [round(1000 * time) for time in self.rise[0]]
        steps = [after - before for before, after in zip([0, *times], times)]
        return [
            self.first, self.last, self.appeared, self.ended, self.others_bytes,
            [_runs(steps), _runs(self.rise[1])] if times else None,
            None if self.pool is None else self.pool.told(),
        ]  # fmt: skip

    @classmethod
    def of(cls, facts: Process, told: Sequence[Any]) -> ProcessFrame:
        """Raises what Python does on what `told` never gives."""
        first, last, appeared, ended, others, rise, pool = told
        found = cls(facts, time_of(first), appeared=appeared is True)
        found.last, found.ended = time_of(last), ended is True
        found.others_bytes = optional(others, "device", "mem_used_bytes")
        if rise is not None:
            steps, values = (_unrolled(each) for each in rise)
            times = [time_of(ms / 1000) for ms in accumulate(steps)]
            if len(times) != len(values):
                raise ValueError("times that differ from the values")
            of_field(min(values), "usage", "mem_bytes")
            of_field(max(values), "usage", "mem_bytes")
            found._add_rise(zip(times, values))
        if pool is not None:
            found.pool = PoolFrame()
            found.pool.take(pool)
        return found


def beside(row: Row, usage: Mapping[int, Row]) -> Optional[float]:
    """A device's memory in use beside that of the processes."""
    used = number(row.get("mem_used_bytes"))
    held = [number(line.get("mem_bytes")) for line in usage.values()]
    known = [value for value in held if value is not None]
    if used is None or len(known) < len(held):
        return None
    return max(0.0, used - sum(known))


def pool_peak(pool: PoolFrame, *fields: str) -> Optional[float]:
    """The most of any of these."""
    return greatest(*(pool.most.get(field) for field in fields))


def _runs(values: Iterable[float]) -> list[list[float]]:
    """Values one after another as (how often, value)."""
    return [[len(list(same)), value] for value, same in groupby(values)]


def _unrolled(found: Iterable[Sequence[float]]) -> list[float]:
    """The values of such runs. Raises TypeError, ValueError."""
    values: list[float] = []
    for count, value in found:
        if not isinstance(count, int) or not 0 < count <= MAX_RISE - len(values):
            raise ValueError("too many values")
        values += [finite(value)] * count
    return values
