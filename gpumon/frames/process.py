"""A process on a device, and its framework's pool of device memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Optional

from gpumon.frames.counting import greatest, of_field, optional
from gpumon.model.fields import FIELDS, KEPT
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Process
from gpumon.model.untrusted import finite_of, time_of

Row = Mapping[str, Reading]
#: epoch s, and what was read then
Rows = Sequence[tuple[float, Row]]

#: for so long after it came is a process's memory kept in full resolution
RISE_S = 600.0
MAX_RISE = 6000  # readings; the shortest interval is 0.1 s


class Rollups(dict[Any, Rollup]):
    """One is made where something is put in first."""

    def __missing__(self, name: Any) -> Rollup:
        found = self[name] = Rollup()
        return found


class ProcessFrame:
    """One process on one device."""

    def __init__(self, facts: Process, first: float, *, appeared: bool) -> None:
        self.facts = facts
        self.first = self.last = first  # epoch s
        self.came = first  # `first` as the newest of the joined frames has it
        self.appeared = appeared  # it came while its device was watched
        self.ended = False
        self.others_bytes: Optional[float] = None  # in use beside it when it came
        self.rollups = Rollups()  # by entity and field
        self.pool: dict[str, float] = {}  # the most of each figure, where a probe tells of it
        self.pool_last = first  # epoch s of its newest
        self.rise = array("d"), array("d")  # of its first minutes: epoch s, bytes

    def add(self, index: int, rows: Rows) -> None:
        """Its rows of one bucket, in order of time."""
        self.last = max(self.last, rows[-1][0])
        self._put("usage", index, rows)
        if rows[0][0] <= self.first + RISE_S:
            held = ((time, number(row.get("mem_bytes"))) for time, row in rows)
            self._add_rise((time, value) for time, value in held if value is not None)

    def add_pool(self, index: int, rows: Rows) -> None:
        self.pool_last = max(self.pool_last, rows[-1][0])
        self._put("pool", index, rows)
        for field in FIELDS["pool"]:  # the most, because a program may reset its own peaks
            known = (number(row.get(field)) for _, row in rows)
            most = greatest(self.pool.get(field), *known)
            if most is not None:
                self.pool[field] = most

    def _put(self, entity: str, index: int, rows: Rows) -> None:
        for field in KEPT[entity]:
            known = [v for _, row in rows if (v := number(row.get(field))) is not None]
            if known:
                self.rollups[entity, field].put(index, known)

    def _add_rise(self, points: Iterable[tuple[float, float]]) -> None:
        times, values = self.rise
        for time, value in points:
            if time <= self.first + RISE_S and len(times) < MAX_RISE:
                times.append(time)
                values.append(value)

    def is_same(self, later: ProcessFrame) -> bool:
        """Whether one of the next frame with the same PID is this one."""
        if self.ended:  # of which something came afterwards
            return later.ended and later.came == self.came
        return len({self.facts.start, later.facts.start} - {0.0}) <= 1

    def extend(self, later: ProcessFrame) -> None:
        self.facts, self.ended, self.came = later.facts, later.ended, later.came
        self.last = max(self.last, later.last)
        for name, rollup in later.rollups.items():
            self.rollups[name].extend(rollup)
        self._add_rise(zip(*later.rise))
        self.pool_last = max(self.pool_last, later.pool_last)
        for field, most in later.pool.items():
            self.pool[field] = max(most, self.pool.get(field, most))

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
            [self.pool_last, self.pool] if self.pool else None,
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
            last, most = pool
            found.pool_last = time_of(last)
            found.pool = {field: of_field(value, "pool", field) for field, value in most.items()}
        return found


def beside(row: Row, usage: Mapping[int, Row]) -> Optional[float]:
    """A device's memory in use beside that of the processes."""
    used = number(row.get("mem_used_bytes"))
    held = [number(line.get("mem_bytes")) for line in usage.values()]
    known = [value for value in held if value is not None]
    if used is None or len(known) < len(held):
        return None
    return max(0.0, used - sum(known))


def pool_peak(process: ProcessFrame, *fields: str) -> Optional[float]:
    """The most of any of these."""
    return greatest(*(process.pool.get(field) for field in fields))


def _runs(values: Iterable[float]) -> list[list[float]]:
    """Values one after another as (how often, value)."""
    return [[len(list(same)), value] for value, same in groupby(values)]


def _unrolled(found: Iterable[Sequence[float]]) -> list[float]:
    """The values of such runs. Raises TypeError, ValueError."""
    values: list[float] = []
    for count, value in found:
        if not isinstance(count, int) or not 0 < count <= MAX_RISE - len(values):
            raise ValueError("too many values")
        values += [finite_of(value)] * count
    return values
