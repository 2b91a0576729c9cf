"""Counters to rates, timed where the counter was read and not where the rate is worked out."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Optional, Tuple

from gpumon.model.reading import MEASURING, Missing, Reading, number

_WRAP_32 = 2**32
#: a counter wraps from the last quarter of its range into the first, or it did not wrap
_NEAR_WRAP = _WRAP_32 // 4
#: a read that took more than this share of the time between two leaves open when its counter was
#: taken: no rate is off by more
_UNSURE = 0.2
#: counters are updated a while before they are read
_COUNTER_AGE_S = 2.0


class Moment(NamedTuple):
    """When something was read: monotonic seconds as the read returned, and how long it took."""

    at: float
    took_s: float = 0.0


def moment_since(began: float, clock: Callable[[], float]) -> Moment:
    """The moment of a read that began at `began` and has just returned."""
    now = clock()
    return Moment(now, now - began)


def elapsed_s(before: Moment, now: Moment) -> Optional[float]:
    """Seconds between two reads; None where that is not known well enough for a rate."""
    elapsed = now.at - before.at
    if elapsed <= 0 or max(before.took_s, now.took_s) > _UNSURE * elapsed:
        return None
    return elapsed


class Rate:
    """Per-second rate of a counter that grows and may wrap at 32 bits."""

    def __init__(self) -> None:
        self._value: Optional[float] = None
        self._moment = Moment(0.0)
        self._source: Any = None

    def update(
        self,
        reading: Reading,
        at: float,
        took_s: float = 0.0,
        *,
        most: float = math.inf,
        source: Any = None,
    ) -> Reading:
        """The rate since the last reading; a Missing breaks the chain, a reset measures anew.

        `most`: per second, that the counted thing can do. `source`: which of several counters.
        """
        value = number(reading)
        before, self._value = self._value, value
        moment = Moment(at, took_s)
        elapsed = elapsed_s(self._moment, moment)
        is_other, self._source = source != self._source, source
        self._moment = moment
        if value is None:
            return reading if isinstance(reading, Missing) else MEASURING
        if before is None or elapsed is None or is_other:
            return MEASURING
        delta = value - before
        if delta < 0:
            wrapped = delta + _WRAP_32
            is_near = _WRAP_32 - _NEAR_WRAP <= before < _WRAP_32 and value < _NEAR_WRAP
            if is_near and wrapped <= most * elapsed:
                delta = wrapped
            elif value < before / 2:
                return MEASURING  # it began anew
            else:
                return Missing("implausible", f"counter went back from {before:.0f} to {value:.0f}")
        return delta / elapsed


class Growth:
    """A counter that is shown as it is: it only grows, and no faster than it can."""

    def __init__(self) -> None:
        self._last: Optional[Tuple[float, float]] = None  # value, monotonic s
        self._doubted: Optional[Tuple[float, float]] = None

    def check(self, reading: Reading, at: float, most: float) -> Reading:
        """The reading, or Missing where it cannot follow the last one; `most` is per second.

        What two readings in a row agree on is believed: the counter began anew.
        """
        value = number(reading)
        if value is None:
            return reading
        for known in (self._last, self._doubted):
            if known is None and self._last is not None:
                continue
            if known is None or 0 <= value - known[0] <= most * (at - known[1] + _COUNTER_AGE_S):
                self._last, self._doubted = (value, at), None
                return reading
        assert self._last is not None  # only what follows something can be doubted
        self._doubted = value, at
        return Missing("implausible", f"{value:.12g} after {self._last[0]:.12g}")
