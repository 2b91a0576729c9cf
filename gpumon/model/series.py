"""A series: one reading over time, in tiers of resolution (`model/tier.py`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import compress
from math import ceil, floor, inf, isfinite, nan
from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gpumon.model.backfill import BACKFILL_S, BackfillSeries
from gpumon.model.retention import RETENTIONS, Tiers
from gpumon.model.rollup import Bucket, Rollup, clamped
from gpumon.model.runs import Before, Columns, Grid, Part, behind, buckets_of, grid_of
from gpumon.model.tier import Tier

#: two samples at most so many periods apart have no gap between them; one missed sample is two
BRIDGE_PERIODS = 1.5

_VALUE_LIMIT = 3e38  # single precision holds no more
_TIME_LIMIT = 1e11  # epoch seconds; 3,000 years
_SHORTEST_S = 1e-3  # no bucket that is shown can be shorter
_MINUTE_S = 60
#: samples that take less time one by one than together
_FEW = 5


class Stats(NamedTuple):
    """Over an interval: time-weighted mean, extremes, and the share of it that was measured."""

    mean: Optional[float]
    low: Optional[float]
    high: Optional[float]
    coverage: float  # 0 to 1


class Series:
    """One reading over time. Times are epoch seconds of the node's clock.

    `period_s` is how often a sample is to be expected: it decides what is a gap. Of bit masks
    (`throttle_mask`) the mean says nothing; `high` then holds the mask with the highest bit.

    The finest tier takes every sample. Their sum waits until one lies in another bucket of the
    second tier, which then takes them as one; the tiers behind it take as one what lies in a bucket
    of the third. Who reads has all taken before. That is what makes adding cheap.
    """

    __slots__ = (
        "_batch_end", "_coarse", "_count", "_first_time", "_held_at_first", "_held_until", "_high",
        "_known_until", "_largest", "_last_time", "_last_value", "_least", "_past_high",
        "_past_time", "_peak60", "_since", "_tiers", "_total", "period_s",
    )  # fmt: skip

    def __init__(self, period_s: float = 1.0, tiers: Tiers = RETENTIONS[0].tiers) -> None:
        """No tier is made that is finer than the samples, where the next one suits them."""
        self.period_s = period_s
        rare_s = min(period_s, _MINUTE_S)
        finest = next(n for n, (_, after) in enumerate(zip(tiers, tiers[1:])) if after[0] > rare_s)
        self._tiers = tuple(Tier(step_s, kept) for step_s, kept in tiers[finest:])
        # what waits for the coarse tiers: time of the first, sum, number, extremes
        self._since, self._total, self._count = 0.0, 0.0, 0
        self._least, self._largest = inf, -inf
        self._held_at_first = nan
        self._batch_end = -inf
        self._coarse: Optional[Part] = None  # what waits for those behind the second
        self._last_time, self._last_value = -inf, nan  # the newest
        self._held_until = -inf  # a sample up to then continues the line without a gap
        self._known_until = -inf  # what came before is in all but the finest tier already
        self._first_time = self._past_time = inf
        self._high = self._past_high = -inf
        self._peak60: Optional[float] = None

    def add(
        self, time: float, value: float, low: Optional[float] = None, high: Optional[float] = None
    ) -> None:
        """Add one sample; `low` and `high` are extremes known from within its tick.

        Values that are not finite are dropped. Samples may come late: they then amend the bucket
        they belong to, so far back as a tier reaches.
        """
        if not (-_VALUE_LIMIT < value < _VALUE_LIMIT and -_TIME_LIMIT < time < _TIME_LIMIT):
            return
        if low is None or not value > low > -_VALUE_LIMIT:
            low = value
        if high is None or not value < high < _VALUE_LIMIT:
            high = value
        if time < self._known_until:
            self._refine(time, value, low, high)
            return
        last_time = self._last_time
        held = self._last_value if time <= self._held_until else nan
        if not last_time <= time < self._batch_end:
            self._begin_batch(time)
        finest = self._tiers[0]
        if finest.step_s == _MINUTE_S and time >= finest.end:
            self._note_peak(finest)
        finest.add(time, value, 1, low, high, held)
        if not self._count:
            self._since, self._held_at_first = time, held
        self._total += value
        self._count += 1
        if low < self._least:
            self._least = low
        if high > self._largest:
            self._largest = high
        # else it came late; the finest tier starts anew when the clock was set back
        if time >= last_time or finest.end <= last_time:
            self._note_last(time, value)

    def extend(
        self,
        times: Sequence[float],
        values: Sequence[float],
        lows: Sequence[float],
        highs: Sequence[float],
    ) -> None:
        """Add samples in order of time, each with its extremes (its value, where there are none).

        The same as to add them one by one. Where they are many, it takes a fraction of the time.
        """
        known = bisect_left(times, self._known_until)
        if known:
            first = times[:known], values[:known], lows[:known], highs[:known]
            together = self._take(self._refine, *first)
            if together is not None:
                self._note_last(together[0][-1], together[1][-1])
        if known < len(times):
            together = self._take(self.add, *behind(known, times, values, lows, highs))
            if together is not None:
                self._wait(*together)

    def _take(
        self,
        add: Callable[[float, float, float, float], None],
        times: Sequence[float],
        values: Sequence[float],
        lows: Sequence[float],
        highs: Sequence[float],
    ) -> Optional[Columns]:
        """Have the finest tier take samples: by `add` where they are few, or of its open bucket;
        the others together, which are returned.
        """
        finest = self._tiers[0]
        if not finest.count and len(times) > _FEW:
            add(times[0], values[0], lows[0], highs[0])
            times, values, lows, highs = behind(1, times, values, lows, highs)
        begin = len(times)
        grid = grid_of(times, finest.step_s) if begin > _FEW else None
        if grid is not None and self._fits(grid, lows, highs):
            begin = bisect_right(grid.places, finest.index)
        for each in zip(times[:begin], values[:begin], lows[:begin], highs[:begin]):
            add(*each)
        if begin == len(times):
            return None
        times, values, lows, highs = behind(begin, times, values, lows, highs)
        grid = grid_of(times, finest.step_s)
        before = Before(finest.index, self._last_value, self._held_until)
        bridge_s = BRIDGE_PERIODS * self.period_s
        finest.extend(*buckets_of(grid, before, bridge_s, values, lows, highs))
        return times, values, lows, highs

    def _fits(self, grid: Grid, lows: Sequence[float], highs: Sequence[float]) -> bool:
        """Whether the finest tier can take such samples together."""
        finest = self._tiers[0]
        return bool(
            finest.count
            and finest.step_s < _MINUTE_S
            and finest.index <= grid.places[0]
            and grid.places[-1] < finest.index + finest.kept
            and grid.is_ordered
            and min(lows) > -_VALUE_LIMIT
            and max(highs) < _VALUE_LIMIT
        )

    def _refine(self, time: float, value: float, low: float, high: float) -> None:
        """Add a sample of which a backfill has told the coarser tiers."""
        finest = self._tiers[0]
        if finest.step_s < BACKFILL_S:
            held = self._last_value if time <= self._held_until else nan
            finest.add(time, value, 1, low, high, held)
        self._note_last(time, value)

    def _note_last(self, time: float, value: float) -> None:
        self._last_time, self._last_value = time, value
        self._held_until = time + BRIDGE_PERIODS * self.period_s

    def _wait(
        self,
        times: Sequence[float],
        values: Sequence[float],
        lows: Sequence[float],
        highs: Sequence[float],
    ) -> None:
        """Have them wait for the coarse tiers; each is newer than what waits."""
        time = times[0]
        held = self._last_value if time <= self._held_until else nan
        if not self._last_time <= time < self._batch_end:
            self._begin_batch(time)
        if not self._count:
            self._since, self._held_at_first = time, held
        end = bisect_left(times, self._batch_end)
        self._total = sum(values[:end], self._total)
        self._count += end
        self._least = min(self._least, *lows[:end])
        self._largest = max(self._largest, *highs[:end])
        self._last_time, self._last_value = times[end - 1], values[end - 1]
        self._held_until = self._last_time + BRIDGE_PERIODS * self.period_s
        if end < len(times):
            self._wait_in_runs(*behind(end, times, values, lows, highs))

    def _wait_in_runs(
        self,
        times: Sequence[float],
        values: Sequence[float],
        lows: Sequence[float],
        highs: Sequence[float],
    ) -> None:
        """The same with those behind the bucket of what waits, which is complete: all buckets of
        the second tier but the last go there together.
        """
        self._settle_second()
        step_s, bridge_s = self._tiers[1].step_s, BRIDGE_PERIODS * self.period_s
        last, until, begin = self._last_value, self._held_until, 0
        runs: List[Part] = []
        while begin < len(times):
            since = times[begin]
            self._batch_end = (since // step_s + 1) * step_s
            end = bisect_left(times, self._batch_end, begin)
            own = values[begin:end]
            least = own if lows is values else lows[begin:end]
            largest = own if highs is values else highs[begin:end]
            held = last if since <= until else nan
            runs.append(Part(since, sum(own, 0.0), len(own), min(least), max(largest), held))
            last, until, begin = own[-1], times[end - 1] + bridge_s, end
        newest = runs.pop()
        self._settle_runs(runs)
        self._since, self._total, self._count = newest.since, newest.total, newest.count
        self._least, self._largest = newest.least, newest.largest
        self._held_at_first = newest.held
        self._last_time, self._last_value, self._held_until = times[-1], last, until

    def _begin_batch(self, time: float) -> None:
        """What waits is complete: `time` lies in another bucket of the second tier."""
        self._settle_second()
        step_s = self._tiers[1].step_s
        self._batch_end = (time // step_s + 1) * step_s

    def begin(self, backfill: BackfillSeries) -> None:
        """Take what was before the first sample that comes."""
        self._settle()
        rollups = backfill.rows
        finest = rollups[min(rollups)]
        for tier in self._tiers:
            if tier.end == -inf and tier.step_s in rollups:
                tier.begin(rollups[tier.step_s])
            elif tier.step_s >= finest.step_s:
                tier.take(_coarsest(rollups.values(), tier.step_s))
        minutes = rollups[_MINUTE_S]
        measured = (count * self.period_s * 2 >= _MINUTE_S for count in minutes.count[:-1])
        peaks = list(compress(minutes.mean, measured))
        if peaks:
            self._peak60 = max(max(peaks), -inf if self._peak60 is None else self._peak60)
        self._first_time = min(self._first_time, backfill.first_time)
        self._high = max(self._high, backfill.high)
        self._known_until = float((finest.last + 1) * finest.step_s)
        self._last_time, self._last_value = finest.last * finest.step_s, finest.mean[-1]
        self._held_until = self._last_time + BRIDGE_PERIODS * max(self.period_s, finest.step_s)

    def precede(self, past: Series) -> None:
        """Have windows show, too, what another series holds of the time before the first sample.

        Peaks and statistics still begin with that sample.
        """
        self._settle()
        past._settle()
        rollups = [tier.rollup(tier.oldest, tier.index + 1) for tier in past._tiers if tier.count]
        for tier in self._tiers:
            if found := _of_step(rollups, tier.step_s, tier.kept):
                tier.precede(found)
        self._past_time = min(self._past_time, past._first_time)
        self._past_high = max(self._past_high, past._high)

    def miss(self) -> None:
        """The reading was due and is missing: the line ends."""
        self._held_until = -inf

    def begin_peaks(self) -> None:
        """Let peaks count from now on; what the tiers hold stays, and the line ends."""
        self._settle()
        self._high, self._peak60, self._held_until = -inf, None, -inf

    def downsample(self, tiers: Tiers) -> None:
        """Go on with other tiers, which take what the old ones hold as far as they suit."""
        self._settle()
        old = [tier.rollup(tier.oldest, tier.index + 1) for tier in self._tiers]
        self._batch_end = -inf
        self._tiers = Series(self.period_s, tiers)._tiers
        for tier in self._tiers:
            if tier.step_s >= old[0].step_s:
                tier.take(_coarsest(old, tier.step_s))

    def _settle(self) -> None:
        """Bring what waits into the coarse tiers."""
        self._settle_second()
        self._settle_coarse()

    def _settle_second(self) -> None:
        """Bring it into the second tier, and have it wait for those behind."""
        if not self._count:
            return
        part = Part(
            self._since, self._total, self._count, self._least, self._largest, self._held_at_first
        )
        self._total, self._count, self._least, self._largest = 0.0, 0, inf, -inf
        self._settle_part(part)

    def _settle_part(self, part: Part) -> None:
        self._add_to(self._tiers[1], part)
        self._settle_behind(part)

    def _settle_runs(self, runs: Sequence[Part]) -> None:
        """Several parts, in order of time and each of a bucket of its own behind the open one."""
        second = self._tiers[1]
        places = [int(part.since // second.step_s) for part in runs]
        is_short = bool(runs) and places[-1] < second.index + second.kept
        if not (is_short and second.count and second.step_s < _MINUTE_S):
            for part in runs:
                self._settle_part(part)
            return
        rows: List[Tuple[int, float, float, float]] = []
        index = second.index + 1
        for place, part in zip(places, runs):
            rows += [(0, part.held, part.held, part.held)] * (place - index)
            rows.append((part.count, part.total, part.least, part.largest))
            index = place + 1
        second.extend(*zip(*rows))
        for part in runs:
            self._settle_behind(part)

    def _settle_behind(self, part: Part) -> None:
        """Have it wait for the tiers behind the second."""
        if len(self._tiers) > 2:
            waiting = self._coarse
            if waiting is not None and part.since // self._tiers[2].step_s == waiting.place:
                waiting.join(part)
            else:
                self._settle_coarse()
                part.place = part.since // self._tiers[2].step_s
                self._coarse = part
        if part.since < self._first_time:
            self._first_time = part.since
        if part.largest > self._high:
            self._high = part.largest

    def _settle_coarse(self) -> None:
        part, self._coarse = self._coarse, None
        if part is not None:
            for tier in self._tiers[2:]:
                self._add_to(tier, part)

    def _add_to(self, tier: Tier, part: Part) -> None:
        if tier.step_s == _MINUTE_S and part.since >= tier.end:
            self._note_peak(tier)
        tier.add(part.since, part.total, part.count, part.least, part.largest, part.held)

    def _note_peak(self, minute: Tier) -> None:
        """A minute is full: it counts for the peak when at least half of it was measured."""
        if minute.count * self.period_s * 2 >= _MINUTE_S:
            self._peak60 = max(minute.mean, -inf if self._peak60 is None else self._peak60)

    @property
    def first_time(self) -> Optional[float]:
        """Time of the oldest sample ever added."""
        first = min(self._first_time, self._since) if self._count else self._first_time
        return None if first == inf else first

    @property
    def oldest_time(self) -> Optional[float]:
        """The same, also of the past that `precede` brought."""
        first = min(self._past_time, inf if self.first_time is None else self.first_time)
        return None if first == inf else first

    @property
    def last(self) -> Optional[Tuple[float, float]]:
        """Time and value of the newest sample."""
        return None if self._last_time == -inf else (self._last_time, self._last_value)

    @property
    def high(self) -> Optional[float]:
        """The largest value since the first sample, whatever the tiers still hold."""
        high = max(self._high, self._largest)
        return None if high == -inf else high

    @property
    def past_high(self) -> Optional[float]:
        """The largest value of what `precede` brought."""
        return None if self._past_high == -inf else self._past_high

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
        tier = next((t for t in self._tiers if t.reach_s >= reach_s), self._tiers[-1])
        if tier.step_s <= step:
            shown = _windows(tier, step, first, n, min(end, until))
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
            if tier.end == -inf:  # no sample came since a backfill that is too coarse for it
                continue
            lower = float(tier.oldest * tier.step_s)
            if lower > begin and n + 1 < len(self._tiers):  # hand over at a border of both
                coarser = self._tiers[n + 1].step_s
                lower = ceil(lower / coarser) * coarser
            lower = max(lower, begin)
            step_s = tier.step_s
            known = tier.rollup(floor(lower / step_s), ceil(upper / step_s))
            part = known.between(lower, upper)
            if part is not None:
                weight += part.known_s
                total += part.integral
                low, high = min(low, part.low), max(high, part.high)
            upper = min(upper, lower)
        if not weight:
            return Stats(None, None, None, 0.0)
        return Stats(
            clamped(total / weight, low, high), low, high, min(weight / (end - start), 1.0)
        )


def _coarsest(rollups: Iterable[Rollup], step_s: int) -> Rollup:
    """The one that can make buckets of `step_s` from the fewest."""
    return max((each for each in rollups if step_s % each.step_s == 0), key=lambda r: r.step_s)


def _of_step(rollups: Sequence[Rollup], step_s: int, kept: int) -> Optional[Rollup]:
    """The newest buckets of `step_s`, at least as many as are kept, made of the best there are."""
    coarser = [each for each in rollups if each.step_s > step_s and each.step_s % step_s == 0]
    if any(each.step_s <= step_s for each in rollups):
        found = _coarsest(rollups, step_s)
        ratio = int(step_s // found.step_s)
        return found.coarsened(ratio) if ratio > 1 else found
    if not coarser:
        return None
    found = min(coarser, key=lambda each: each.step_s)
    ratio = int(found.step_s // step_s)
    return found.slice(found.last - kept // ratio, found.last + 1).expanded(ratio)


def _windows(tier: Tier, step: float, first: int, n: int, until: float) -> List[Optional[Bucket]]:
    """The buckets merged into `n` longer ones of `step` seconds, from index `first`.

    One that lies on a border goes where it begins, which depends on absolute time alone.
    """
    stop = floor(until / tier.step_s) + 1
    edges = [min(ceil((first + k) * step / tier.step_s), stop) for k in range(n + 1)]
    found = tier.rollup(edges[0], edges[-1])
    places = [max(edge - found.first, 0) for edge in edges]
    return [found.merged(begin, end) for begin, end in zip(places, places[1:])]
