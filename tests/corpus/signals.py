"""Curves over time: a number, or a function of the seconds since the job began."""

from collections.abc import Callable
from math import exp

Signal = float | Callable[[float], float]


def at(signal: Signal, second: float) -> float:
    return signal(second) if callable(signal) else signal


def steps(first: Signal, *later: tuple[float, Signal]) -> Signal:
    """`first`, and from each second named in `later` on what stands beside it."""

    def value(second: float) -> float:
        now = first
        for since, signal in later:
            if second >= since:
                now = signal
        return at(now, second)

    return value


def wave(
    low: float, high: float, period_s: float, share: float = 0.5, shift_s: float = 0
) -> Signal:
    """`high` for this share of each period, then `low`."""
    return lambda second: high if (second + shift_s) % period_s < share * period_s else low


def ramp(low: float, high: float, over_s: float, since_s: float = 0) -> Signal:
    """From `low` to `high` in a straight line; before and after it stands."""
    return lambda second: low + (high - low) * min(1.0, max(0.0, (second - since_s) / over_s))


def filling(high: float, time_s: float) -> Signal:
    """Rises ever slower towards `high`, as a page cache does."""
    return lambda second: high * (1 - exp(-second / time_s))
