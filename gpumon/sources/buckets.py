"""One reading of a whole recording in buckets of 10, 60 and 600 s, made of the bins of a gathering.

A bin holds the mean, the least and the greatest of what was read in it. How many samples that were
nobody remembers: as many as there should have been. Where bins are longer than 10 s (in recordings
of more than a day) each stands for all buckets of 10 s that it covers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from math import ceil, nan
from typing import TypeVar

from gpumon.analysis.bins import Bins, Columns, Window
from gpumon.model.depth import DEPTHS
from gpumon.model.past import PastSeries
from gpumon.model.tier import Rows

#: a past ends at a multiple of this; it is the coarsest step, and every other divides it
GRID_S = 600
_FINE_S, _MINUTE_S = 10, 60
#: buckets of 10 s that any series keeps
_FINE_KEPT = max(dict(depth.tiers)[_FINE_S] for depth in DEPTHS if _FINE_S in dict(depth.tiers))
_MOST = 0xFFFF  # that a bucket counts


_Number = TypeVar("_Number", int, float)


class Buckets:
    """One reading of one device, host or job."""

    def __init__(
        self, columns: Columns, step_s: float, period_s: float, since: float, *, is_series: bool
    ) -> None:
        """`columns`: bins of `step_s`. Samples came every `period_s`, none before `since`.

        Of what `is_series` all steps are kept, of others the coarsest.
        """
        count = min(max(round(_FINE_S / period_s), 1), _MOST)
        self._count = count
        self._parts = int(step_s) // _FINE_S  # of a bin
        self._bins = columns
        self._first_time = max(columns.first * step_s, since)
        fine = self._expanded(0, len(columns.mean))
        minutes = coarser(fine, _MINUTE_S // _FINE_S)
        self._rows = {GRID_S: coarser(minutes, GRID_S // _MINUTE_S)}
        self._is_series = is_series
        if is_series:
            self._rows[_MINUTE_S] = minutes

    def before(self, end: float) -> PastSeries | None:
        """All before `end`, a multiple of `GRID_S`; None where there was no sample yet."""
        rows = {step_s: _cut(rows, int(end) // step_s) for step_s, rows in self._rows.items()}
        if not any(rows[GRID_S].counts):
            return None
        if self._is_series:
            rows[_FINE_S] = self._newest(int(end) // _FINE_S)
        return PastSeries(self._first_time, rows)

    def last_time(self, end: float) -> float | None:
        """End of the newest bin that holds something and begins before `end`."""
        last = self._last_before(ceil(end / (self._parts * _FINE_S)))
        return None if last is None else (self._bins.first + last + 1) * self._parts * _FINE_S

    def _last_before(self, stop: int) -> int | None:
        """Place of the newest bin with a value of those with an index before `stop`."""
        means = self._bins.mean
        places = range(min(stop - self._bins.first, len(means)) - 1, -1, -1)
        return next((at for at in places if means[at] == means[at]), None)

    def _newest(self, stop: int) -> Rows:
        """The buckets of 10 s that a series can keep, the last before `stop` not empty."""
        last = self._last_before(ceil(stop / self._parts))
        assert last is not None  # `before` asks
        begin = max(last + 1 - ceil(_FINE_KEPT / self._parts), 0)
        return _cut(self._expanded(begin, last + 1), stop)

    def _expanded(self, begin: int, end: int) -> Rows:
        """The bins from `begin` to before `end` in buckets of 10 s."""
        parts, bins = self._parts, self._bins
        means, lows, highs = (
            _repeated(each[begin:end], parts) for each in (bins.mean, bins.low, bins.high)
        )
        if sum(means) == sum(means):  # none of them is NaN
            counts = array("H", [self._count]) * len(means)
        else:
            counts = array("H", [self._count if mean == mean else 0 for mean in means])
        return Rows((bins.first + begin) * parts, means, lows, highs, counts)


def widened(bins: Bins, inner: Iterable[Bins]) -> Columns | None:
    """The bins, as low and high as `inner` knows from within their ticks; None: there are none."""
    columns = bins.copy().drain()
    if columns is None:
        return None
    low, high = columns.low, columns.high
    for each in inner:  # its NaN is neither less nor more
        track = each.track(Window(columns.first, len(low)))
        low = array("f", [b if b < a else a for a, b in zip(low, track.low)])
        high = array("f", [b if b > a else a for a, b in zip(high, track.high)])
    return columns._replace(low=low, high=high)


def coarser(rows: Rows, ratio: int) -> Rows:
    """The same in buckets that are `ratio` times as long."""
    before = rows.first % ratio
    behind = -(before + len(rows.means)) % ratio
    gap, none = array("f", [nan]), array("H", [0])
    arrays = (rows.means, rows.lows, rows.highs)
    means, lows, highs = (gap * before + each + gap * behind for each in arrays)
    counts = none * before + rows.counts + none * behind
    padded = Rows(rows.first - before, means, lows, highs, counts)
    found = Rows(
        padded.first // ratio,
        array("f", [sum(group) / ratio for group in _groups(means, ratio)]),
        array("f", map(min, _groups(lows, ratio))),
        array("f", map(max, _groups(highs, ratio))),
        array("H", [min(sum(group), _MOST) for group in _groups(counts, ratio)]),
    )
    full = ratio * max(counts, default=0)
    for at, count in enumerate(found.counts):
        if count < full:  # to be weighted, or with NaN, which min and max do not see
            bucket = padded.merged(at * ratio, (at + 1) * ratio)
            low, mean, high, _ = bucket or (nan, nan, nan, 0)
            found.means[at], found.lows[at], found.highs[at] = mean, low, high
    return found


def _groups(values: array[_Number], size: int) -> Iterator[tuple[_Number, ...]]:
    return zip(*[iter(values)] * size)


def _repeated(values: array[float], times: int) -> array[float]:
    """Each so many times."""
    found = array("f", bytes(values.itemsize * len(values) * times))
    for place in range(times):
        found[place::times] = values
    return found


def _cut(rows: Rows, stop: int) -> Rows:
    """Those before index `stop`."""
    kept = slice(max(stop - rows.first, 0))
    first, means, lows, highs, counts = rows
    return Rows(first, means[kept], lows[kept], highs[kept], counts[kept])
