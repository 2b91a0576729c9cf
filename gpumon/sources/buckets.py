"""One reading of a whole recording in buckets of 10, 60 and 600 s, made of the bins of a gathering.

A bin holds the mean, the least and the greatest of what was read in it. How many samples that were
nobody remembers: as many as there should have been. Where bins are longer than 10 s (in recordings
of more than a day) each stands for all buckets of 10 s that it covers. Where they are longer than
the coarsest step (in two months, or by a clock that jumped) only a week is made of them at once.
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
#: buckets of 10 s that any series keeps, and those within the time that any series goes back
_FINE_KEPT = max(kept for each in RETENTIONS for step_s, kept in each.tiers if step_s == _FINE_S)
_MOST_FINE = max(step_s * kept for each in RETENTIONS for step_s, kept in each.tiers) // _FINE_S
_GRID_FINE = GRID_S // _FINE_S
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
        self._is_series = is_series
        first, stop = columns.first, columns.first + len(columns.mean)
        self._rows: dict[int, Rollup] | None = None
        if step_s <= GRID_S:
            self._rows = self._rows_of(first * self._parts, stop * self._parts)

    def _rows_of(self, begin: int, stop: int) -> dict[int, Rollup]:
        """The buckets of 10 s with an index from `begin` to before `stop`, in the coarser steps."""
        minutes = self._expanded(begin, stop).coarsened(_MINUTE_S // _FINE_S)
        rows = {GRID_S: minutes.coarsened(GRID_S // _MINUTE_S)}
        if self._is_series:
            rows[_MINUTE_S] = minutes
        return rows

    def before(self, end: float) -> BackfillSeries | None:
        """All before `end`, a multiple of `END_S`; None where there was no sample yet."""
        fine = int(end) // _FINE_S
        own = self._rows or self._rows_of((fine - _MOST_FINE) // _GRID_FINE * _GRID_FINE, fine)
        rows = {step_s: _until(each, int(end) // step_s) for step_s, each in own.items()}
        begun = self._begun(fine)
        if len(begun):
            rows[GRID_S].join(begun.first, begun.count, begun.mean, begun.low, begun.high)
        if not len(rows[GRID_S]):
            return None
        if self._is_series:
            rows[_FINE_S] = self._newest(fine)
        return BackfillSeries(self._first_time, rows)

    def _begun(self, stop: int) -> Rollup:
        """What was before the bucket `stop` of the coarsest bucket that holds it."""
        found = self._expanded(stop // _GRID_FINE * _GRID_FINE, stop).coarsened(_GRID_FINE)
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
        stop = min((self._bins.first + last + 1) * self._parts, stop)
        found = self._expanded(stop - _FINE_KEPT, stop)
        found.strip()
        return found

    def _expanded(self, begin: int, stop: int) -> Rollup:
        """The buckets of 10 s with an index from `begin` to before `stop`, as far as bins go."""
        parts, bins = self._parts, self._bins
        first = max(begin // parts, bins.first)
        last = max(min(ceil(stop / parts), bins.first + len(bins.mean)), first)
        begin, stop = max(begin, first * parts), min(stop, last * parts)
        own = slice(first - bins.first, last - bins.first)
        means, lows, highs = (
            _repeated(each[own], parts, begin - first * parts, stop - first * parts)
            for each in (bins.mean, bins.low, bins.high)
        )
        if sum(means) == sum(means):  # none of them is NaN
            counts = array("H", [self._count]) * len(means)
        else:
            counts = array("H", [self._count if mean == mean else 0 for mean in means])
        found = Rollup(_FINE_S)
        found.join(begin, counts, means, lows, highs)
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


def _repeated(values: array[float], times: int, begin: int, stop: int) -> array[float]:
    """Each so many times; of these the items from `begin`, in the first, to before `stop`."""
    found = array("f")
    if len(values) <= 2:  # they may be as long as a wrong clock makes them
        for place, value in enumerate(values):
            own = range(place * times, (place + 1) * times)
            found.extend(array("f", [value]) * (min(own.stop, stop) - max(own.start, begin)))
        return found
    found.frombytes(bytes(values.itemsize * len(values) * times))
    for place in range(times):
        found[place::times] = values
    return found[begin:stop]


def _until(rollup: Rollup, stop: int) -> Rollup:
    """The buckets before index `stop`, the last of them not empty."""
    found = rollup.slice(rollup.first, stop)
    found.strip()
    return found
