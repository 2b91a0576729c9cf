"""One entity with one key: its readings, the time of each, peaks, and series."""

from __future__ import annotations

from itertools import compress
from math import inf
from typing import Any, Callable, Dict, FrozenSet, Optional, Tuple

from gpumon.model.reading import Missing, Reading, number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Key
from gpumon.model.series import Series

#: fields whose extremes within a tick the driver's own samples tell
EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}


#: fields of which the largest value since attached is shown, beside those that are series
PEAKS = frozenset(("busy_max_percent",))
_NUMBERS = frozenset((int, float))


class Row:
    """What is known of one entity with one key."""

    __slots__ = ("peaks", "readings", "series", "times")

    def __init__(self) -> None:
        self.readings: Dict[str, Reading] = {}
        self.times: Dict[str, float] = {}
        self.peaks: Dict[str, float] = {}  # since attached; of fields that are no series
        self.series: Dict[str, Series] = {}

    def frozen(self) -> Row:
        """The readings as they are now; the series continue, but are read up to a given end."""
        row = Row()
        row.readings, row.times, row.peaks = dict(self.readings), dict(self.times), dict(self.peaks)
        row.series = dict(self.series)
        return row

    def take(
        self,
        readings: Dict[str, Reading],
        time: float,
        kept: FrozenSet[str],
        new: Callable[[str], Series],
    ) -> None:
        """Readings of one tick. `kept`: fields that are series; `new` makes one."""
        self.remember(readings, time)
        if not kept:
            return
        value: Any
        for field, value in readings.items():
            is_number = type(value) in _NUMBERS
            if field in kept:
                series = self.series.get(field)
                if series is None:
                    series = self.series[field] = new(field)
                if is_number and field in EXTREMES:
                    low, high = (number(readings.get(name)) for name in EXTREMES[field])
                    series.add(time, value, low, high)
                elif is_number:
                    series.add(time, value)
                elif isinstance(value, Missing):
                    series.miss()
            elif is_number and field in PEAKS:
                self.peaks[field] = max(value, self.peaks.get(field, -inf))

    def peak(self, field: str) -> Optional[float]:
        """The largest value since attached."""
        return self.series[field].high if field in self.series else self.peaks.get(field)

    def highest(self, field: str) -> Optional[float]:
        """The same, also of the past that was loaded into a series."""
        past = self.series[field].past_high if field in self.series else None
        return max((value for value in (self.peak(field), past) if value is not None), default=None)

    def remember(self, readings: Dict[str, Reading], time: float) -> None:
        """Readings that are the newest from now on."""
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))

    def load(
        self,
        field: str,
        rollup: Rollup,
        first_time: float,
        kept: FrozenSet[str],
        new: Callable[[str], Series],
    ) -> None:
        """What was before the first reading that comes (`Series.load`)."""
        if field in kept:
            if field not in self.series:
                self.series[field] = new(field)
            self.series[field].load(rollup, first_time)
        elif field in PEAKS:
            known = compress(rollup.high, rollup.count)
            self.peaks[field] = max([*known, self.peaks.get(field, -inf)])

    def begin_peaks(self) -> None:
        """Let peaks count from now on."""
        self.peaks.clear()
        for series in self.series.values():
            series.begin_peaks()


#: a row with its key, the fields that are series of it, and what makes one
Kept = Tuple[Key, Row, FrozenSet[str], Callable[[str], Series]]
Table = Dict[Key, Row]  # the rows of one entity
