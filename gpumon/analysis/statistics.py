"""Time-weighted statistics of one reading, taken as its samples come.

A sample stands until the next, or for one period where the next comes later than `BRIDGE_PERIODS`
periods: what lies between is a gap, which has no value, and never counts as 0. The weight of a
value is the time that it stood, so that a mean does not depend on how often was sampled.
Memory does not grow with the number of samples.
"""

from __future__ import annotations

from math import floor, inf, isfinite
from operator import le, mul
from typing import Any, NamedTuple

from gpumon.model.series import BRIDGE_PERIODS

_MINUTE_S = 60
_BATCH = 512
#: a counter may be brought up to date so much later than it is read
_LATE_S = 2.0
_MOST = 1e25  # more than any counter times any time


def finite(value: object) -> float:
    """The number that a file holds. Raises TypeError, ValueError where it is none to count with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("a number was expected")
    if not abs(value) <= _MOST:  # NaN is not
        raise ValueError("a number out of range")
    return float(value)


class Statistics(NamedTuple):
    """Of one reading over the seconds that were measured; None where there were none."""

    mean: float | None  # time-weighted
    low: float | None
    high: float | None
    covered_s: float


class Running:
    """The statistics of one reading so far. Times are epoch seconds, in the order they come.

    Samples wait for `_BATCH` of them, because one sum over many costs a tenth of many additions.
    """

    __slots__ = (
        "_covered_s", "_high", "_limit_s", "_low", "_period_s", "_times", "_total", "_values",
    )  # fmt: skip

    def __init__(self, period_s: float) -> None:
        self._times: list[float] = []
        self._values: list[float] = []
        self._total = self._covered_s = 0.0
        self._low, self._high = inf, -inf
        self.pace(period_s)

    def pace(self, period_s: float) -> None:
        """From now on a sample is due every `period_s` seconds."""
        self._settle()
        self._period_s = period_s
        self._limit_s = BRIDGE_PERIODS * period_s

    def add(self, time: float, value: float) -> None:
        """The reading was `value` at `time`."""
        self._times.append(time)
        self._values.append(value)
        if len(self._times) >= _BATCH:
            self._settle()

    def miss(self, time: float) -> None:
        """The reading was asked for at `time` and is missing: a gap begins."""
        if self._times:
            self._end(time)

    def _end(self, time: float) -> None:
        """What stands now stands until `time`, or for one period; nothing follows at once."""
        self._times.append(time)
        self._values.append(self._values[-1])
        self._settle()
        self._times, self._values = [], []

    def _settle(self) -> None:
        """Account for all that waits but the last sample, which still stands."""
        times, values = self._times, self._values
        if len(times) < 2:
            return
        stood = [end - start for start, end in zip(times, times[1:])]
        if max(stood) > self._limit_s or min(stood) < 0:
            # beyond lies a gap; a clock that was set back gives no difference to trust
            stood = [each if 0 <= each <= self._limit_s else self._period_s for each in stood]
        self._times, self._values = times[-1:], values[-1:]
        self._account(times, values, stood)

    def _account(self, times: list[float], values: list[float], stood: list[float]) -> None:
        """The first of `values` stood from the first of `times` for the first of `stood`, …"""
        self._covered_s += sum(stood)
        self._total += sum(map(mul, values, stood))
        self._low = min(self._low, *values)
        self._high = max(self._high, *values)

    def result(self) -> Statistics:
        """The statistics of all that was added; the last sample counts for one period."""
        self._finish()
        if not self._covered_s:
            return Statistics(None, None, None, 0.0)
        mean = min(max(self._total / self._covered_s, self._low), self._high)
        return Statistics(mean, self._low, self._high, self._covered_s)

    def _finish(self) -> None:
        self._settle()
        if self._times:
            self._end(self._times[-1] + self._period_s)

    def state(self) -> list[Any]:
        """What was added, in few numbers; the pace apart."""
        self._settle()
        range_ = [self._low, self._high] if self._low <= self._high else []
        return [self._total, self._covered_s, range_, [*self._times, *self._values]]

    def restore(self, state: list[Any]) -> None:
        """Go on from such a state. Raises ValueError, TypeError."""
        total, covered_s, range_, newest = state
        self._total, self._covered_s = finite(total), finite(covered_s)
        self._low, self._high = map(finite, range_) if range_ else (inf, -inf)
        self._times, self._values = [], []
        if newest:
            time, value = newest
            self.add(finite(time), finite(value))


class MinutePeak(Running):
    """Also the largest mean of a minute of the clock, of which at least half was measured.

    The same minutes as on the screen (`model.series`), so that both name the same peak.
    """

    __slots__ = ("_minute", "_minute_s", "_minute_total", "_peak")

    def __init__(self, period_s: float) -> None:
        super().__init__(period_s)
        self._minute = 0
        self._minute_s = self._minute_total = 0.0
        self._peak = -inf

    def _account(self, times: list[float], values: list[float], stood: list[float]) -> None:
        super()._account(times, values, stood)
        for time, value, stood_s in zip(times, values, stood):
            minute = floor(time / _MINUTE_S)
            if minute != self._minute:
                self._close()
                self._minute = minute
            self._minute_s += stood_s
            self._minute_total += value * stood_s

    def _close(self) -> None:
        if self._minute_s * 2 >= _MINUTE_S:
            self._peak = max(self._peak, self._minute_total / self._minute_s)
        self._minute_s = self._minute_total = 0.0

    def peak60(self) -> float | None:
        """None as long as no minute was measured well enough."""
        self._finish()
        self._close()
        return self._peak if isfinite(self._peak) else None

    def state(self) -> list[Any]:
        state = super().state()  # first: it counts what waits
        peak = self._peak if isfinite(self._peak) else None
        return [*state, self._minute, self._minute_s, self._minute_total, peak]

    def restore(self, state: list[Any]) -> None:
        *state, minute, minute_s, total, peak = state
        super().restore(state)
        self._minute = int(finite(minute))
        self._minute_s, self._minute_total = finite(minute_s), finite(total)
        self._peak = -inf if peak is None else finite(peak)


class Growth:
    """How much a counter grew; across a gap too, which is why energy is taken from one.

    A counter that fell back began anew (driver loaded, node booted): what it counted in between
    is not known and adds nothing.
    """

    __slots__ = ("_grown", "_known", "_last", "_most_per_s", "_refused", "_time")

    def __init__(self, most_per_s: float = inf) -> None:
        """`most_per_s`: it cannot grow faster. Once it did, its growth is not known."""
        self._last: float | None = None
        self._grown = self._time = 0.0
        self._known = False
        self._most_per_s = most_per_s
        self._refused: tuple[float, float] | None = None  # so much, in so many seconds

    def limit(self, most_per_s: float) -> None:
        """From now on it cannot grow faster."""
        self._most_per_s = most_per_s

    def add(self, value: float, time: float) -> None:
        """The counter stood at `value` at `time` (epoch s)."""
        if self._last is not None:
            self._known = True
            grown, passed_s = max(value - self._last, 0.0), max(time - self._time, 0.0)
            if grown > self._most_per_s * (passed_s + _LATE_S):
                self._refused = self._refused or (grown, passed_s)
            self._grown += grown
        self._last, self._time = value, time

    def add_all(self, values: list[float], times: list[float]) -> None:
        """The counter stood at these values at these times, one after another."""
        points = list(zip(values, times))
        if all(map(le, values, values[1:])):  # it never fell back: only the ends count
            points = [*points[:1], *points[1:][-1:]]
        for value, time in points:
            self.add(value, time)

    @property
    def newest(self) -> float | None:
        """Where the counter stood last; None before it was read."""
        return self._last

    def result(self) -> float | None:
        """In the counter's unit; None before it was read twice, and where it was refused."""
        return self._grown if self._known and self._refused is None else None

    @property
    def refused(self) -> tuple[float, float] | None:
        """By how much it grew in how many seconds, where nothing can grow as fast."""
        return self._refused

    def state(self) -> list[Any]:
        """What was added, in few values."""
        return [self._last, self._grown, self._known, self._time, self._refused]

    def restore(self, state: list[Any]) -> None:
        """Go on from such a state; older ones are shorter. Raises ValueError, TypeError."""
        last, grown, known, *more = state
        self._last = None if last is None else finite(last)
        self._grown, self._known = finite(grown), known is True
        time, refused = more or (0.0, None)
        self._time = finite(time)
        self._refused = None if refused is None else (finite(refused[0]), finite(refused[1]))
