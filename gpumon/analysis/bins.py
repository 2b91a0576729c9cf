"""One reading on the grid of time: the mean, the least and the greatest value of each bin."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

from gpumon.analysis.evidence import Track
from gpumon.model.ticks import Cut

#: seconds of a bin on the finest grid
STEP_S = 10.0
_GAP = array("f", [nan])
#: so much is added to a series that is shared, rather than copied: nodes begin and end a bit apart
_MAX_PADDING = 6


class Window(NamedTuple):
    """The bins that are asked for."""

    first: int
    size: int  # how many
    #: tracks may hold the arrays themselves, where they can: good until more is put
    shared: bool = False


class Columns(NamedTuple):
    """Bins one after another, NaN where nothing was read; all three are equally long."""

    first: int  # the index of the first
    mean: array[float]
    low: array[float]
    high: array[float]
    weight: int  # values in the last


class Bins:
    """Bin k covers [k · step, (k + 1) · step) of absolute time, whatever `step` is.

    Only the bins from the first that was written to the last are kept; 12 bytes each.
    """

    __slots__ = ("_first", "_high", "_low", "_mean", "_weight")

    def __init__(self) -> None:
        self._first = 0
        self._mean, self._low, self._high = array("f"), array("f"), array("f")
        self._weight = 0  # values in the newest bin

    def put(self, index: int, values: list[float]) -> None:
        """Some values, at least one, of one bin; a bin may get its values in several parts."""
        count = len(values)
        at = self._place(index)
        size = len(self._mean)
        if at != size and size:
            if at < size:
                self._amend(at, values)
                return
            self._gap(at - size)
        elif not size:
            self._first = index
        self._mean.append(sum(values) / count)
        self._low.append(min(values))
        self._high.append(max(values))
        self._weight = count

    def drain(self) -> Columns | None:
        """What was kept, which is then forgotten; None: nothing."""
        if not self._mean:
            return None
        columns = Columns(self._first, self._mean, self._low, self._high, self._weight)
        self._mean, self._low, self._high = array("f"), array("f"), array("f")
        return columns

    def extend(self, columns: Columns) -> None:
        """What another one kept, of later bins; only the first may be known in part."""
        at = self._place(columns.first)
        size = len(self._mean)
        if not size:
            self._first = columns.first
        elif at < size:
            for n, values in enumerate(zip(columns.mean, columns.low, columns.high), at):
                if n >= 0 and values[0] == values[0]:
                    self._join(n, columns.weight, *values)
            return
        elif at > size:
            self._gap(at - size)
        self._mean.extend(columns.mean)
        self._low.extend(columns.low)
        self._high.extend(columns.high)
        self._weight = columns.weight

    def _gap(self, count: int) -> None:
        gap = _GAP * count
        for each in (self._mean, self._low, self._high):
            each.extend(gap)

    def put_all(self, cuts: Sequence[Cut], values: Sequence[float | None]) -> None:
        """Values of several bins, in order of time: of bin k those at [first, last)."""
        if not values:
            return
        if self._follows(cuts) and values.count(values[0]) == len(values) and values[0] is not None:
            same = array("f", [values[0]]) * len(cuts)
            for each in (self._mean, self._low, self._high):
                each.extend(same)
            self._weight = cuts[-1][2] - cuts[-1][1]
            return
        is_whole = None not in values
        for index, first, last in cuts:
            part = values[first:last]
            known: Any = part if is_whole else [value for value in part if value is not None]
            if known:
                self.put(index, known)

    def _follows(self, cuts: Sequence[Cut]) -> bool:
        """These are the next bins, one after another."""
        at = self._first + len(self._mean)
        return bool(self._mean) and cuts[0][0] == at and cuts[-1][0] == at + len(cuts) - 1

    def _amend(self, at: int, values: list[float]) -> None:
        if at < 0:
            return  # before the first one: the clock was set back, nobody can place it
        self._join(at, len(values), sum(values) / len(values), min(values), max(values))

    def _join(self, at: int, count: int, mean: float, low: float, high: float) -> None:
        """More values, so many, of a bin that may hold some."""
        if at >= len(self._mean):
            self._gap(at + 1 - len(self._mean))
            self._weight = count
        old = self._mean[at]
        if old != old:
            self._mean[at], self._low[at], self._high[at] = mean, low, high
            return
        newest = at == len(self._mean) - 1
        weight = self._weight if newest else count  # of older ones nobody remembers it
        self._mean[at] = (old * weight + mean * count) / (weight + count)
        self._low[at] = min(self._low[at], low)
        self._high[at] = max(self._high[at], high)
        if newest:
            self._weight += count

    def double(self) -> None:
        """Join bins 2k and 2k + 1 to bin k of a grid whose step is twice as long."""
        if self._mean:
            joined = doubled(Columns(self._first, self._mean, self._low, self._high, self._weight))
            self._first, self._mean, self._low, self._high, self._weight = joined

    def copy(self) -> Bins:
        other = Bins()
        other._first, other._weight = self._first, self._weight
        other._mean, other._low, other._high = self._mean[:], self._low[:], self._high[:]
        return other

    def track(self, window: Window) -> Track:
        """Those bins, NaN where nothing was read; a copy unless `window` says otherwise."""
        first, count, shared = window
        if not self._mean:
            gap = _GAP * count
            return Track(gap, gap, gap)
        if shared and self._pad(first, count):
            return Track(self._mean, self._low, self._high)
        begin = self._first - first
        before = _GAP * max(begin, 0)
        kept = slice(max(-begin, 0), max(count - begin, 0))
        parts = [before + each[kept] for each in (self._mean, self._low, self._high)]
        mean, low, high = (part + _GAP * (count - len(part)) for part in parts)
        return Track(mean, low, high)

    def _pad(self, first: int, count: int) -> bool:
        """Whether it has these bins, now that those were added that were left out at its ends."""
        before = self._first - first
        behind = count - before - len(self._mean)
        if min(before, behind) < 0 or max(before, behind + self._padded) > _MAX_PADDING:
            return False
        if before:
            for each in (self._mean, self._low, self._high):
                each[:0] = _GAP * before
            self._first = first
        self._gap(behind)
        return True

    @property
    def _padded(self) -> int:
        """How many were added behind: a series that has ended shall not grow on."""
        newest = self._mean[-_MAX_PADDING - 1 :]
        return next((n for n, mean in enumerate(reversed(newest)) if mean == mean), len(newest))

    def _place(self, index: int) -> int:
        """Where a bin stands, or shall stand. What was added at the ends is left out again, unless
        it comes behind all: the first and the last bin hold something then, as they did before.
        """
        means = self._mean
        if means and index - self._first < len(means):
            while len(means) > 1 and means[-1] != means[-1]:
                for each in (means, self._low, self._high):
                    each.pop()
            while len(means) > 1 and means[0] != means[0]:
                self._first += 1
                for each in (means, self._low, self._high):
                    each.pop(0)
        return index - self._first


def doubled(columns: Columns) -> Columns:
    """The same on a grid whose step is twice as long: bins 2k and 2k + 1 are joined to bin k."""
    arrays = [each[:] for each in columns[1:4]]
    for each in arrays:
        if columns.first % 2:
            each.insert(0, nan)
        if len(each) % 2:
            each.append(nan)
    means, lows, highs = arrays
    if lows == means == highs and means.count(means[0]) == len(means):  # NaN equals nothing
        same = means[::2]
        return Columns(columns.first // 2, same, same[:], same[:], columns.weight)
    # a NaN equals nothing, not even itself: the other of the two is then taken
    mean = array("f", [
        (a + b) / 2 if a == a and b == b else b if a != a else a
        for a, b in zip(means[::2], means[1::2])
    ])  # fmt: skip
    low = array("f", [b if b < a or a != a else a for a, b in zip(lows[::2], lows[1::2])])
    high = array("f", [b if b > a or a != a else a for a, b in zip(highs[::2], highs[1::2])])
    return Columns(columns.first // 2, mean, low, high, columns.weight)
