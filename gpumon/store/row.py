"""One entity with one key: its readings, the time of each, peaks, and series."""

from __future__ import annotations

from math import inf
from typing import Callable, Dict, FrozenSet

from gpumon.model.depth import Tiers
from gpumon.model.past import PastSeries
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Key
from gpumon.model.series import Series

#: fields whose extremes within a tick the driver's own samples tell
EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}


class Row:
    """What is known of one entity with one key."""

    __slots__ = ("peaks", "readings", "series", "times")

    def __init__(self) -> None:
        self.readings: Dict[str, Reading] = {}
        self.times: Dict[str, float] = {}
        self.peaks: Dict[str, float] = {}  # since attached; of fields that are no series
        self.series: Dict[str, Series] = {}

    def frozen(self) -> Row:
        """The readings as they are now; the series go on, but are read up to a given end."""
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
        all_series, peaks = self.series, self.peaks
        for field, reading in readings.items():
            if field not in kept:
                if isinstance(reading, (int, float)) and reading > peaks.get(field, -inf):
                    peaks[field] = reading
                continue
            series = all_series.get(field)
            if series is None:
                series = all_series[field] = new(field)
            if isinstance(reading, (int, float)):
                if field in EXTREMES:
                    low, high = (number(readings.get(name)) for name in EXTREMES[field])
                    series.add(time, reading, low, high)
                else:
                    series.add(time, reading)
            elif isinstance(reading, Missing):
                series.miss()

    def remember(self, readings: Dict[str, Reading], time: float) -> None:
        """Readings that are the newest from now on."""
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))

    def begin(
        self, pasts: Dict[str, PastSeries], kept: FrozenSet[str], new: Callable[[str], Series]
    ) -> None:
        """What was before the first readings that come: series, and peaks of the other fields."""
        for field, past in pasts.items():
            if field not in kept:
                self.peaks[field] = max(past.high, self.peaks.get(field, -inf))
                continue
            if field not in self.series:
                self.series[field] = new(field)
            self.series[field].begin(past)

    def thin(self, tiers: Tiers) -> None:
        """Keep less from now on; a peak stays what it was."""
        for series in self.series.values():
            series.thin(tiers)


Table = Dict[Key, Row]  # the rows of one entity
