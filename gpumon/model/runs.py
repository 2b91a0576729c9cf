"""Many samples of a series at once: where they lie in buckets, and those of one bucket together."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple


class Part:
    """Samples of one bucket together."""

    __slots__ = ("count", "held", "largest", "least", "place", "since", "total")

    def __init__(
        self, since: float, total: float, count: int, least: float, largest: float, held: float
    ) -> None:
        self.since, self.total, self.count = since, total, count  # time of the first, sum, number
        self.least, self.largest = least, largest
        self.held = held  # what stood before the first
        self.place = 0.0  # of the bucket

    def join(self, other: Part) -> None:
        self.total += other.total
        self.count += other.count
        self.least = min(self.least, other.least)
        self.largest = max(self.largest, other.largest)


class Grid(NamedTuple):
    """Where samples lie in buckets of one length."""

    times: Sequence[float]
    step_s: int
    places: List[int]
    is_ordered: bool
    stride: int  # buckets from each to the next, where these are as many; else 0
    longest_s: float  # between two of them


#: the newest: the series of one row mostly have the same times
_newest_grid = Grid((), 0, [], True, 0, 0.0)


def grid_of(times: Sequence[float], step_s: int) -> Grid:
    """Of one sample at least."""
    global _newest_grid
    known = _newest_grid
    if known.times is times and known.step_s == step_s and len(known.places) == len(times):
        return known
    places = [int(time // step_s) for time in times]
    apart = [after - before for before, after in zip(times, times[1:])]
    stride = max(places[1] - places[0], 0) if len(places) > 1 else 1
    is_even = places[-1] - places[0] == stride * (len(places) - 1) and (
        stride > 0 and places == [*range(places[0], places[-1] + 1, stride)]
    )
    longest_s, is_ordered = max(apart, default=0.0), min(apart, default=0.0) >= 0
    _newest_grid = Grid(times, step_s, places, is_ordered, stride if is_even else 0, longest_s)
    return _newest_grid


Columns = Tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]


def behind(
    begin: int,
    times: Sequence[float],
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
) -> Columns:
    """The samples from one on; extremes that are the values stay the same object."""
    own = values[begin:]
    least, most = (own if each is values else each[begin:] for each in (lows, highs))
    return times[begin:], own, least, most
