"""A program that the probe reports on: its steps, waits, and where its main thread stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from gpumon.frames.counting import Growth, greatest, of_field, optional
from gpumon.frames.places import Looks, Place, place_of
from gpumon.frames.process import Rows
from gpumon.model.fields import KEPT
from gpumon.model.reading import number
from gpumon.model.rollup import Rollup
from gpumon.model.untrusted import time_of

#: of one node; beside them the workers of their data loaders
MAX_PROGRAMS = 128


class ProgramFrame:
    """One process. The looks of its data loader's workers count with it."""

    def __init__(self, first: float) -> None:
        self.first = self.last = first  # epoch s
        self.rank: Optional[float] = None
        self.steps = Growth()
        self.stepped: Optional[float] = None  # when it was last seen to have made a step
        self.rollups = {name: Rollup() for name in KEPT["program"]}
        self.place, self.since = Place(""), first
        self.looks, self.worker_looks = Looks(), Looks()
        self.workers = 0

    def add(self, index: int, rows: Rows) -> None:
        """Its rows of one bucket, in order of time."""
        for name, rollup in self.rollups.items():
            known = [v for _, row in rows if (v := number(row.get(name))) is not None]
            if known:
                rollup.put(index, known)
        for time, row in rows:
            rank = number(row.get("rank"))
            self.rank = rank if rank is not None else self.rank
            if (steps := number(row.get("steps"))) is not None:
                before = self.steps.newest
                if steps > (before or 0) and steps != before:
                    self.stepped = time
                self.steps.add(float(steps), time)
            place = _place(row)
            if place.text:
                if place != self.place:
                    self.place, self.since = place, time
                self.looks.add(index, place)
        self.last = rows[-1][0]

    def add_worker(self, index: int, rows: Rows, number_: float) -> None:
        """Of a worker of its data loader."""
        for _, row in rows:
            if (place := _place(row)).text:
                self.worker_looks.add(index, place)
        self.workers = max(self.workers, int(number_) + 1)

    def successor(self) -> ProgramFrame:
        """What is known at the begin of the next frame."""
        found = ProgramFrame(self.first)
        found.last, found.rank, found.stepped = self.last, self.rank, self.stepped
        found.steps = self.steps.successor()
        found.place, found.since, found.workers = self.place, self.since, self.workers
        return found

    def extend(self, later: ProgramFrame) -> None:
        """The next frame's."""
        for name, rollup in later.rollups.items():
            self.rollups[name].extend(rollup)
        self.last = max(self.last, later.last)
        self.rank = later.rank if later.rank is not None else self.rank
        self.steps.extend(later.steps)
        self.stepped = greatest(self.stepped, later.stepped)
        if later.place.text and later.place != self.place:
            self.place, self.since = later.place, later.since
        self.looks.extend(later.looks)
        self.worker_looks.extend(later.worker_looks)
        self.workers = max(self.workers, later.workers)

    def coarsen(self, ratio: int) -> None:
        """The grid's buckets are so many times as long from now on; its rollups apart."""
        self.looks.coarsen(ratio)
        self.worker_looks.coarsen(ratio)

    def told(self) -> list[Any]:
        """As a file holds it, without rollups."""
        return [
            self.first, self.last, self.rank, self.steps.told(), self.stepped, list(self.place),
            self.since, self.workers, self.looks.told(), self.worker_looks.told(),
        ]  # fmt: skip

    @classmethod
    def of(cls, told: Sequence[Any], first: int, last: int) -> ProgramFrame:
        """Of a frame of these buckets. Raises what Python does on what `told` never gives."""
        begun, ended, rank, steps, stepped, place, since, workers, *looks = told
        found = cls(time_of(begun))
        found.last, found.since = time_of(ended), time_of(since)
        found.rank = optional(rank, "program", "rank")
        found.stepped = None if stepped is None else time_of(stepped)
        found.steps.take(steps, "program", "steps")
        found.place = place_of(*place)
        found.workers = int(of_field(workers, "program", "worker"))
        found.looks, found.worker_looks = (Looks.of(each, first, last) for each in looks)
        return found


def number_among_workers(rows: Rows) -> Optional[float]:
    """Of a process among the workers of a data loader; None: it is none."""
    known = (number(row.get("worker")) for _, row in rows)
    return next((each for each in known if each is not None), None)


def _place(row: Mapping[str, Any]) -> Place:
    return place_of(row.get("place"), row.get("waits_for"))
