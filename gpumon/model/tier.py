"""A ring of buckets of one length, as a series keeps them: the newest of a rollup (`model.rollup`).

A bucket keeps the least, the mean and the largest value, so that a dip or a burst of one sample is
still there when a week is shown. Where nothing was measured there is no bucket.
"""

from __future__ import annotations

from array import array
from math import floor, inf, isnan, nan
from typing import Optional, Sequence, TypeVar

from gpumon.model.rollup import MAX_COUNT, Bucket, Rollup, clamped

_Ring = TypeVar("_Ring", "array[float]", "array[int]")

#: the arrays of a ring as long as no bucket was closed: most of the coarse ones' first hours
_NO_VALUES, _NO_COUNTS = array("f"), array("H")
#: so many samples in a row from before a ring's oldest bucket mean: the clock was set back
_LATE_LIMIT = 3


class Tier:
    """A ring of closed buckets, and the open one as plain numbers.

    The arrays grow as long as the ring is not full; then `_next` is the row that is written next.
    A row without samples has the mean NaN, a bridged one a mean and the count 0. Values are means
    alone as long as every bucket had one value only, then mean, low and high in turn: one array,
    because an empty one costs as much as six buckets.
    """

    __slots__ = (
        "_counts", "_late", "_next", "_values", "_width", "count", "end", "high", "index", "kept",
        "low", "step_s", "total",
    )  # fmt: skip

    def __init__(self, step_s: int, kept: int) -> None:
        self.step_s = step_s
        self.kept = kept
        self._restart(0)
        self.end = -inf  # no sample yet: every time lies outside
        self.total, self.count, self.low, self.high = 0.0, 0, inf, -inf

    def _restart(self, index: int) -> None:
        self._values, self._counts = _NO_VALUES, _NO_COUNTS
        self._width = 1
        self._next = 0
        self._open(index)

    def _open(self, index: int) -> None:
        self.index = index
        self.end = float((index + 1) * self.step_s)
        self._late = 0

    def add(
        self, time: float, total: float, count: int, low: float, high: float, held: float
    ) -> None:
        """Take `count` samples around `time`, all of one bucket: their sum and their extremes.

        Usually they belong to the open bucket or open the next; buckets passed over take the
        value `held` (NaN: they are gaps). Late ones amend their bucket, while that is kept.
        """
        end, step_s = self.end, self.step_s
        if end <= time < end + step_s:
            ahead = 1
        elif end - step_s <= time < end:
            ahead = 0
        else:
            ahead = floor(time / step_s) - self.index
        index = self.index + ahead
        if end == -inf or ahead >= self.kept:
            self._restart(index)
        elif ahead > 0:
            mean = self.total if self.count == 1 else self.mean
            self._append(mean, self.low, self.high, self.count)
            for _ in range(1, ahead):
                self._append(held, held, held, 0)
            self._open(index)
        elif ahead == 0:
            self.total += total
            self.count += count
            if low < self.low:
                self.low = low
            if high > self.high:
                self.high = high
            return
        elif index >= self.oldest:
            self._amend(index, total, count, low, high)
            return
        else:
            self._late += 1
            if self._late < _LATE_LIMIT:
                return
            self._restart(index)
        self.total, self.count, self.low, self.high = total, count, low, high

    def extend(
        self,
        counts: Sequence[int],
        totals: Sequence[float],
        lows: Sequence[float],
        highs: Sequence[float],
    ) -> None:
        """Take the buckets behind the open one, which holds something, as `add` would fill them.

        Each has the sum of `count` samples, or the value of a sample before it (count 0); the last
        has one at least.
        """
        rows, width = len(totals), self._width
        means = [self.mean, *totals[:-1]]
        if max(counts) > 1:
            parts = zip(counts, totals, lows, highs)
            found = [clamped(total / n, *ends) if n > 1 else total for n, total, *ends in parts]
            means[1:] = found[:-1]
        low, high = [self.low, *lows], [self.high, *highs]
        if width == 1 and not (low[:-1] == means == high[:-1] or all(map(isnan, means))):
            self._widen()
            width = 3
        self._open(self.index + rows)
        closed = array("H", [min(self.count, MAX_COUNT), *counts[:-1]])
        data = array("f", means)
        if width == 3:
            data = array("f", bytes(12 * rows))
            for place, column in enumerate((means, low[:-1], high[:-1])):
                data[place::3] = array("f", column)
        self._put(closed, data)
        self.total, self.count, self.low, self.high = totals[-1], counts[-1], low[-1], high[-1]

    def _put(self, counts: array[int], data: array[float]) -> None:
        """Write closed buckets behind the others, or in place of the oldest."""
        if len(counts) > self.kept:
            data = data[(len(counts) - self.kept) * self._width :]
            counts = counts[-self.kept :]
        room = self.kept - len(self._counts)
        self._begin_rows()
        self._counts.extend(counts[:room])
        self._values.extend(data[: room * self._width])
        counts, data = counts[room:], data[room * self._width :]
        while counts:
            begin, end = self._next, min(self._next + len(counts), self.kept)
            size = end - begin
            self._counts[begin:end] = counts[:size]
            self._values[begin * self._width : end * self._width] = data[: size * self._width]
            self._next = end % self.kept
            counts, data = counts[size:], data[size * self._width :]

    def _begin_rows(self) -> None:
        if self._counts is _NO_COUNTS:
            self._values, self._counts = array("f"), array("H")

    def begin(self, rollup: Rollup) -> None:
        """Begin with buckets of the same length; the last holds something and stays open."""
        last = len(rollup) - 1
        closed = slice(max(last - self.kept, 0), last)
        self._restart(rollup.last)
        self._counts = rollup.count[closed]
        self._values = array("f", bytes(12 * len(self._counts)))
        columns = (rollup.mean, rollup.low, rollup.high)
        for place, values in enumerate(columns):
            self._values[place::3] = values[closed]
        self._width = 3
        self.count = rollup.count[last]
        self.total = rollup.mean[last] * self.count
        self.low, self.high = rollup.low[last], rollup.high[last]

    def take(self, rollup: Rollup) -> None:
        """Take all buckets of one whose step divides this one's."""
        held = nan
        for index, bucket in enumerate(rollup.buckets(), rollup.first):
            if bucket is None:
                held = nan
            elif not bucket.count:
                held = bucket.mean
            else:
                low, mean, high, count = bucket
                self.add(float(index * rollup.step_s), mean * count, count, low, high, held)
                held = nan

    def precede(self, rollup: Rollup) -> None:
        """Take buckets of the same length from before those kept, as far as there is room.

        What both have becomes one bucket; between them may be a gap.
        """
        if self.end == -inf:
            self.begin(rollup)
            return
        oldest, step_s = self.oldest, self.step_s
        for index, bucket in enumerate(rollup.slice(oldest, self.index + 1).buckets(), oldest):
            if bucket is not None and bucket.count:
                low, mean, high, count = bucket
                self.add(float(index * step_s), mean * count, count, low, high, nan)
        first = max(rollup.first, oldest - self.kept + len(self._counts))
        if first >= min(oldest, rollup.last + 1):
            return
        if self._width == 1:
            self._widen()
        count = oldest - first
        data = array("f", bytes(12 * count))
        for place, column in enumerate(rollup.padded(first, count)):
            data[place::3] = column
        counts = rollup.slice(first, oldest).count
        self._values = data + self._values
        self._counts = counts + array("H", bytes(2 * (count - len(counts)))) + self._counts

    @property
    def mean(self) -> float:
        """Of the open bucket; kept between the extremes, which the rounding of a sum can leave."""
        return clamped(self.total / self.count, self.low, self.high)

    def _append(self, mean: float, low: float, high: float, count: int) -> None:
        """Close a bucket: behind the others, or in place of the oldest."""
        if len(self._counts) == self.kept:
            row = self._next
            self._next = row + 1 if row + 1 < self.kept else 0
            self._write(row, mean, low, high, count)
            return
        self._begin_rows()
        self._counts.append(count if count < MAX_COUNT else MAX_COUNT)
        if self._width == 1 and (low < mean or high > mean):
            self._widen()
        self._values.append(mean)
        if self._width == 3:
            self._values.append(low)
            self._values.append(high)

    def _write(self, row: int, mean: float, low: float, high: float, count: int) -> None:
        self._counts[row] = count if count < MAX_COUNT else MAX_COUNT
        if self._width == 1 and (low < mean or high > mean):
            self._widen()
        if self._width == 1:
            self._values[row] = mean
        else:
            row *= 3
            self._values[row] = mean
            self._values[row + 1] = low
            self._values[row + 2] = high

    def _widen(self) -> None:
        means = self._values
        self._values = array("f", bytes(12 * len(means)))
        for place in range(3):
            self._values[place::3] = means
        self._width = 3

    def _amend(self, index: int, total: float, count: int, low: float, high: float) -> None:
        self._late = 0
        old = self.bucket(index)
        if old is not None and old.count:
            total += old.mean * old.count
            count += old.count
            low, high = min(old.low, low), max(old.high, high)
        self._write(self._row(index), clamped(total / count, low, high), low, high, count)

    def _row(self, index: int) -> int:
        """Where a closed bucket stands."""
        return (self._next + index - self.oldest) % len(self._counts)

    @property
    def oldest(self) -> int:
        """Index of the oldest bucket that is kept."""
        return self.index - len(self._counts)

    @property
    def reach_s(self) -> int:
        """How far back a full ring goes."""
        return self.kept * self.step_s

    def bucket(self, index: int) -> Optional[Bucket]:
        """Bucket `index` of this tier's grid; None where it is a gap or not kept."""
        if index == self.index:
            return Bucket(self.low, self.mean, self.high, self.count) if self.count else None
        if not self.oldest <= index < self.index:
            return None
        row = self._row(index)
        at = row * self._width
        mean = self._values[at]
        if mean != mean:
            return None
        if self._width == 1:
            return Bucket(mean, mean, mean, self._counts[row])
        return Bucket(self._values[at + 1], mean, self._values[at + 2], self._counts[row])

    def rollup(self, first: int, stop: int) -> Rollup:
        """The buckets first … stop − 1 of those kept, in order of time."""
        first = max(first, self.oldest)
        begin = first - self.oldest
        end = max(min(stop, self.index), first) - self.oldest
        width = self._width
        values = _from(self._values, self._next * width)[begin * width : end * width]
        means = values[::width]
        lows, highs = (values[1::3], values[2::3]) if width == 3 else (means[:], means[:])
        counts = _from(self._counts, self._next)[begin:end]
        if self.count and first <= self.index < stop:
            means.append(self.mean)
            lows.append(self.low)
            highs.append(self.high)
            counts.append(min(self.count, MAX_COUNT))
        return Rollup.of(self.step_s, first, counts, means, lows, highs)


def _from(ring: _Ring, place: int) -> _Ring:
    return ring[place:] + ring[:place]
