"""One entity with one key: its readings, the time of each, peaks, and series."""

from __future__ import annotations

from array import array
from itertools import repeat
from math import inf, nan
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from gpumon.model.backfill import BackfillSeries
from gpumon.model.reading import Missing, Reading
from gpumon.model.retention import Tiers
from gpumon.model.sample import Key
from gpumon.model.series import Series

#: fields whose extremes within a tick the driver's own samples tell
EXTREMES = {"busy_percent": ("busy_min_percent", "busy_max_percent")}


#: fields of which the largest value since attached is shown, beside those that are series
PEAKS = frozenset(("busy_max_percent",))
_NUMBERS = frozenset((int, float))
#: in place of a number: the field was not read, or it is missing, which ends the line of its series
_UNREAD, _MISSING = nan, inf


class Row:
    """What is known of one entity with one key.

    Numbers of series wait until there are some ticks or until somebody asks for a series, which is
    then the only one that takes them: many at once cost a fraction of as many one by one.
    """

    __slots__ = ("_fields", "_taken", "_ticks", "_waiting", "peaks", "readings", "series", "times")

    def __init__(self) -> None:
        self.readings: Dict[str, Reading] = {}
        self.times: Dict[str, float] = {}
        self.peaks: Dict[str, float] = {}  # since attached; of fields that are no series
        self.series: Dict[str, Series] = {}
        self._fields: Tuple[str, ...] = ()  # those that are series, and their extremes
        self._ticks = array("d")  # epoch s of what waits
        self._waiting = array("d")  # for each tick the numbers of these fields
        self._taken: Dict[str, int] = {}  # by field: ticks that wait no more for its series

    def frozen(self) -> Row:
        """The readings as they are now; the series continue, but are read up to a given end."""
        self.settle()
        row = Row()
        row.readings, row.times, row.peaks = dict(self.readings), dict(self.times), dict(self.peaks)
        row.series, row._fields = dict(self.series), self._fields
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
        if not kept:
            return
        if len(self.series) < len(kept):
            for field in readings:
                if field in kept and field not in self.series:
                    self.keep(field, new(field))
        for field in PEAKS:
            value: Any = readings.get(field)
            if type(value) in _NUMBERS and value > self.peaks.get(field, -inf):
                self.peaks[field] = value
        if self.series:
            self._wait(readings, time)
            if len(self._ticks) >= most:
                self.settle()

    def keep(self, field: str, series: Series) -> None:
        """From now on, its values wait for this series."""
        self.settle()
        self.series[field] = series
        self._fields += (field, *EXTREMES.get(field, ()))

    def _wait(self, readings: Dict[str, Reading], time: float) -> None:
        self._ticks.append(time)
        read: Any = map(readings.get, self._fields, repeat(_UNREAD))
        try:
            self._waiting.extend(array("d", read))
        except (TypeError, OverflowError):  # not all are numbers
            self._waiting.extend(_number(readings.get(field)) for field in self._fields)

    def _column(self, field: str) -> array[float]:
        """What waits of one of the fields."""
        return self._waiting[self._fields.index(field) :: len(self._fields)]

    def settle(self) -> None:
        """Bring what waits into the series."""
        if not self._ticks:
            return
        for field in self.series:
            self.settled(field)
        self._ticks, self._waiting, self._taken = array("d"), array("d"), {}

    def settled(self, field: str) -> Optional[Series]:
        """A series with all that came of it; None: there is none."""
        series, begin = self.series.get(field), self._taken.get(field, 0)
        if series is None or begin == len(self._ticks):
            return series
        self._taken[field] = len(self._ticks)
        values = self._column(field)
        lows = highs = values
        if field in EXTREMES:
            least, most = map(self._column, EXTREMES[field])
            lows = array("d", [low if low < v else v for v, low in zip(values, least)])
            highs = array("d", [hi if v < hi < inf else v for v, hi in zip(values, most)])
        columns = self._ticks, values, lows, highs
        _extend(series, *(each[begin:] for each in columns) if begin else columns)
        return series

    def first_time(self, field: str, *, past: bool = False) -> Optional[float]:
        """Time of the oldest sample of a series, also of those that wait; see `NodeView`."""
        if field not in self.series:
            return None
        times = [time for time, value in zip(self._ticks, self._column(field)) if value < inf]
        known = self.series[field].oldest_time if past else self.series[field].first_time
        return min(times if known is None else [*times, known], default=None)

    def peak(self, field: str) -> Optional[float]:
        """The largest value since attached, also of those that wait."""
        series = self.series.get(field)
        if series is None:
            return self.peaks.get(field)
        found = [] if series.high is None else [series.high]
        for row in zip(*map(self._column, (field, *EXTREMES.get(field, ())[1:]))):
            if row[0] < inf:
                found += [value for value in row if value < inf]
        return max(found, default=None)

    def highest(self, field: str) -> Optional[float]:
        """The same, also of the past that was put before a series."""
        series = self.series.get(field)
        both = (self.peak(field), None if series is None else series.past_high)
        return max((value for value in both if value is not None), default=None)

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
                self.keep(field, new(field))
            self.series[field].begin(backfill)

    def with_past(self, past: Row, new: Callable[[str], Series]) -> List[Tuple[Series, Series]]:
        """Each series, and the one of another row that precedes it.

        What only that has gets a series, whose first sample is still to come.
        """
        past.settle()
        for field in past.series.keys() - self.series.keys():
            self.keep(field, new(field))
        return [(self.series[field], before) for field, before in past.series.items()]

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


def _number(reading: Any) -> float:
    """As it waits; a whole number beyond floats is no reading."""
    if type(reading) not in _NUMBERS:
        return _MISSING if isinstance(reading, Missing) else _UNREAD
    try:
        return float(reading)
    except OverflowError:
        return _UNREAD


def _extend(series: Series, *columns: Sequence[float]) -> None:
    """Add the samples of these times, values, lows and highs, in order of time."""
    values = columns[1]
    if -inf < sum(values) < inf:
        series.extend(*columns)
        return
    begin = 0
    for end in [*(at for at, value in enumerate(values) if value == _MISSING), len(values)]:
        known = [at for at in range(begin, end) if values[at] == values[at]]
        if known:
            series.extend(*([column[at] for at in known] for column in columns))
        if end < len(values):
            series.miss()
        begin = end + 1


#: a row with its key, the fields that are series of it, and what makes one
Kept = Tuple[Key, Row, FrozenSet[str], Callable[[str], Series]]
Table = Dict[Key, Row]  # the rows of one entity
