"""One entity with one key: its readings, the time of each, peaks, and series."""

from __future__ import annotations

from math import inf
from typing import Callable, Dict, FrozenSet

from gpumon.model.depth import Tiers
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
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))
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

    def thin(self, kept: FrozenSet[str], tiers: Tiers) -> None:
        """Keep less from now on; a peak stays what it was."""
        for field, series in list(self.series.items()):
            if field in kept:
                series.thin(tiers)
                continue
            if series.high is not None:
                self.peaks[field] = series.high
            del self.series[field]


Table = Dict[Key, Row]  # the rows of one entity
