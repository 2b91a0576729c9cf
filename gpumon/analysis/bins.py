"""One reading on the grid of time: the mean, the least and the greatest value of each bin."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from typing import Any

from gpumon.analysis.evidence import Track
from gpumon.model.ticks import Cut

_GAP = array("f", [nan])


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
        at = index - self._first
        size = len(self._mean)
        if at != size and size:
            if at < size:
                self._amend(at, values)
                return
            gap = _GAP * (at - size)
            for each in (self._mean, self._low, self._high):
                each.extend(gap)
        elif not size:
            self._first = index
        self._mean.append(sum(values) / count)
        self._low.append(min(values))
        self._high.append(max(values))
        self._weight = count

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
        count = len(values)
        mean, low, high = sum(values) / count, min(values), max(values)
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
        if not self._mean:
            return
        if self._first % 2:
            for each in (self._mean, self._low, self._high):
                each.insert(0, nan)
        if len(self._mean) % 2:
            for each in (self._mean, self._low, self._high):
                each.append(nan)
        self._first //= 2
        # a NaN equals nothing, not even itself: the other of the two is then taken
        self._mean = array("f", [
            (a + b) / 2 if a == a and b == b else b if a != a else a
            for a, b in zip(self._mean[::2], self._mean[1::2])
        ])  # fmt: skip
        self._low = array("f", [
            b if b < a or a != a else a for a, b in zip(self._low[::2], self._low[1::2])
        ])  # fmt: skip
        self._high = array("f", [
            b if b > a or a != a else a for a, b in zip(self._high[::2], self._high[1::2])
        ])  # fmt: skip

    def copy(self) -> Bins:
        other = Bins()
        other._first, other._weight = self._first, self._weight
        other._mean, other._low, other._high = self._mean[:], self._low[:], self._high[:]
        return other

    def track(self, first: int, count: int) -> Track:
        """A copy of the bins `first` … `first + count - 1`, NaN where nothing was read."""
        if not self._mean:
            return Track(_GAP * count, _GAP * count, _GAP * count)
        begin = self._first - first
        before = _GAP * max(begin, 0)
        kept = slice(max(-begin, 0), max(count - begin, 0))
        parts = [before + each[kept] for each in (self._mean, self._low, self._high)]
        mean, low, high = (part + _GAP * (count - len(part)) for part in parts)
        return Track(mean, low, high)
