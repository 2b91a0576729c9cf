"""Many samples of a series at once: where they lie in buckets, and those of one bucket together."""

from __future__ import annotations

from bisect import bisect_right
from math import nan
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple


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
    places: List[int]
    is_ordered: bool
    stride: int  # buckets from each to the next, where these are as many; else 0
    longest_s: float  # between two of them


_HAIR_S = 1e-3  # more than a sum of times may be rounded by
#: the newest: the series of one row, and those of its neighbours, mostly have the same times
_KEPT = 16
_grids: Dict[Tuple[int, int], Grid] = {}


def grid_of(times: Sequence[float], step_s: int) -> Grid:
    """Of one sample at least."""
    found = _grids.get((id(times), step_s))
    if found is None or found.times is not times or len(found.places) != len(times):
        found = _new_grid(times, step_s)
        if len(_grids) >= _KEPT:
            _grids.clear()
        _grids[id(times), step_s] = found
    return found


def _new_grid(times: Sequence[float], step_s: int) -> Grid:
    places = [int(time // step_s) for time in times]
    apart = [after - before for before, after in zip(times, times[1:])]
    stride = max(places[1] - places[0], 0) if len(places) > 1 else 1
    is_even = places[-1] - places[0] == stride * (len(places) - 1) and (
        stride > 0 and places == [*range(places[0], places[-1] + 1, stride)]
    )
    longest_s, is_ordered = max(apart, default=0.0), min(apart, default=0.0) >= 0
    return Grid(times, places, is_ordered, stride if is_even else 0, longest_s)


Columns = Tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]


def behind(
    begin: int,
    times: Sequence[float],
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
) -> Columns:
    """The samples from one on; extremes that are the values stay the same object."""
    if not begin:
        return times, values, lows, highs
    own = values[begin:]
    least, most = (own if each is values else each[begin:] for each in (lows, highs))
    return times[begin:], own, least, most


class Before(NamedTuple):
    """The open bucket, and the newest sample: its value holds until a time."""

    place: int
    value: float
    until: float


def buckets_of(
    grid: Grid,
    before: Before,
    bridge_s: float,
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
) -> Tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float]]:
    """Counts, sums, lows and highs of the buckets behind the open one, up to that of the last
    sample. Samples at most `bridge_s` apart have no gap between them.
    """
    if grid.stride == 1 and grid.places[0] == before.place + 1:
        return [1] * len(values), values, lows, highs
    if grid.stride and grid.longest_s < bridge_s - _HAIR_S:
        return _at_strides(grid, before, values, lows, highs)
    counts, sums, least, largest = zip(*_one_by_one(grid, before, bridge_s, values, lows, highs))
    return counts, sums, least, largest


def _at_strides(
    grid: Grid, before: Before, *columns: Sequence[float]
) -> Tuple[List[int], List[float], List[float], List[float]]:
    """Of samples in every so many buckets, with no gap between them."""
    values, stride, lead = columns[0], grid.stride, grid.places[0] - before.place - 1
    size = lead + (len(values) - 1) * stride + 1
    counts = [0] * size
    counts[lead::stride] = [1] * len(values)
    held = [before.value if grid.times[0] <= before.until else nan] * size
    for place in range(1, stride):
        held[lead + place :: stride] = values[:-1]
    found = [held, held[:], held[:]]
    for each, column in zip(found, columns):
        each[lead::stride] = column
    return counts, found[0], found[1], found[2]


def _one_by_one(
    grid: Grid, before: Before, bridge_s: float, *columns: Sequence[float]
) -> Iterator[Tuple[int, float, float, float]]:
    """Each bucket, those in between included."""
    values, lows, highs = columns
    times, places = grid.times, grid.places
    index, held, until = before
    begin, last = 0, len(places) - 1
    while begin <= last:
        place, end = places[begin], begin + 1
        between = held if times[begin] <= until else nan
        for _ in range(index + 1, place):
            yield 0, between, between, between
        if begin == last or places[end] != place:
            yield 1, values[begin], lows[begin], highs[begin]
        else:
            end = bisect_right(places, place, end)
            parts = values[begin:end], lows[begin:end], highs[begin:end]
            yield end - begin, sum(parts[0]), min(parts[1]), max(parts[2])
        held, until = values[end - 1], times[end - 1] + bridge_s
        index, begin = place, end
