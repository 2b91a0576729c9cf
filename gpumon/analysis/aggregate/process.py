"""What is gathered of one process on one device."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.news import runs, unrolled
from gpumon.analysis.aggregate.pool import SERIES, PoolAggregate
from gpumon.analysis.rundata import ProcessData
from gpumon.model.batch import ColumnOf, Cut, KeyRows
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Process

Row = Mapping[str, Reading]

#: for so long after it came is a process's memory kept in full resolution
RISE_S = 600.0
MAX_RISE = 6000  # readings; the shortest interval is 0.1 s
_NUMBERS = frozenset((int, float))


def columns_of(rows: Iterable[Row]) -> dict[str, list[float]]:
    """The numbers of each field that has any, in the order of the rows."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if type(value) in _NUMBERS:
                if name in columns:
                    columns[name].append(value)
                else:
                    columns[name] = [value]
    return columns


def beside(row: Row, usage: Mapping[int, Row]) -> float | None:
    """A device's memory in use beside that of the processes."""
    used = number(row.get("mem_used_bytes"))
    held = [number(line.get("mem_bytes")) for line in usage.values()]
    known = [value for value in held if value is not None]
    if used is None or len(known) < len(held):
        return None
    return max(0.0, used - sum(known))


class ProcessAggregate:
    """One process on one device."""

    def __init__(self, number: int, facts: Process, first: float, appeared: bool) -> None:
        self.number = number  # of those on its device, in the order in which they came
        self.facts = facts
        self.said: Process | None = None  # as the last frame's rollups tell who it is
        self.first = self.last = first
        self.appeared = appeared
        self.ended = False
        self.others_bytes: float | None = None
        self.mem, self.sm = Rollup(), Rollup()
        self._pool: PoolAggregate | None = None  # where a probe tells of it
        self._rise = array("d"), array("d")  # epoch s, bytes

    def take(self, index: int, rows: list[tuple[float, Row]]) -> None:
        """Its rows of one bin, in order of time."""
        self.last = max(self.last, rows[-1][0])
        held = [(time, v) for time, row in rows if (v := number(row.get("mem_bytes"))) is not None]
        if held:
            self.mem.put(index, [value for _, value in held])
            if held[0][0] <= self.first + RISE_S:
                self._take_rise(held)
        sm = [v for _, row in rows if (v := number(row.get("sm_percent"))) is not None]
        if sm:
            self.sm.put(index, sm)

    def take_columns(self, cuts: list[Cut], series: KeyRows, sm: ColumnOf) -> None:
        """The same of many bins."""
        self.last = max(self.last, series.times[-1])
        held = series.column("mem_bytes") or []
        self.mem.put_all(cuts, held)
        self.sm.put_all(cuts, sm)
        if series.times[0] <= self.first + RISE_S:
            self._take_rise(zip(series.times, held))

    def _take_rise(self, points: Iterable[tuple[float, float | None]]) -> None:
        times, values = self._rise
        for time, value in points:
            if value is not None and time <= self.first + RISE_S and len(times) < MAX_RISE:
                times.append(time)
                values.append(value)

    @property
    def pool(self) -> PoolAggregate:
        """Its framework's pool, which a probe tells of from now on."""
        self._pool = self._pool or PoolAggregate()
        return self._pool

    def drain_pool(self) -> list[Any] | None:
        """What is new of its pool."""
        return self._pool.drain() if self._pool is not None else None

    def series(self) -> Iterator[tuple[str, Rollup]]:
        """Those that it has, by kind."""
        yield from (("mem", self.mem), ("sm", self.sm))
        if self._pool is not None:
            yield from self._pool.series.items()

    def series_of(self, kind: str) -> Rollup:
        """Its series, by kind."""
        if kind in SERIES:
            return self.pool.series[kind]
        return self.mem if kind == "mem" else self.sm

    @property
    def rises(self) -> bool:
        """Whether there is any of its first minutes."""
        return len(self._rise[0]) > 0

    def drain_rise(self) -> list[Any]:
        """What `rise_on` takes, which is then forgotten: times and values, each as runs.

        Times are in ms since the one before, which is what the wire keeps of them.
        """
        times = [round(1000 * time) for time in self._rise[0]]
        steps = [b - a for a, b in zip([0, *times], times)]
        drained = [runs(steps), runs(self._rise[1])]
        self._rise = array("d"), array("d")
        return drained

    def rise_on(self, taken: list[Any]) -> None:
        """More of its first minutes. Raises TypeError, ValueError where they cannot be its own."""
        steps, values = (unrolled(each, MAX_RISE - len(self._rise[0])) for each in taken)
        times = [ms / 1000 for ms in accumulate(steps)]
        if len(times) != len(values) or any(time > self.first + RISE_S for time in times):
            raise ValueError("more than the first minutes of a process")
        self._rise[0].extend(times)
        self._rise[1].extend(values)

    def evidence(self, window: Window) -> ProcessData:
        times, values = self._rise
        tags = (self.facts.framework, *self.facts.hints.get("also", "").split())
        return ProcessData(
            self.facts,
            self.first,
            self.last,
            self.ended,
            window.of(self.mem),
            window.of(self.sm),
            (times, values) if window.shared else (times[:], values[:]),
            tuple(tag for tag in tags if tag),
            self.appeared,
            self.others_bytes,
            self._pool.evidence(window) if self._pool is not None else None,
        )
