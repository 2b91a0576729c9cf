"""The course of a process on a GPU: its series, and what was before a far seek."""

from __future__ import annotations

from math import inf
from typing import Dict, Tuple

from gpumon.model.retention import COURSE_TIERS
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Key
from gpumon.model.series import Series
from gpumon.store.aging import period_s

#: who was not read for so long after what was loaded; its number may come back as another's
_WAITS_S = 60.0


class Courses:
    """Of one node. What was loaded of a process is kept until that is read again: it is not known
    before that it still runs.
    """

    def __init__(self) -> None:
        self._loaded: Dict[Tuple[str, Key, str], Series] = {}
        self._until = inf

    def load(
        self, name: Tuple[str, Key, str], rollup: Rollup, first_time: float, interval_s: float
    ) -> None:
        """What was before the next sample; `name`: entity, key and field."""
        series = self.new(*name, interval_s)
        series.load(rollup, first_time)
        self._loaded[name] = series
        self._until = inf

    def new(self, entity: str, key: Key, field: str, interval_s: float) -> Series:
        """The series of a process that is read from now on."""
        loaded = self._loaded.pop((entity, key, field), None)
        return loaded or Series(period_s(entity, field, interval_s), COURSE_TIERS)

    def purge(self, time: float) -> None:
        """Forget who was not read again."""
        self._until = min(self._until, time + _WAITS_S)
        if time >= self._until:
            self._loaded.clear()
