"""Counters to rates, timed where the counter was read and not where the rate is worked out."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from typing import Callable, NamedTuple

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


def elapsed_s(before: Moment, now: Moment) -> float | None:
    """Seconds between two reads; None where that is not known well enough for a rate."""
    elapsed = now.at - before.at
    if elapsed <= 0 or max(before.took_s, now.took_s) > _UNSURE * elapsed:
        return None
    return elapsed


class Rate:
    """Per-second rate of a counter that only grows."""

    def __init__(self, *, wraps: bool = False) -> None:
        """`wraps`: it has 32 bits, or begins anew with what it counts."""
        self._wraps = wraps
        self._value: float | None = None
        self._moment = Moment(0.0)
        self._source: object = None

    def update(
        self, reading: Reading, moment: Moment, most: float = math.inf, source: object = None
    ) -> Reading:
        """The rate since the last reading; Missing at the first one, when the time between two is
        not known well enough, and when the counter is missing or went back.

        `most`: per second, that the counted thing can do. `source`: which of several counters.
        """
        value = number(reading)
        before, self._value = self._value, value
        elapsed, self._moment = elapsed_s(self._moment, moment), moment
        is_other, self._source = source != self._source, source
        if isinstance(reading, Missing):
            return reading
        if value is None or before is None or elapsed is None or is_other:
            return MEASURING
        delta = value - before
        if delta < 0 and self._wraps:
            is_near = _WRAP_32 - _NEAR_WRAP <= before < _WRAP_32 and value < _NEAR_WRAP
            if is_near and delta + _WRAP_32 <= most * elapsed:
                delta += _WRAP_32
            elif value < before / 2:
                return MEASURING  # it began anew
        if delta < 0:
            return Missing("implausible", f"counter went back from {before:.0f} to {value:.0f}")
        return delta / elapsed


class Rates:
    """A rate for each of several counters, by its key."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, Rate] = {}

    def per_second(self, key: Hashable, counter: Reading, moment: Moment) -> Reading:
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate()
        return rate.update(counter, moment)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget the counters of what is gone, so that its name can come back as another."""
        self._rates = {key: rate for key, rate in self._rates.items() if key in keys}


class Growth:
    """A counter that is shown as it is: it only grows, and no faster than it can."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None  # value, monotonic s
        self._doubted: tuple[float, float] | None = None

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
