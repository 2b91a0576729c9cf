"""What is gathered of the programs that the probe reports on: steps, waits and places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.news import optional
from gpumon.analysis.places import Looks, Place, place_of
from gpumon.analysis.rundata import ProgramData
from gpumon.analysis.statistics import Growth, finite
from gpumon.model.batch import ColumnOf, Cut, KeyRows
from gpumon.model.reading import number
from gpumon.model.rolled import SeriesName
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Process, Sample

Facts = Mapping[int, Process]

TRACKED = ("step_us", "step_p95_us", "data_wait_percent")
_NUMBERS = (*TRACKED, "steps", "rank", "worker")
#: of one node; beside them the workers of their data loaders
MAX_PROGRAMS = 128


class _Table(NamedTuple):
    """Readings of one process in order of time; None where one is missing."""

    times: Sequence[float]
    cuts: Sequence[Cut]
    numbers: Mapping[str, ColumnOf]
    places: Sequence[Place]

    @property
    def worker(self) -> float | None:
        """Its number among the workers of a data loader."""
        return next((each for each in self.numbers["worker"] if each is not None), None)


class ProgramAggregate:
    """One process. The looks of its data loader's workers count with it."""

    def __init__(self, first: float) -> None:
        self.first = self.last = first
        self.rank: float | None = None
        self.steps = Growth()
        self.stepped: float | None = None  # when it was last seen to have made a step
        self.bins = {name: Rollup() for name in TRACKED}
        self.place, self.since = Place(""), first
        self.looks, self.worker_looks = Looks(), Looks()
        self.workers = 0

    def take(self, table: _Table) -> None:
        for name, bins in self.bins.items():
            bins.put_all(table.cuts, table.numbers[name])
        self.rank = next((each for each in table.numbers["rank"] if each is not None), self.rank)
        self._take_steps(table)
        for time, place in zip(table.times, table.places):
            if place.text and place != self.place:
                self.place, self.since = place, time
        _count(self.looks, table)
        self.last = table.times[-1]

    def _take_steps(self, table: _Table) -> None:
        for time, steps in zip(table.times, table.numbers["steps"]):
            if steps is not None:
                before = self.steps.newest
                if steps > (before or 0) and steps != before:
                    self.stepped = time
                self.steps.add(float(steps), time)

    def take_worker(self, table: _Table, number_: float) -> None:
        """Of a worker of its data loader."""
        _count(self.worker_looks, table)
        self.workers = max(self.workers, int(number_) + 1)

    def state(self) -> list[Any]:
        return [
            self.first, self.last, self.rank, self.steps.state(), self.stepped,
            list(self.place), self.since, self.workers,
        ]  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """Go on from there. Raises what Python does on what `state` never gives."""
        first, last, rank, steps, stepped, place, since, workers = state
        self.first, self.last, self.since = map(finite, (first, last, since))
        self.rank, self.stepped = optional(rank), optional(stepped)
        self.steps.restore(steps)
        self.place = place_of(*place)
        self.workers = int(finite(workers))

    def evidence(self, pid: int, facts: Process | None, window: Window) -> ProgramData:
        return ProgramData(
            facts or Process(pid, "", "", ""),
            self.first,
            self.last,
            None if self.rank is None else int(self.rank),
            self.steps.result(),
            self.steps.newest,
            self.stepped,
            self.place,
            self.since,
            {name: window.of(bins) for name, bins in self.bins.items()},
            self.looks if window.shared else self.looks.copy(),
            self.worker_looks if window.shared else self.worker_looks.copy(),
            self.workers,
            window.first,
        )


def _count(looks: Looks, table: _Table) -> None:
    for index, first, last in table.cuts:
        for place in table.places[first:last]:
            if place.text:
                looks.add(index, place)


class ProgramsAggregate:
    """Those of one node, by PID."""

    def __init__(self) -> None:
        self._of: dict[int, ProgramAggregate] = {}
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, pid: int) -> bool:
        return pid in self._of

    def take(self, index: int, samples: Sequence[Sample], facts: Facts) -> None:
        """The samples of one bin; `facts` of all processes of the node."""
        of_pid: dict[int, list[tuple[float, Mapping[str, Any]]]] = {}
        for sample in samples:
            for pid, row in sample.rows.get("program", {}).items():
                if isinstance(pid, int):
                    of_pid.setdefault(pid, []).append((sample.time, row))
        for pid, rows in of_pid.items():
            table = _Table(
                [time for time, _ in rows],
                [(index, 0, len(rows))],
                {name: [number(row.get(name)) for _, row in rows] for name in _NUMBERS},
                [place_of(row.get("place"), row.get("waits_for")) for _, row in rows],
            )
            self._take(pid, table, facts)

    def take_columns(self, pid: int, cuts: list[Cut], series: KeyRows, facts: Facts) -> None:
        """The same of many bins, of one process."""
        nothing: ColumnOf = [None] * len(series.times)
        numbers = {name: series.column(name) or nothing for name in _NUMBERS}
        texts = zip(series.texts("place") or nothing, series.texts("waits_for") or nothing)
        table = _Table(series.times, cuts, numbers, [place_of(*each) for each in texts])
        self._take(pid, table, facts)

    def _take(self, pid: int, table: _Table, facts: Facts) -> None:
        worker = table.worker
        if worker is None:
            program = self._kept(pid, table.times[0])
            if program is not None:
                program.take(table)
        elif pid in facts and facts[pid].ppid in self._of:
            self._of[facts[pid].ppid].take_worker(table, worker)

    def _kept(self, pid: int, first: float) -> ProgramAggregate | None:
        program = self._of.get(pid)
        if program is None and len(self._of) < MAX_PROGRAMS:
            program = self._of[pid] = ProgramAggregate(first)
        if program is None:
            self.left_out += 1
        return program

    def coarsen(self, ratio: int) -> None:
        for program in self._of.values():
            for bins in program.bins.values():
                bins.coarsen(ratio)
            program.looks.coarsen(ratio)
            program.worker_looks.coarsen(ratio)

    # -- rollup lines

    def series(self) -> Iterator[tuple[SeriesName, Rollup]]:
        """All series, by the names that `series_of` knows."""
        for pid, program in self._of.items():
            for name, bins in program.bins.items():
                yield ("program", name, pid), bins

    def series_of(self, name: str, pid: int) -> Rollup:
        """Raises ValueError, LookupError where there can be no such series."""
        return self._known(pid).bins[name]

    def _known(self, pid: object) -> ProgramAggregate:
        program = self._kept(pid, 0.0) if isinstance(pid, int) else None
        if program is None:
            raise ValueError("too many programs")
        return program

    def news(self) -> list[Any]:
        """The looks since the last frame, which are then forgotten."""
        return [
            [pid, each.looks.drain(), each.worker_looks.drain()]
            for pid, each in self._of.items()
            if each.looks or each.worker_looks
        ]

    def take_news(self, news: Sequence[Any], ratio: int, first: int, last: int) -> None:
        """Of a grid that is so many times as fine. Raises what Python does on other news."""
        for pid, *both in news:
            program = self._known(pid)
            for looks, its in zip((program.looks, program.worker_looks), both):
                looks.take(its, ratio, first, last)

    def state(self) -> list[Any]:
        return [[pid, each.state()] for pid, each in self._of.items()]

    def restore(self, state: Sequence[Any]) -> None:
        """Go on from there. Raises what Python does on what `state` never gives."""
        for pid, its in state:
            self._known(pid).restore(its)
        if len(state) != len(self._of):
            raise ValueError("other programs")

    # -- results

    def evidence(self, facts: Facts, window: Window) -> list[ProgramData]:
        programs = sorted(self._of.items())
        return [each.evidence(pid, facts.get(pid), window) for pid, each in programs]
