"""A series: one reading over time, as rollups (`model.rollup`) whose steps grow with its age.

What is kept for how long hangs on the number of nodes on one screen.

A node with eight GPUs has about 110 series (`model.fields.SERIES`), and a bucket of one takes 14
bytes (6 as long as it has held one value). Up to 16 nodes a series may grow to 63 KB, for a screen
that shows any stretch of the last day in detail. Of more nodes they are kept in rings that give the
windows of the time axis 50 to 300 buckets where they are short and 12 to 100 where they are long:
at most 1 MiB for a node, and 0.3 MiB where there are more than 256 of them, after a week as after a
day. Peaks are kept apart (`Series.high`, `Series.peak60`) and always exact.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import compress
from math import ceil, floor, inf, isfinite, nan
from typing import List, NamedTuple, Optional, Tuple

from gpumon.model.rollup import Bucket, Rollup, clamped

#: (seconds per bucket, buckets kept), the finest first. Each step divides the next, so that tiers
#: agree where one ends and the next begins; one of a minute is among them, for `Series.peak60`.
Tiers = Tuple[Tuple[int, int], ...]


#: of a node with eight GPUs; one that has more of them counts for several nodes
SERIES_A_NODE = 110


class Retention(NamedTuple):
    """`nodes`: up to how many (0: any number)."""

    nodes: int
    tiers: Tiers


RETENTIONS = (
    # 15 min, 3 h, 24 h and 7 days, and 20 buckets beyond, for windows that end a little before
    # the newest sample
    Retention(16, ((1, 920), (10, 1100), (60, 1460), (600, 1028))),
    # 5 min, 30 min, 3 h, 24 h and 7 days, and 2 to 20 buckets beyond
    Retention(256, ((1, 320), (10, 184), (60, 184), (600, 146), (7200, 86))),
    # 10 min, 1 h, 4 h, 24 h and 7 days, and 2 beyond; they are sampled every 5 s or more seldom
    Retention(0, ((10, 62), (60, 62), (600, 26), (3600, 26), (21_600, 30))),
)


def retention_of(nodes: int) -> Retention:
    """The retention for so many nodes."""
    return next(each for each in RETENTIONS if not each.nodes or nodes <= each.nodes)


#: courses of processes on GPUs (`model.fields.COURSES`) are kept where the nodes are as few as the
#: first of RETENTIONS is for, of so many processes and so many usages of a node: each has two
#: series of at most 13 KB
COURSES_KEPT = 64
COURSE_TIERS = RETENTIONS[1].tiers

#: two samples at most so many periods apart have no gap between them; one missed sample is two
BRIDGE_PERIODS = 1.5

_VALUE_LIMIT = 3e38  # single precision holds no more
_TIME_LIMIT = 1e11  # epoch seconds; 3,000 years
_SHORTEST_S = 1e-3  # no bucket that is shown can be shorter
_MINUTE_S = 60


class _Step(NamedTuple):
    """How a tier is kept."""

    step_s: int
    kept: int  # buckets
    most: int  # a tier of so many is cut to those kept
    ratio: int  # its buckets in one of the next tier


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

    The finest tier takes every sample. One that has grown too long gives its oldest buckets to the
    next tier, in that tier's steps: each moment lies in one tier, and tiers are read as one.
    """

    __slots__ = (
        "_first_time", "_held_until", "_high", "_last_time", "_last_value", "_minutes",
        "_past_high", "_past_time", "_peak60", "_steps", "_tiers", "period_s",
    )  # fmt: skip

    def __init__(self, period_s: float = 1.0, tiers: Tiers = RETENTIONS[0].tiers) -> None:
        """No tier is made that is finer than the samples, where the next one suits them."""
        self.period_s = period_s
        self._steps = _suited(period_s, tiers)
        self._tiers = [Rollup(self._steps[0].step_s)]  # the finest first; as many as hold something
        self._last_time, self._last_value = -inf, nan  # the newest
        self._held_until = -inf  # a sample up to then continues the line without a gap
        self._first_time = self._past_time = inf
        self._high = self._past_high = -inf
        self._peak60: Optional[float] = None
        self._minutes = 0  # index of the first that the peak does not know yet

    # -- adding

    def add(
        self, time: float, value: float, low: Optional[float] = None, high: Optional[float] = None
    ) -> None:
        """Add one sample; `low` and `high` are extremes known from within its tick.

        Values that are not finite are dropped. Samples may come late: they then amend the bucket
        they belong to, so far back as the tiers reach.
        """
        if not (-_VALUE_LIMIT < value < _VALUE_LIMIT and -_TIME_LIMIT < time < _TIME_LIMIT):
            return
        if low is None or not value > low > -_VALUE_LIMIT:
            low = value
        if high is None or not value < high < _VALUE_LIMIT:
            high = value
        if high > self._high:
            self._high = high
        if time < self._first_time:
            self._first_time = time
        finest = self._tiers[0]
        index = int(time // finest.step_s)
        ahead = index - finest.last
        if ahead == 1:
            finest.append(value, 1, low, high)
        elif ahead > 1:
            self._skip_to(index, time)
            finest.add(index, value, 1, low, high)
        elif index >= finest.first or not len(finest):
            finest.add(index, value, 1, low, high)
        else:
            self._take_late(time, value, low, high)
            return
        if ahead > 0 and len(finest) >= self._steps[0].most:
            self._trim(0)
        if time >= self._last_time:  # else it came late
            self._last_time, self._last_value = time, value
            self._held_until = time + BRIDGE_PERIODS * self.period_s

    def _skip_to(self, index: int, time: float) -> None:
        """Leave buckets of the finest tier before an index empty, or bridge them."""
        finest, held = self._tiers[0], nan
        if time <= self._held_until:
            held = self._last_value
        if not len(finest) and held == held:  # it continues what was loaded
            finest.first = int(self._end() // finest.step_s)
        count = index - finest.last - 1
        if count < self._steps[0].most and (len(finest) or held == held):
            finest.skip(count, held)
        elif len(finest):
            self._note_peaks(time)
            self._hand_on(0, finest.last + 1)

    def _end(self) -> float:
        """Of the newest bucket; epoch s."""
        return next(((tier.last + 1) * tier.step_s for tier in self._tiers if len(tier)), -inf)

    def _take_late(self, time: float, value: float, low: float, high: float) -> None:
        """Add a sample from before the finest tier."""
        for tier, step in list(zip(self._tiers, self._steps))[1:]:
            index = int(time // tier.step_s)
            if tier.first <= index:
                if index - tier.last <= step.most:  # else it lies in a gap that nobody shows
                    tier.add(index, value, 1, low, high)
                return

    def miss(self) -> None:
        """The reading was due and is missing: the line ends."""
        self._held_until = -inf

    def expect(self, period_s: float) -> None:
        """Samples come so often from now on."""
        if period_s != self.period_s:
            self._note_peaks()
            self.period_s = period_s

    def load(self, rollup: Rollup, first_time: float, *, is_past: bool = False) -> None:
        """Take buckets from behind all that is held, or from before it.

        Their step divides that of a tier; the first sample in them was at `first_time`. Windows
        show them either way. Of the past, neither peaks nor statistics know.
        """
        rollup = rollup.copy()
        rollup.strip()
        if not len(rollup):
            return
        self._note_peaks()
        high, step_s, last = max(compress(rollup.high, rollup.count)), rollup.step_s, rollup.last
        if is_past:
            self._past_time = min(self._past_time, first_time)
            self._past_high = max(self._past_high, high)
            self._minutes = max(self._minutes, ceil((last + 1) * step_s / _MINUTE_S))
        else:
            self._first_time = min(self._first_time, first_time)
            self._high = max(self._high, high)
            if last * step_s > self._last_time:
                self._last_time, self._last_value = float(last * step_s), rollup.mean[-1]
                self._held_until = self._last_time + BRIDGE_PERIODS * max(self.period_s, step_s)
        self._put_in(rollup)

    def _put_in(self, rollup: Rollup) -> None:
        step_s = rollup.step_s
        fitting = next(n for n, each in enumerate(self._steps) if each.step_s % step_s == 0)
        oldest = next((tier for tier in reversed(self._tiers) if len(tier)), None)
        if oldest is None or rollup.first * step_s >= oldest.first * oldest.step_s:
            self._extend(fitting, rollup)
            return
        n = max(fitting, len(self._tiers) - 1)
        found = _in_steps_of(self._steps[n].step_s, rollup)
        if n < len(self._tiers):
            found.extend(self._tiers[n])
        self._tiers[n:] = [found]
        self._trim(n)

    def begin_peaks(self) -> None:
        """Let peaks count from now on; what the tiers hold stays, and the line ends."""
        self._note_peaks()
        self._high, self._peak60, self._held_until = -inf, None, -inf

    # -- tiers

    def downsample(self, tiers: Tiers) -> None:
        """Go on with other tiers, which take what the old ones hold as far as they suit."""
        old, self._steps = self._tiers, _suited(self.period_s, tiers)
        self._tiers = [Rollup(self._steps[0].step_s)]
        for tier in reversed(old):
            if len(tier):
                self._put_in(tier)

    def _extend(self, n: int, rollup: Rollup) -> None:
        """Put finer buckets behind those of a tier."""
        self._tiers += [Rollup(each.step_s) for each in self._steps[len(self._tiers) : n + 1]]
        step, tier = self._steps[n], self._tiers[n]
        found = _in_steps_of(step.step_s, rollup)
        if len(tier) and found.first - tier.last > step.most:
            self._hand_on(n, tier.last + 1)
        tier.extend(found)
        self._trim(n)

    def _trim(self, n: int) -> None:
        """Cut a tier that goes too far back."""
        tier, step = self._tiers[n], self._steps[n]
        stop = ceil(self._end() / step.step_s)
        if stop - tier.first >= step.most:
            self._hand_on(n, (stop - step.kept) // step.ratio * step.ratio)

    def _hand_on(self, n: int, stop: int) -> None:
        """Move the buckets of a tier before index `stop` to the next; those of the last one go."""
        tier = self._tiers[n]
        if tier.step_s == _MINUTE_S:
            self._note_peaks()
        old = tier.slice(tier.first, stop)
        tier.drop(len(old))
        if n + 1 < len(self._steps):
            self._extend(n + 1, old)

    def _buckets(self, n: int, first: int, stop: int, oldest: int) -> Rollup:
        """Buckets first … stop − 1 of a tier's grid, as the tiers up to the `oldest` hold them;
        coarser ones for all that they cover.
        """
        step_s = self._steps[n].step_s
        found = Rollup(step_s)
        for tier in reversed(self._tiers[: oldest + 1]):
            if tier.step_s > step_s:
                ratio = int(tier.step_s) // step_s
                coarse = tier.slice(first // ratio, ceil(stop / ratio))
                found.extend(coarse.expanded(ratio).slice(first, stop))
            else:
                ratio = step_s // int(tier.step_s)
                found.extend(_in_steps_of(step_s, tier.slice(first * ratio, stop * ratio)))
        return found

    # -- peaks

    def _note_peaks(self, time: Optional[float] = None) -> None:
        """Minutes are full up to that of the newest sample, which is this one, or is known.

        One counts for the peak when at least half of it was measured.
        """
        stop = int(max(self._last_time if time is None else time, 0.0) // _MINUTE_S)
        if stop <= self._minutes:
            return
        tier = next(n for n, each in enumerate(self._steps) if each.step_s == _MINUTE_S)
        full = self._buckets(tier, self._minutes, stop, tier)
        known = [mean for mean, count in zip(full.mean, full.count)
                 if count * self.period_s * 2 >= _MINUTE_S]  # fmt: skip
        if known:
            self._peak60 = max(max(known), -inf if self._peak60 is None else self._peak60)
        self._minutes = stop

    @property
    def peak60(self) -> Optional[float]:
        """The largest mean of a full minute of the clock; None as long as none has passed."""
        self._note_peaks()
        return self._peak60

    def high(self, *, past: bool = False) -> Optional[float]:
        """The largest value since the first sample, whatever the tiers still hold; `past`: also of
        what was loaded from before.
        """
        high = max(self._high, self._past_high) if past else self._high
        return None if high == -inf else high

    def first_time(self, *, past: bool = False) -> Optional[float]:
        """Time of the oldest sample ever added, in the same way."""
        first = min(self._first_time, self._past_time) if past else self._first_time
        return None if first == inf else first

    # -- reading

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
        step = span_s / n
        last = floor(end / step)
        first = last - n + 1
        reach_s = span_s + max(self._last_time - end, 0.0)
        tiers = enumerate(self._steps)
        tier = next((k for k, t in tiers if t.step_s * t.kept >= reach_s), len(self._steps) - 1)
        if self._steps[tier].step_s <= step:
            shown = self._merged(tier, step, first, n, min(end, until))
        else:
            shown = self._repeated(tier, step, first, n)
        self._hold_newest(shown, step, first, until)
        return shown

    def _merged(
        self, tier: int, step: float, first: int, n: int, until: float
    ) -> List[Optional[Bucket]]:
        """The buckets of a tier merged into `n` longer ones of `step` seconds, from index `first`.

        One that lies on a border goes where it begins, which depends on absolute time alone.
        """
        own_s = self._steps[tier].step_s
        stop = floor(until / own_s) + 1
        edges = [min(ceil((first + k) * step / own_s), stop) for k in range(n + 1)]
        found = self._buckets(tier, edges[0], edges[-1], len(self._tiers))
        places = [max(edge - found.first, 0) for edge in edges]
        return [found.merged(begin, end) for begin, end in zip(places, places[1:])]

    def _repeated(self, tier: int, step: float, first: int, n: int) -> List[Optional[Bucket]]:
        """The same of shorter ones: each is the bucket that its middle lies in."""
        own_s = self._steps[tier].step_s
        indexes = [floor((k + 0.5) * step / own_s) for k in range(first, first + n)]
        found = self._buckets(tier, indexes[0], indexes[-1] + 1, len(self._tiers))
        buckets = dict(enumerate(found.buckets(), found.first))
        return [buckets.get(index) for index in indexes]

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
        """Statistics over [start, end), each part of it from the tier that holds it.

        The mean weights every interval that was measured alike, however many samples fell in it.
        """
        begin, upper = max(start, self._first_time), end
        weight = total = 0.0
        low, high = inf, -inf
        for tier in self._tiers:
            step_s = tier.step_s
            lower = max(tier.first * step_s, begin)
            if not len(tier) or upper <= lower:
                continue
            part = tier.slice(floor(lower / step_s), ceil(upper / step_s)).between(lower, upper)
            if part is not None:
                weight += part.known_s
                total += part.integral
                low, high = min(low, part.low), max(high, part.high)
            upper = lower
        if not weight:
            return Stats(None, None, None, 0.0)
        mean = clamped(total / weight, low, high)
        return Stats(mean, low, high, min(weight / (end - start), 1.0))


@lru_cache(maxsize=64)
def _suited(period_s: float, tiers: Tiers) -> Tuple[_Step, ...]:
    """Those that are not too fine for the samples."""
    rare_s = min(period_s, _MINUTE_S)
    ratios = [after[0] // step_s for (step_s, _), after in zip(tiers, tiers[1:])] + [1]
    steps = [_Step(*each, each[1] + each[1] // 16 + n, n) for each, n in zip(tiers, ratios)]
    return tuple(each for each in steps if each.step_s * each.ratio > rare_s)


def _in_steps_of(step_s: int, rollup: Rollup) -> Rollup:
    ratio = int(step_s // rollup.step_s)
    return rollup.coarsened(ratio) if ratio > 1 else rollup
