"""The course of a process on a GPU: its series, and what was before a far seek."""

from __future__ import annotations

from math import inf
from typing import Collection, Iterator, Mapping, Tuple

from gpumon.model.backfill import BackfillRows
from gpumon.model.retention import COURSE_TIERS
from gpumon.model.sample import Key
from gpumon.model.series import Series
from gpumon.store.aging import period_s
from gpumon.store.row import Table

#: who was not read for so long after a backfill has ended; its number may come back as another's
_WAITS_S = 60.0


class Courses:
    """Of one node. What a backfill has of a process is kept until that is read again: it is not
    known before that it still runs.
    """

    def __init__(self) -> None:
        self._before: BackfillRows = {}
        self._until = inf

    def take(self, rows: BackfillRows) -> None:
        """What was before the next sample."""
        for entity, courses in rows.items():
            self._before.setdefault(entity, {}).update(courses)
        self._until = inf

    def new(self, entity: str, key: Key, field: str, interval_s: float) -> Series:
        """The series of a process that is read from now on."""
        series = Series(period_s(entity, field, interval_s), COURSE_TIERS)
        before = self._before.get(entity, {}).get(key, {}).pop(field, None)
        if before is not None:
            series.begin(before)
        return series

    def purge(self, time: float) -> None:
        """Forget who was not read again."""
        self._until = min(self._until, time + _WAITS_S)
        if time >= self._until:
            self._before.clear()


def keys_in_past(
    rows: Table, same: Collection[int], devices: Mapping[int, int]
) -> Iterator[Tuple[Key, Key]]:
    """Of each row with a course of a process in `same`, its key, and the one it had before.

    devices: keys of the devices, and those that they had.
    """
    for key, row in rows.items():
        its = (devices.get(key[0], -1), key[1]) if isinstance(key, tuple) else key
        pid = its[1] if isinstance(its, tuple) else its
        if row.series and pid in same:
            yield key, its
