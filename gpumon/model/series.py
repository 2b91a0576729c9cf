"""A series: one reading over time, in tiers of resolution.

Each tier is a ring of buckets of one length. A bucket keeps the least, the mean and the largest
value, so that a dip or a burst of one sample is still there when a week is shown. Buckets lie
on an absolute grid, [k·step, (k+1)·step) with k = floor(time / step): a full bucket keeps its
value however the shown window moves. Where nothing was measured there is no bucket.
"""

from __future__ import annotations

from array import array
from math import ceil, floor, inf, isfinite, nan
from operator import mul
from typing import Iterable, List, NamedTuple, Optional, Tuple, TypeVar

from gpumon.model.reading import Missing

_Ring = TypeVar("_Ring", "array[float]", "array[int]")

#: (seconds per bucket, buckets kept): 15 min, 3 h, 24 h and 7 days, and 20 buckets beyond, for
#: windows that end a little before the newest sample. 14 bytes a bucket, 63 KB a full series.
#: Each step divides the next, so that tiers agree where one ends and the next begins.
TIERS = ((1, 920), (10, 1100), (60, 1460), (600, 1028))

#: two samples at most so many periods apart have no gap between them; one missed sample is two
BRIDGE_PERIODS = 1.5

_VALUE_LIMIT = 3e38  # single precision holds no more
_TIME_LIMIT = 1e11  # epoch seconds; 3,000 years
_SHORTEST_S = 1e-3  # no bucket that is shown can be shorter
_MAX_COUNT = 0xFFFF
_GAPS_KEPT = 64
#: so many samples in a row from before a ring's oldest bucket mean: the clock was set back
_LATE_LIMIT = 3
_BATCH_S = TIERS[1][0]
_MINUTE_S = 60


class Bucket(NamedTuple):
    """What is known of one interval. `count` 0: bridged, with the value of the sample before."""

    low: float
    mean: float
    high: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here


class Gap(NamedTuple):
    """From `start` to `end` (epoch s) the reading was asked for and missing, for this reason."""

    start: float
    end: float
    missing: Missing


class Stats(NamedTuple):
    """Over an interval: time-weighted mean, extremes, and the share of it that was measured."""

    mean: Optional[float]
    low: Optional[float]
    high: Optional[float]
    coverage: float  # 0 to 1


class _Tier:
    """A ring of closed buckets, and the open one as plain numbers.

    Bucket k lies in row (k − origin) mod kept; the arrays grow as long as the ring is not full.
    A row without samples has the mean NaN, a bridged one a mean and the count 0. As long as every
    bucket had one value only, means, lows and highs are one array.
    """

    __slots__ = (
        "_counts", "_highs", "_late", "_lows", "_means", "_origin", "count", "end", "high",
        "index", "kept", "low", "start", "step_s", "total",
    )  # fmt: skip

    def __init__(self, step_s: int, kept: int) -> None:
        self.step_s = step_s
        self.kept = kept
        self._restart(0)
        self.start = self.end = -inf  # no sample yet: every time lies outside
        self.total, self.count, self.low, self.high = 0.0, 0, inf, -inf

    def _restart(self, index: int) -> None:
        self._means = self._lows = self._highs = array("f")
        self._counts = array("H")
        self._origin = index
        self._open(index)

    def _open(self, index: int) -> None:
        self.index = index
        self.start = float(index * self.step_s)
        self.end = self.start + self.step_s
        self._late = 0

    def add(
        self, time: float, total: float, count: int, low: float, high: float, held: float
    ) -> None:
        """Take `count` samples around `time`, all of one bucket: their sum and their extremes.

        Usually they belong to the open bucket or open the next; buckets passed over take the
        value `held` (NaN: they are gaps). Late ones amend their bucket, while that is kept.
        """
        if self.start <= time < self.end:
            self.total += total
            self.count += count
            if low < self.low:
                self.low = low
            if high > self.high:
                self.high = high
            return
        index = floor(time / self.step_s)
        ahead = index - self.index
        if self.end == -inf or ahead >= self.kept:
            self._restart(index)
        elif ahead > 0:
            mean = self.total if self.count == 1 else self.mean
            self._write(self.index, mean, self.low, self.high, self.count)
            for passed in range(self.index + 1, index):
                self._write(passed, held, held, held, 0)
            self._open(index)
        elif index >= self.oldest:
            self._amend(index, total, count, low, high)
            return
        else:
            self._late += 1
            if self._late < _LATE_LIMIT:
                return
            self._restart(index)
        self.total, self.count, self.low, self.high = total, count, low, high

    @property
    def mean(self) -> float:
        """Of the open bucket; kept between the extremes, which the rounding of a sum can leave."""
        return _clamped(self.total / self.count, self.low, self.high)

    def _write(self, index: int, mean: float, low: float, high: float, count: int) -> None:
        row = (index - self._origin) % self.kept
        if count > _MAX_COUNT:
            count = _MAX_COUNT
        if self._lows is self._means and (low < mean or high > mean):
            self._lows, self._highs = self._means[:], self._means[:]
        one = self._lows is self._means
        if row == len(self._means):
            self._means.append(mean)
            self._counts.append(count)
            if not one:
                self._lows.append(low)
                self._highs.append(high)
        else:
            self._means[row] = mean
            self._counts[row] = count
            if not one:
                self._lows[row] = low
                self._highs[row] = high

    def _amend(self, index: int, total: float, count: int, low: float, high: float) -> None:
        self._late = 0
        old = self.bucket(index)
        if old is not None and old.count:
            total += old.mean * old.count
            count += old.count
            low, high = min(old.low, low), max(old.high, high)
        self._write(index, _clamped(total / count, low, high), low, high, count)

    @property
    def oldest(self) -> int:
        """Index of the oldest bucket that is kept."""
        return max(self._origin, self.index - self.kept + 1)

    def bucket(self, index: int) -> Optional[Bucket]:
        """Bucket `index` of this tier's grid; None where it is a gap or not kept."""
        if index == self.index:
            return Bucket(self.low, self.mean, self.high, self.count) if self.count else None
        if not self.oldest <= index < self.index:
            return None
        row = (index - self._origin) % self.kept
        mean = self._means[row]
        if mean != mean:
            return None
        return Bucket(self._lows[row], mean, self._highs[row], self._counts[row])

    def rows(self, first: int, stop: int) -> _Rows:
        """The buckets first … stop − 1 of those kept, in order of time."""
        first = max(first, self.oldest)
        closed = slice(first - self.oldest, max(min(stop, self.index), first) - self.oldest)
        means = self._in_order(self._means)[closed]
        lows = self._in_order(self._lows)[closed]
        highs = self._in_order(self._highs)[closed]
        counts = self._in_order(self._counts)[closed]
        if self.count and first <= self.index < stop:
            means.append(self.mean)
            lows.append(self.low)
            highs.append(self.high)
            counts.append(min(self.count, _MAX_COUNT))
        return _Rows(first, means, lows, highs, counts)

    def _in_order(self, ring: _Ring) -> _Ring:
        row = (self.oldest - self._origin) % self.kept
        return ring[row:] + ring[:row]


class _Rows(NamedTuple):
    """Buckets of one tier side by side, from index `first`; NaN and count 0 where there is none."""

    first: int
    means: array[float]
    lows: array[float]
    highs: array[float]
    counts: array[int]

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
        return Bucket(low, _clamped(mean, low, high), high, count)


def _merged_some(rows: Iterable[Tuple[float, float, float, int]]) -> Optional[Bucket]:
    known = [row for row in rows if row[1] == row[1]]
    known = [row for row in known if row[3]] or known
    if not known:
        return None
    lows, means, highs, counts = zip(*known)
    count = sum(counts)
    mean = sum(map(mul, means, counts)) / count if count else sum(means) / len(means)
    return Bucket(min(lows), _clamped(mean, min(lows), max(highs)), max(highs), count)


def _clamped(mean: float, low: float, high: float) -> float:
    return low if mean < low else high if mean > high else mean


class Series:
    """One reading over time. Times are epoch seconds of the node's clock.

    `period_s` is how often a sample is to be expected: it decides what is a gap. Of bit masks
    (`throttle_mask`) the mean says nothing; `high` then holds the mask with the highest bit.

    Samples wait in a batch until one lies in another bucket of the second tier, or until somebody
    reads: the coarse tiers then take them as one, which is what makes adding cheap.
    """

    __slots__ = (
        "_arrived", "_batch", "_batch_end", "_first_time", "_gaps", "_held_until", "_high",
        "_last_time", "_last_value", "_peak60", "_tiers", "period_s",
    )  # fmt: skip

    def __init__(self, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self._tiers = tuple(_Tier(step_s, kept) for step_s, kept in TIERS)
        self._batch: List[Tuple[float, float, float, float]] = []  # time, value, low, high
        self._batch_end = -inf
        self._arrived = -inf  # time of the sample that came in last
        self._last_time, self._last_value = -inf, nan  # the newest that is in the tiers
        self._held_until = -inf  # a sample up to then continues the line without a gap
        self._first_time = inf
        self._high = -inf
        self._peak60: Optional[float] = None
        self._gaps: List[Gap] = []

    def add(
        self, time: float, value: float, low: Optional[float] = None, high: Optional[float] = None
    ) -> None:
        """Add one sample; `low` and `high` are extremes known from within its tick.

        Values that are not finite are dropped. Samples may come late: they then amend the bucket
        they belong to, so far back as a tier reaches.
        """
        if not (-_VALUE_LIMIT < value < _VALUE_LIMIT and -_TIME_LIMIT < time < _TIME_LIMIT):
            return
        if not self._arrived <= time < self._batch_end:
            self._settle()
            self._batch_end = (time // _BATCH_S + 1) * _BATCH_S
        self._arrived = time
        self._batch.append(
            (time, value, value if low is None else low, value if high is None else high)
        )

    def miss(self, time: float, missing: Missing) -> None:
        """The reading was asked for at `time` and is missing: a gap with its reason."""
        self._settle()
        gaps = self._gaps
        if self._held_until == -inf and gaps and gaps[-1].missing == missing:
            gaps[-1] = Gap(gaps[-1].start, max(time, gaps[-1].end), missing)
        else:
            gaps.append(Gap(time, time, missing))
            del gaps[:-_GAPS_KEPT]
        self._held_until = -inf

    def _settle(self) -> None:
        """Bring the waiting samples into the tiers."""
        batch = self._batch
        if not batch:
            return
        finest, *coarser = self._tiers
        bridge_s = BRIDGE_PERIODS * self.period_s
        held_at_first = self._last_value if batch[0][0] <= self._held_until else nan
        total, least, largest = 0.0, inf, -inf
        for time, value, low, high in batch:
            low = low if _VALUE_LIMIT > value > low > -_VALUE_LIMIT else value
            high = high if value < high < _VALUE_LIMIT else value
            held = self._last_value if time <= self._held_until else nan
            finest.add(time, value, 1, low, high, held)
            total += value
            least = low if low < least else least
            largest = high if high > largest else largest
            # else it came late; the finest tier starts anew when the clock was set back
            if time >= self._last_time or finest.end <= self._last_time:
                self._last_time, self._last_value = time, value
                self._held_until = time + bridge_s
        for tier in coarser:
            if tier.step_s == _MINUTE_S and time >= tier.end:
                self._note_peak(tier)
            tier.add(batch[0][0], total, len(batch), least, largest, held_at_first)
        self._first_time = min(self._first_time, batch[0][0])
        self._high = max(self._high, largest)
        batch.clear()

    def _note_peak(self, minute: _Tier) -> None:
        """A minute is full: it counts for the peak when at least half of it was measured."""
        if minute.count * self.period_s * 2 >= _MINUTE_S:
            self._peak60 = max(minute.mean, -inf if self._peak60 is None else self._peak60)

    @property
    def gaps(self) -> List[Gap]:
        """The latest stretches with a reason for having no value, oldest first."""
        return list(self._gaps)

    @property
    def first_time(self) -> Optional[float]:
        """Time of the oldest sample ever added."""
        self._settle()
        return None if self._first_time == inf else self._first_time

    @property
    def last(self) -> Optional[Tuple[float, float]]:
        """Time and value of the newest sample."""
        self._settle()
        return None if self._last_time == -inf else (self._last_time, self._last_value)

    @property
    def high(self) -> Optional[float]:
        """The largest value since the first sample, whatever the tiers still hold."""
        self._settle()
        return None if self._high == -inf else self._high

    @property
    def peak60(self) -> Optional[float]:
        """The largest mean of a full minute of the clock; None as long as none has passed."""
        self._settle()
        return self._peak60

    def window(
        self, end: float, span_s: float, n: int, until: float = inf
    ) -> List[Optional[Bucket]]:
        """The `n` aligned buckets of span_s / n seconds up to the one that holds `end`.

        Without what came after `until`: a screen that is held still stays as it is. They come
        from the finest tier that reaches back to the first of them. Where its buckets are longer
        than those asked for, each is repeated over the ones it covers.
        """
        if n < 1 or not (_SHORTEST_S * n <= span_s < _TIME_LIMIT and abs(end) < _TIME_LIMIT):
            return [None] * max(n, 0)
        self._settle()
        step = span_s / n
        last = floor(end / step)
        first = last - n + 1
        reach_s = span_s + max(self._last_time - end, 0.0)
        tier = next((t for t in self._tiers if t.kept * t.step_s >= reach_s), self._tiers[-1])
        if tier.step_s <= step:
            shown = _gathered(tier, step, first, n, min(end, until))
        else:
            rows = (floor((k + 0.5) * step / tier.step_s) for k in range(first, last + 1))
            shown = [tier.bucket(row) for row in rows]
        self._hold_newest(shown, step, first, until)
        return shown

    def _hold_newest(
        self, shown: List[Optional[Bucket]], step: float, first: int, until: float
    ) -> None:
        """Let the newest sample stand until the next is overdue: no flicker at the right edge."""
        if not isfinite(self._held_until):
            return
        value, newest, held_until = self._last_value, self._last_time, self._held_until
        if until < newest:  # held still: the newest of then
            value = next((bucket.mean for bucket in reversed(shown) if bucket is not None), value)
            newest, held_until = until, until + BRIDGE_PERIODS * self.period_s
        after, overdue = floor(newest / step) + 1, floor(held_until / step)
        for at in range(max(after - first, 0), min(overdue - first + 1, len(shown))):
            if shown[at] is None:
                shown[at] = Bucket(value, value, value, 0)

    def stats(self, start: float, end: float) -> Stats:
        """Statistics over [start, end), each part of it from the finest tier that still has it.

        The mean weights every interval that was measured alike, however many samples fell in it.
        """
        self._settle()
        begin = max(start, self._first_time)
        if not end > begin:
            return Stats(None, None, None, 0.0)
        weight = total = 0.0
        low, high = inf, -inf
        upper = end
        for n, tier in enumerate(self._tiers):
            lower = float(tier.oldest * tier.step_s)
            if n + 1 < len(self._tiers):  # hand over at a border of both
                coarser = self._tiers[n + 1].step_s
                lower = ceil(lower / coarser) * coarser
            lower = max(lower, begin)
            step_s = tier.step_s
            rows = tier.rows(floor(lower / step_s), ceil(upper / step_s))
            at = float(rows.first * step_s)
            for mean, least, most in zip(rows.means, rows.lows, rows.highs):
                overlap = min(at + step_s, upper) - max(at, lower)
                at += step_s
                if overlap > 0 and mean == mean:
                    weight += overlap
                    total += overlap * mean
                    low = least if least < low else low
                    high = most if most > high else high
            upper = min(upper, lower)
        if not weight:
            return Stats(None, None, None, 0.0)
        return Stats(
            _clamped(total / weight, low, high), low, high, min(weight / (end - start), 1.0)
        )


def _gathered(tier: _Tier, step: float, first: int, n: int, until: float) -> List[Optional[Bucket]]:
    """The tier's buckets merged into `n` longer ones of `step` seconds, from index `first`.

    One that lies on a border goes where it begins, which depends on absolute time alone.
    """
    stop_row = floor(until / tier.step_s) + 1
    edges = [min(ceil((first + k) * step / tier.step_s), stop_row) for k in range(n + 1)]
    rows = tier.rows(edges[0], edges[-1])
    places = [max(edge - rows.first, 0) for edge in edges]
    return [rows.merged(start, stop) for start, stop in zip(places, places[1:])]
