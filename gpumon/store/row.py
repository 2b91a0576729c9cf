"""One entity with one key: its readings, the time of each, peaks, and series."""

from __future__ import annotations

from math import inf
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from gpumon.model.backfill import BackfillSeries
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.retention import Tiers
from gpumon.model.sample import Key
from gpumon.model.series import Series

#: fields whose extremes within a tick the driver's own samples tell
EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}


#: fields of which the largest value since attached is shown, beside those that are series
PEAKS = frozenset(("busy_max_percent",))
_NUMBERS = frozenset((int, float))
_READ_AT_TIMES = _NUMBERS | {type(None)}  # of a field that is not read at every tick


class Row:
    """What is known of one entity with one key.

    Readings wait, as they came, until there are some or until somebody asks for a series or a
    peak: many at once cost a fraction of as many one by one.
    """

    __slots__ = ("_waiting", "peaks", "readings", "series", "times")

    def __init__(self) -> None:
        self.readings: Dict[str, Reading] = {}
        self.times: Dict[str, float] = {}
        self.peaks: Dict[str, float] = {}  # since attached; of fields that are no series
        self.series: Dict[str, Series] = {}
        self._waiting: List[Tuple[float, Dict[str, Reading]]] = []

    def frozen(self) -> Row:
        """The readings as they are now; the series continue, but are read up to a given end."""
        self.settle()
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
        most: int = 1,
    ) -> None:
        """Readings of one tick. `kept`: fields that are series; `new` makes one; `most`: ticks
        that may wait.
        """
        self.remember(readings, time)
        if len(self.series) < len(kept):
            for field in readings:
                if field in kept and field not in self.series:
                    self.series[field] = new(field)
        if self.series or not PEAKS.isdisjoint(readings):
            self._waiting.append((time, readings))
            if len(self._waiting) >= most:
                self.settle()

    def settle(self) -> None:
        """Bring what waits into the series and peaks."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        times = [time for time, _ in waiting]
        for field, series in self.series.items():
            values: List[Any] = [readings.get(field) for _, readings in waiting]
            kinds = set(map(type, values))
            if field not in EXTREMES and kinds <= _NUMBERS:
                series.extend(times, values, values, values)
            elif field not in EXTREMES and kinds <= _READ_AT_TIMES:
                read = [place for place in enumerate(values) if place[1] is not None]
                known = [value for _, value in read]
                if known:
                    series.extend([times[place] for place, _ in read], known, known, known)
            else:
                _extend(series, field, [each for each in waiting if field in each[1]])
        for field in PEAKS - self.series.keys():
            for _, readings in waiting:
                reading = number(readings.get(field))
                if reading is not None and reading > self.peaks.get(field, -inf):
                    self.peaks[field] = reading

    def first_time(self, field: str) -> Optional[float]:
        """Time of the oldest sample of a series, also of those that wait."""
        series = self.series.get(field)
        times = [time for time, readings in self._waiting if type(readings.get(field)) in _NUMBERS]
        if series is not None and series.first_time is not None:
            times.append(series.first_time)
        return min(times, default=None) if series is not None else None

    def peak(self, field: str) -> Optional[float]:
        """The largest value since attached, also of those that wait."""
        series = self.series.get(field)
        known = series.high if series is not None else self.peaks.get(field)
        fields = (field, *EXTREMES.get(field, ())) if series is not None else (field,)
        found = [] if known is None else [known]
        for _, readings in self._waiting if series is not None or field in PEAKS else ():
            if number(readings.get(field)) is not None:
                found += [value for name in fields if (value := number(readings.get(name)))]
                found.append(number(readings[field]) or 0.0)
        return max(found, default=None)

    def remember(self, readings: Dict[str, Reading], time: float) -> None:
        """Readings that are the newest from now on."""
        self.readings.update(readings)
        self.times.update(dict.fromkeys(readings, time))

    def begin(
        self,
        backfills: Dict[str, BackfillSeries],
        kept: FrozenSet[str],
        new: Callable[[str], Series],
    ) -> None:
        """What was before the first readings that come: series, and peaks of the other fields."""
        self.settle()
        for field, backfill in backfills.items():
            if field not in kept:
                self.peaks[field] = max(backfill.high, self.peaks.get(field, -inf))
                continue
            if field not in self.series:
                self.series[field] = new(field)
            self.series[field].begin(backfill)

    def begin_peaks(self) -> None:
        """Let peaks count from now on."""
        self.settle()
        self.peaks.clear()
        for series in self.series.values():
            series.begin_peaks()

    def downsample(self, tiers: Tiers) -> None:
        """Keep less from now on; a peak stays what it was."""
        self.settle()
        for series in self.series.values():
            series.downsample(tiers)

    def expect(self, field: str, period_s: float) -> None:
        """How often a sample of a series is due from now on."""
        series = self.series[field]
        if series.period_s != period_s:
            self.settle()
            series.period_s = period_s


def _extend(
    series: Series, field: str, waiting: Sequence[Tuple[float, Dict[str, Reading]]]
) -> None:
    """Add the readings of one field, in order of time."""
    begin = 0
    for end, (_, readings) in enumerate(waiting):
        if type(readings[field]) not in _NUMBERS:
            _extend_known(series, field, waiting[begin:end])
            begin = end + 1
            if isinstance(readings[field], Missing):
                series.miss()
    _extend_known(series, field, waiting[begin:])


def _extend_known(series: Series, field: str, waiting: Sequence[Tuple[float, Any]]) -> None:
    if not waiting:
        return
    times = [time for time, _ in waiting]
    values = [readings[field] for _, readings in waiting]
    lows = highs = values
    if field in EXTREMES:
        least, most = EXTREMES[field]
        found = [(number(each.get(least)), number(each.get(most))) for _, each in waiting]
        lows = [v if low is None else min(low, v) for v, (low, _) in zip(values, found)]
        highs = [v if high is None else max(high, v) for v, (_, high) in zip(values, found)]
    series.extend(times, values, lows, highs)


Table = Dict[Key, Row]  # the rows of one entity
