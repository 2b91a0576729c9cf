"""Whether memory leaks: rises steadily at its lower edge, towards a limit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

WARM_UP_S = 600.0
LEAST_S = 2400.0
_BINS = 12
_Z = 3.0
_RISING_SHARE = 0.6
_STEP_OF_LIMIT = 0.002
_RISE_OF_LIMIT = 0.05
_LATE_SLOPE = 0.4
_FASTER = 2.0
_PLATEAU = _BINS // 4


class Leak(NamedTuple):
    """A steady rise."""

    per_s: float  # bytes per second, over the second half
    full_in_s: float  # until the limit, at that pace
    z: float  # Kendall's
    speeds_up: bool = False  # at least twice as fast in the second half


def leak(values: Sequence[float], bin_s: float, limit: float) -> Leak | None:
    """The leak in a series of bin means (bytes; NaN: unknown), from its process's beginning.

    After 10 min of warm-up, of at least 40 min: twelve equal parts, of each the least value, so
    that what comes back (garbage collection, epochs) does not count. All of: Kendall z ≥ 3; 60 % of
    the steps rise by 0.2 % of the limit; 5 % of the limit in all; the second half still rises at
    0.4 of the mean pace, which steps and filling caches do not; and so does the last quarter by a
    step, which what filled up does not. None where one of them fails or a part is unknown. Numbers
    proposed (findings, section 12), quiet on staircases and sawteeth.
    """
    begin = next((at for at, value in enumerate(values) if value == value), len(values))
    series = values[begin + round(WARM_UP_S / bin_s) :]
    if not limit > 0 or len(series) * bin_s < LEAST_S:
        return None
    parts = [
        series[len(series) * n // _BINS : len(series) * (n + 1) // _BINS] for n in range(_BINS)
    ]
    known = [[value for value in part if value == value] for part in parts]
    if not all(known):
        return None
    lows = [min(part) for part in known]
    part_s = len(series) * bin_s / _BINS
    rising = sum(b - a >= _STEP_OF_LIMIT * limit for a, b in zip(lows, lows[1:]))
    z = _kendall_z(lows)
    late = _slope(lows[_BINS // 2 :]) / part_s
    early = _slope(lows[: _BINS // 2]) / part_s
    rise = lows[-1] - lows[0]
    steady = z >= _Z and rising >= _RISING_SHARE * (_BINS - 1) and rise >= _RISE_OF_LIMIT * limit
    if not steady or late <= 0 or late < _LATE_SLOPE * _slope(lows) / part_s:
        return None
    if lows[-1] - lows[-_PLATEAU] < _STEP_OF_LIMIT * limit:
        return None
    full_in_s = max(0.0, limit - known[-1][-1]) / late
    return Leak(late, full_in_s, z, speeds_up=late >= _FASTER * early)


def _kendall_z(values: Sequence[float]) -> float:
    """Kendall's S over its standard deviation without a trend, sqrt(n (n − 1) (2n + 5) / 18)."""
    n = len(values)
    s = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    return s / sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _slope(values: Sequence[float]) -> float:
    """Of the least squares line, per step."""
    middle = (len(values) - 1) / 2
    weight = sum((at - middle) ** 2 for at in range(len(values)))
    return sum((at - middle) * value for at, value in enumerate(values)) / weight
