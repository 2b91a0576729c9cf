"""A ring of buckets of one length: one tier of a series.

A bucket keeps the least, the mean and the largest value, so that a dip or a burst of one sample is
still there when a week is shown. Buckets lie on an absolute grid, [k·step, (k+1)·step) with
k = floor(time / step): a full bucket keeps its value however the shown window moves. Where nothing
was measured there is no bucket.
"""

from __future__ import annotations

from array import array
from math import ceil, floor, inf, nan
from operator import mul
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

_Ring = TypeVar("_Ring", "array[float]", "array[int]")

_MAX_COUNT = 0xFFFF
#: so many samples in a row from before a ring's oldest bucket mean: the clock was set back
_LATE_LIMIT = 3


class Bucket(NamedTuple):
    """What is known of one interval. `count` 0: bridged, with the value of the sample before."""

    low: float
    mean: float
    high: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here


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
        self._values = array("f")
        self._width = 1
        self._counts = array("H")
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

    def begin(self, rows: Rows) -> None:
        """Begin with buckets of the same length; the last of them stays open."""
        stop = len(rows.counts)
        while stop and not rows.counts[stop - 1]:
            stop -= 1
        if not stop:
            return
        last = stop - 1
        closed = slice(max(last - self.kept, 0), last)
        counts = rows.counts[closed]
        self._restart(rows.first + last)
        self._counts = counts
        self._values = array("f", bytes(12 * len(counts)))
        self._values[0::3] = rows.means[closed]
        self._values[1::3] = rows.lows[closed]
        self._values[2::3] = rows.highs[closed]
        self._width = 3
        self.count = rows.counts[last]
        self.total = rows.means[last] * self.count
        self.low, self.high = rows.lows[last], rows.highs[last]

    def take(self, other: Tier) -> None:
        """Take all buckets of a tier whose step divides this one's."""
        held = nan
        for index in range(other.oldest, other.index + 1):
            bucket = other.bucket(index)
            if bucket is None:
                held = nan
            elif not bucket.count:
                held = bucket.mean
            else:
                low, mean, high, count = bucket
                self.add(float(index * other.step_s), mean * count, count, low, high, held)
                held = nan

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
        self._counts.append(count if count < _MAX_COUNT else _MAX_COUNT)
        if self._width == 1 and (low < mean or high > mean):
            self._widen()
        self._values.append(mean)
        if self._width == 3:
            self._values.append(low)
            self._values.append(high)

    def _write(self, row: int, mean: float, low: float, high: float, count: int) -> None:
        self._counts[row] = count if count < _MAX_COUNT else _MAX_COUNT
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

    def rows(self, first: int, stop: int) -> Rows:
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
            counts.append(min(self.count, _MAX_COUNT))
        return Rows(first, means, lows, highs, counts)

    def gathered(self, step: float, first: int, n: int, until: float) -> List[Optional[Bucket]]:
        """The buckets merged into `n` longer ones of `step` seconds, from index `first`.

        One that lies on a border goes where it begins, which depends on absolute time alone.
        """
        stop = floor(until / self.step_s) + 1
        edges = [min(ceil((first + k) * step / self.step_s), stop) for k in range(n + 1)]
        rows = self.rows(edges[0], edges[-1])
        places = [max(edge - rows.first, 0) for edge in edges]
        return [rows.merged(begin, end) for begin, end in zip(places, places[1:])]


class Part(NamedTuple):
    """Of an interval, as far as it is known."""

    known_s: float
    integral: float  # value · s
    low: float
    high: float


class Rows(NamedTuple):
    """Buckets of one tier side by side, from index `first`; NaN and count 0 where there is none."""

    first: int
    means: array[float]
    lows: array[float]
    highs: array[float]
    counts: array[int]

    def between(self, step_s: int, start: float, end: float) -> Optional[Part]:
        """What is known of [start, end), which none but the first and the last bucket may leave."""
        count = len(self.means)
        if not count:
            return None
        overlaps = [float(step_s)] * count
        for at in (0, count - 1):
            begin = (self.first + at) * step_s
            overlaps[at] = min(begin + step_s, end) - max(begin, start)
        columns: Tuple[Sequence[float], ...] = (overlaps, self.means, self.lows, self.highs)
        integral = sum(map(mul, overlaps, self.means))
        if integral != integral or min(overlaps[0], overlaps[-1]) <= 0:  # NaN as soon as one is
            known = [row for row in zip(*columns) if row[0] > 0 and row[1] == row[1]]
            if not known:
                return None
            columns = tuple(zip(*known))
            integral = sum(map(mul, columns[0], columns[1]))
        return Part(sum(columns[0]), integral, min(columns[2]), max(columns[3]))

    def merged(self, start: int, stop: int) -> Optional[Bucket]:
        """One bucket over the rows start … stop − 1, each mean weighted by its count.

        Bridged rows speak only where nothing was measured.
        """
        means, counts = self.means[start:stop], self.counts[start:stop]
        if not means:
            return None
        lows, highs = self.lows[start:stop], self.highs[start:stop]
        least = min(counts)
        if not least:  # rare: rows without samples among them
            return _merged_some(zip(lows, means, highs, counts))
        low, high, count = min(lows), max(highs), sum(counts)
        if least == max(counts):
            mean = sum(means) / len(means)
        else:
            mean = sum(map(mul, means, counts)) / count
        return Bucket(low, clamped(mean, low, high), high, count)


def _merged_some(rows: Iterable[Tuple[float, float, float, int]]) -> Optional[Bucket]:
    known = [row for row in rows if row[1] == row[1]]
    known = [row for row in known if row[3]] or known
    if not known:
        return None
    lows, means, highs, counts = zip(*known)
    count = sum(counts)
    mean = sum(map(mul, means, counts)) / count if count else sum(means) / len(means)
    return Bucket(min(lows), clamped(mean, min(lows), max(highs)), max(highs), count)


def _from(ring: _Ring, place: int) -> _Ring:
    return ring[place:] + ring[:place]


def clamped(mean: float, low: float, high: float) -> float:
    return low if mean < low else high if mean > high else mean
