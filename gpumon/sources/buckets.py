"""One reading of a whole recording in buckets of 10, 60 and 600 s, made of the bins of a gathering.

A bin holds the mean, the least and the greatest of what was read in it. How many samples that were
nobody remembers: as many as there should have been. Where bins are longer than 10 s (in recordings
of more than a day) each stands for all buckets of 10 s that it covers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import ceil

from gpumon.model.backfill import BackfillSeries
from gpumon.model.retention import RETENTIONS
from gpumon.model.rollup import Rollup

#: the coarsest step; every other divides it
GRID_S = 600
#: a backfill ends at a multiple of this; the last bucket of a coarser step is then not full
END_S = 60
_FINE_S, _MINUTE_S = 10, 60
#: buckets of 10 s that any series keeps
_FINE_KEPT = max(kept for each in RETENTIONS for step_s, kept in each.tiers if step_s == _FINE_S)
_MOST = 0xFFFF  # that a bucket counts


class Buckets:
    """One reading of one device, host or job."""

    def __init__(
        self, columns: Rollup, step_s: float, period_s: float, since: float, *, is_series: bool
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
        minutes = fine.coarsened(_MINUTE_S // _FINE_S)
        self._rows = {GRID_S: minutes.coarsened(GRID_S // _MINUTE_S)}
        self._is_series = is_series
        if is_series:
            self._rows[_MINUTE_S] = minutes

    def before(self, end: float) -> BackfillSeries | None:
        """All before `end`, a multiple of `END_S`; None where there was no sample yet."""
        rows = {step_s: _until(each, int(end) // step_s) for step_s, each in self._rows.items()}
        begun = self._begun(int(end))
        if len(begun):
            rows[GRID_S].join(begun.first, begun.count, begun.mean, begun.low, begun.high)
        if not len(rows[GRID_S]):
            return None
        if self._is_series:
            rows[_FINE_S] = self._newest(int(end) // _FINE_S)
        return BackfillSeries(self._first_time, rows)

    def _begun(self, end: int) -> Rollup:
        """What was before `end` of the coarsest bucket that holds it."""
        first, length = self._bins.first, self._parts * _FINE_S
        begin = end // GRID_S * GRID_S // length - first
        stop = min(ceil(end / length) - first, len(self._bins.mean))
        fine = self._expanded(max(begin, 0), max(stop, begin, 0))
        found = _until(fine, end // _FINE_S).coarsened(GRID_S // _FINE_S)
        found.strip()
        return found

    def last_time(self, end: float) -> float | None:
        """End of the newest bin that holds something and begins before `end`."""
        last = self._last_before(ceil(end / (self._parts * _FINE_S)))
        return None if last is None else (self._bins.first + last + 1) * self._parts * _FINE_S

    def _last_before(self, stop: int) -> int | None:
        """Place of the newest bin with a value of those with an index before `stop`."""
        means = self._bins.mean
        places = range(min(stop - self._bins.first, len(means)) - 1, -1, -1)
        return next((at for at in places if means[at] == means[at]), None)

    def _newest(self, stop: int) -> Rollup:
        """The buckets of 10 s that a series can keep, the last before `stop` not empty."""
        last = self._last_before(ceil(stop / self._parts))
        assert last is not None  # `before` asks
        begin = max(last + 1 - ceil(_FINE_KEPT / self._parts), 0)
        return _until(self._expanded(begin, last + 1), stop)

    def _expanded(self, begin: int, end: int) -> Rollup:
        """The bins from `begin` to before `end` in buckets of 10 s."""
        parts, bins = self._parts, self._bins
        means, lows, highs = (
            _repeated(each[begin:end], parts) for each in (bins.mean, bins.low, bins.high)
        )
        if sum(means) == sum(means):  # none of them is NaN
            counts = array("H", [self._count]) * len(means)
        else:
            counts = array("H", [self._count if mean == mean else 0 for mean in means])
        found = Rollup(_FINE_S)
        found.join((bins.first + begin) * parts, counts, means, lows, highs)
        return found


def widened(bins: Rollup, inner: Iterable[Rollup]) -> Rollup | None:
    """The bins, as low and high as `inner` knows from within their ticks; None: there are none."""
    if not len(bins):
        return None
    low, high = bins.low, bins.high
    for each in inner:  # its NaN is neither less nor more
        _, least, most = each.padded(bins.first, len(low))
        low = array("f", [b if b < a else a for a, b in zip(low, least)])
        high = array("f", [b if b > a else a for a, b in zip(high, most)])
    found = Rollup(bins.step_s)
    found.join(bins.first, bins.count, bins.mean, low, high)
    return found


def _repeated(values: array[float], times: int) -> array[float]:
    """Each so many times."""
    found = array("f", bytes(values.itemsize * len(values) * times))
    for place in range(times):
        found[place::times] = values
    return found


def _until(rollup: Rollup, stop: int) -> Rollup:
    """The buckets before index `stop`, the last of them not empty."""
    found = rollup.slice(rollup.first, stop)
    found.strip()
    return found
