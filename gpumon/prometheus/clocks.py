"""By how much a server's clock is ahead of Slurm's: seen from the scrapes that name a job.

There are such scrapes only while the job runs. So one before its start, or after its end, is of
another clock, unless the scrapes as a whole would then not fit into the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from gpumon.prometheus.client import Series

#: s; clocks are further apart only where nobody looks after them
SLACK_S = 120.0
#: s; what lies less outside is of jobs that begin or end slowly
_LEAST_S = 5.0


def ahead_s(series: Iterable[Series], start: float, end: float) -> float:
    """Seconds that the server is ahead; 0 where its clock and Slurm's may agree.

    Known to half an interval between scrapes.
    """
    known = [each.times for each in series if each.times]
    if not known:
        return 0.0
    every_s = _interval_of(known)
    # the first scrape is not before the start, and the last not after the end
    most = min(map(min, known)) - start
    least = max(map(max, known)) - end
    outside = max(every_s, _LEAST_S)
    if least > most or (least <= outside and most >= -outside):
        return 0.0
    low, high = (
        (least, min(most, least + every_s)) if least > 0 else (max(least, most - every_s), most)
    )
    return round((low + high) / 2)


def _interval_of(known: Sequence[Sequence[float]]) -> float:
    times = max(known, key=len)
    return median(later - earlier for earlier, later in zip(times, times[1:])) if times[1:] else 0.0


def fitted(series: Series, ahead_s: float, start: float, end: float) -> Series:
    """By Slurm's clock, and no more than the run."""
    points = [
        (at - ahead_s, value)
        for at, value in zip(series.times, series.values)
        if start <= at - ahead_s <= end
    ]
    return Series(series.labels, [at for at, _ in points], [value for _, value in points])
