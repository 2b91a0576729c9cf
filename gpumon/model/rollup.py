"""A rollup: one reading in buckets of time, each with its low, mean, high and count.

Buckets lie on an absolute grid, [k · step, (k + 1) · step) with k = floor(time / step): a full
bucket keeps its value however the window that is shown moves. An aggregation keeps rollups whole, a
recording holds those of 10 s as lines, a series keeps the newest buckets of several steps
(`model.series`). A *gap* has the mean NaN and the count 0. A bucket with a mean and the count 0 is
bridged: nothing was measured in it, the reading before it still stands.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import nan
from operator import mul
from typing import NamedTuple, Optional, TypeVar

#: seconds of a bucket on the finest grid of an aggregation, and in a recording's rollup lines
STEP_S = 10.0
MAX_COUNT = 0xFFFF
#: gaps that are added to a rollup that is shared, rather than copied: nodes begin a bit apart
_MAX_PADDING = 6
_Number = TypeVar("_Number", int, float)
_GAP, _NONE = array("f", [nan]), array("H", [0])
#: so many counts are one object wherever they are the same, as most series of a node are read in
#: the same ticks; longer ones belong to their rollup
_SHARED_UP_TO = 128
_MAX_SHARED = 512
_SHARED: dict[bytes, array[int]] = {}


class Bucket(NamedTuple):
    """What is known of one interval. `count` 0: bridged, with the value of the sample before."""

    low: float
    mean: float
    high: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here


class Part(NamedTuple):
    """Of an interval, as far as it is known."""

    known_s: float
    integral: float  # value · s
    low: float
    high: float


class Rollup:
    """The buckets from `first` on; 6 bytes each, 14 where one had several values."""

    __slots__ = ("_counts", "_highs", "_lows", "_means", "first", "step_s")

    def __init__(self, step_s: float = STEP_S) -> None:
        self.step_s = step_s
        self.first = 0
        self._means, self._counts = array("f"), _shared(array("H"))
        self._lows: Optional[array[float]] = None  # None: lows and highs are the means
        self._highs: Optional[array[float]] = None

    @classmethod
    def of(
        cls,
        step_s: float,
        first: int,
        counts: array[int],
        means: array[float],
        lows: Optional[array[float]] = None,
        highs: Optional[array[float]] = None,
    ) -> Rollup:
        """Of these arrays themselves; without lows and highs these are the means."""
        made = cls.__new__(cls)
        made.step_s, made.first, made._counts = step_s, first, _shared(counts)
        made._means, made._lows, made._highs = means, lows, highs
        return made

    # -- adding

    def append(self, total: float, count: int, low: float, high: float) -> None:
        """Put a bucket behind the others: the sum, number and extremes of its values."""
        mean = total if count == 1 else clamped(total / count, low, high)
        if self._lows is None and (low < mean or high > mean):
            self._widen()
        self._means.append(mean)
        if len(self._counts) > _SHARED_UP_TO:
            self._counts.append(count if count < MAX_COUNT else MAX_COUNT)
        else:
            self._counts = _shared(self._counts + array("H", [min(count, MAX_COUNT)]))
        if self._lows is not None and self._highs is not None:
            self._lows.append(low)
            self._highs.append(high)

    def _count(self, more: array[int]) -> None:
        """These are the counts of the buckets that follow."""
        if len(self._counts) > _SHARED_UP_TO:
            self._counts.extend(more)
        else:
            self._counts = _shared(self._counts + more)

    def _widen(self) -> None:
        self._lows, self._highs = self._means[:], self._means[:]

    def _arrays(self) -> list[array[float]]:
        return [each for each in (self._means, self._lows, self._highs) if each is not None]

    def skip(self, count: int, held: float = nan) -> None:
        """Put so many buckets without values behind the others: bridged by `held`, or a gap."""
        for each in self._arrays():
            each.extend(array("f", [held]) * count)
        self._count(_NONE * count)

    def _amend(self, at: int, total: float, count: int, low: float, high: float) -> None:
        """Of the bucket at the place `at`, more values."""
        if known := self._counts[at]:
            total += self._means[at] * known
            count += known
            low, high = min(self.low[at], low), max(self.high[at], high)
        if self._lows is None and low < high:
            self._widen()
        self._means[at] = clamped(total / count, low, high)
        if len(self._counts) <= _SHARED_UP_TO:
            self._counts = self._counts[:]
        self._counts[at] = min(count, MAX_COUNT)
        self._counts = _shared(self._counts)
        if self._lows is not None and self._highs is not None:
            self._lows[at], self._highs[at] = low, high

    def put(self, index: int, values: Sequence[float]) -> None:
        """Some values, at least one, of one bucket; it may get them in several parts."""
        means = self._means
        if means and index == self.first + len(means):  # mostly
            self.append(sum(values), len(values), min(values), max(values))
        else:
            self.add(index, sum(values), len(values), min(values), max(values))

    def add(self, index: int, total: float, count: int, low: float, high: float) -> None:
        """The same of a bucket that may be known in part; one before the first is dropped."""
        size = len(self._means)
        at = index - self.first
        if size and at < size and not (self._counts[0] and self._counts[-1]):
            self.strip()
            size, at = len(self._means), index - self.first
        if not size:
            self.first = index
        elif at < 0:
            return
        elif at < size:
            self._amend(at, total, count, low, high)
            return
        elif at > size:
            self.skip(at - size)
        self.append(total, count, low, high)

    def extend(self, other: Rollup) -> None:
        """Take all buckets of another one of the same step; only the first may be known in part."""
        means = self._means
        if not other._means:
            return
        if not means:
            self.step_s, self.first = other.step_s, other.first
        elif other.first != self.first + len(means):
            self.strip()
            ahead = other.first - self.first - len(means)
            if ahead < 0:
                self._amend_all(other)
                return
            self.skip(ahead)
        if self._lows is None and other._lows is not None:
            self._widen()
        means.extend(other._means)
        self._count(other._counts)
        if self._lows is not None and self._highs is not None:
            self._lows.extend(other.low)
            self._highs.extend(other.high)

    def _amend_all(self, other: Rollup) -> None:
        rows = zip(other.low, other.mean, other.high, other.count)
        for index, (low, mean, high, count) in enumerate(rows, other.first):
            if count:
                self.add(index, mean * count, count, low, high)

    # -- reading

    def __len__(self) -> int:
        return len(self._means)

    @property
    def mean(self) -> array[float]:
        return self._means

    @property
    def low(self) -> array[float]:
        return self._means if self._lows is None else self._lows

    @property
    def high(self) -> array[float]:
        return self._means if self._highs is None else self._highs

    @property
    def count(self) -> array[int]:
        return self._counts

    @property
    def last(self) -> int:
        """Index of the newest bucket."""
        return self.first + len(self._means) - 1

    def buckets(self) -> list[Optional[Bucket]]:
        """All of them, None where one is a gap."""
        rows = zip(self.low, self.mean, self.high, self._counts)
        return [Bucket(*row) if row[1] == row[1] else None for row in rows]

    def slice(self, first: int, stop: int) -> Rollup:
        """A copy of the buckets first … stop − 1."""
        found = Rollup(self.step_s)
        found.first = max(first, self.first)
        kept = slice(found.first - self.first, max(stop - self.first, 0))
        found._means, found._counts = self._means[kept], _shared(self._counts[kept])
        if self._lows is not None and self._highs is not None:
            found._lows, found._highs = self._lows[kept], self._highs[kept]
        return found

    def copy(self) -> Rollup:
        return self.slice(self.first, self.last + 1)

    def drop(self, count: int) -> None:
        """Forget so many of the oldest buckets."""
        for each in self._arrays():
            del each[:count]
        self._counts = _shared(self._counts[count:])
        self.first += count

    def coarsen(self, ratio: int) -> None:
        """Become `coarsened`."""
        found = self.coarsened(ratio)
        for name in self.__slots__:
            setattr(self, name, getattr(found, name))

    def pad(self, first: int, count: int) -> bool:
        """Whether it has exactly these buckets, now that some gaps were added at its ends."""
        before = self.first - first
        behind = count - before - len(self._means)
        if not (before or behind):
            return bool(self._means)
        if not self._means or min(before, behind) < 0:
            return False
        # gaps that stand at its end count, too: a series that has ended shall not grow on
        padding = _leading_gaps(self._counts[: -_MAX_PADDING - 2 : -1])
        if max(before, behind + padding) > _MAX_PADDING:
            return False
        for each in self._arrays():
            each[:0] = _GAP * before
        self._counts = _shared(_NONE * before + self._counts)
        self.first = first
        self.skip(behind)
        return True

    def strip(self) -> None:
        """Take the gaps at its ends away."""
        before, behind = _leading_gaps(self._counts), _leading_gaps(self._counts[::-1])
        kept = slice(before, len(self._means) - behind)
        for each in self._arrays():
            each[:] = each[kept]
        self._counts = _shared(self._counts[kept])
        self.first += before

    def padded(self, first: int, count: int) -> tuple[array[float], array[float], array[float]]:
        """Mean, low and high of `count` buckets from index `first`, gaps where there is none."""
        begin = self.first - first
        before = _GAP * min(max(begin, 0), count)
        kept = slice(max(-begin, 0), max(count - begin, 0))
        mean, low, high = self.mean, self.low, self.high

        def part(values: array[float]) -> array[float]:
            found = before + values[kept]
            return found + _GAP * (count - len(found))

        own = part(mean)
        return own, own if low is mean else part(low), own if high is mean else part(high)

    def between(self, start: float, end: float) -> Optional[Part]:
        """What is known of [start, end), which none but the first and the last bucket may leave."""
        means, step_s = self.mean, self.step_s
        count = len(means)
        if not count:
            return None
        overlaps = [float(step_s)] * count
        for at in (0, count - 1):
            begin = (self.first + at) * step_s
            overlaps[at] = min(begin + step_s, end) - max(begin, start)
        columns: tuple[Sequence[float], ...] = (overlaps, means, self.low, self.high)
        integral = sum(map(mul, overlaps, means))
        if integral != integral or min(overlaps[0], overlaps[-1]) <= 0:  # NaN as soon as one is
            known = [row for row in zip(*columns) if row[0] > 0 and row[1] == row[1]]
            if not known:
                return None
            columns = tuple(zip(*known))
            integral = sum(map(mul, columns[0], columns[1]))
        return Part(sum(columns[0]), integral, min(columns[2]), max(columns[3]))

    def merged(self, start: int, stop: int) -> Optional[Bucket]:
        """One bucket over those at the places start … stop − 1, each mean weighted by its count.

        Bridged ones count only where nothing was measured.
        """
        means, counts = self._means[start:stop], self._counts[start:stop]
        if not means:
            return None
        lows, highs = self.low[start:stop], self.high[start:stop]
        least = min(counts)
        if not least:  # rare: some without samples among them
            return merged(zip(lows, means, highs, counts))
        low, high, count = min(lows), max(highs), sum(counts)
        if least == max(counts):
            mean = sum(means) / len(means)
        else:
            mean = sum(map(mul, means, counts)) / count
        return Bucket(low, clamped(mean, low, high), high, count)

    # -- other steps

    def coarsened(self, ratio: int) -> Rollup:
        """The same in buckets that are `ratio` times as long. Costs what is there, however long
        they are.
        """
        length = len(self._means)
        if not length:
            return Rollup(self.step_s * ratio)
        head = min(-self.first % ratio, length)  # those before the first whole bucket
        stop = length - (length - head) % ratio
        own = self._counts[head:stop]
        counts = [sum(group) for group in _groups(own, ratio)]
        mean, low, high = (each[head:stop] for each in (self.mean, self.low, self.high))
        means = array("f", [sum(group) / ratio for group in _groups(mean, ratio)])
        lows = array("f", map(min, _groups(low, ratio)))
        highs = array("f", map(max, _groups(high, ratio)))
        full = ratio * max(own, default=0)
        for at, known in enumerate(counts):
            if known < full:  # to be weighted, or with NaN, which min and max do not see
                begin = head + at * ratio
                bucket = self.merged(begin, begin + ratio)
                lows[at], means[at], highs[at], _ = bucket or (nan, nan, nan, 0)
        for at, begin, end in ((0, 0, head), (len(counts) + bool(head), stop, length)):
            if begin < end:
                bucket = self.merged(begin, end)
                values = bucket or (nan, nan, nan, 0)
                for column, value in zip((lows, means, highs), values):
                    column.insert(at, value)
                counts.insert(at, sum(self._counts[begin:end]))
        extremes = () if lows == highs else (lows, highs)
        count = array("H", [min(n, MAX_COUNT) for n in counts])
        return Rollup.of(self.step_s * ratio, self.first // ratio, count, means, *extremes)

    def expanded(self, ratio: int) -> Rollup:
        """The same in buckets of a `ratio`th of the length: each stands for all that it covers."""
        columns = [_repeated(each, ratio) for each in self._arrays()]
        counts = _repeated(array("H", [-(-count // ratio) for count in self._counts]), ratio)
        return Rollup.of(self.step_s / ratio, self.first * ratio, counts, *columns)


def _shared(counts: array[int]) -> array[int]:
    """The same counts, which nobody may change, or if they are many, these themselves."""
    if len(counts) > _SHARED_UP_TO:
        return counts
    if len(_SHARED) >= _MAX_SHARED:
        _SHARED.clear()
    return _SHARED.setdefault(counts.tobytes(), counts)


def _repeated(values: array[_Number], times: int) -> array[_Number]:
    return array(values.typecode, [value for value in values for _ in range(times)])


def _leading_gaps(counts: array[int]) -> int:
    return next((n for n, count in enumerate(counts) if count), len(counts))


def _groups(values: array[_Number], size: int) -> Iterator[tuple[_Number, ...]]:
    return zip(*[iter(values)] * size) if len(values) >= size else iter(())


def merged(rows: Iterable[tuple[float, float, float, int]]) -> Optional[Bucket]:
    """One bucket over those of (low, mean, high, count), gaps among them; see `Rollup.merged`."""
    known = [row for row in rows if row[1] == row[1]]
    known = [row for row in known if row[3]] or known
    if not known:
        return None
    lows, means, highs, counts = zip(*known)
    count = sum(counts)
    mean = sum(map(mul, means, counts)) / count if count else sum(means) / len(means)
    return Bucket(min(lows), clamped(mean, min(lows), max(highs)), max(highs), count)


def clamped(mean: float, low: float, high: float) -> float:
    """Between the extremes, which the rounding of a sum can leave."""
    return low if mean < low else high if mean > high else mean
