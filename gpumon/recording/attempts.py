"""Which attempt of a job a recording is of: Slurm starts a requeued job again under the same ID."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from gpumon.model.sample import JobContext
from gpumon.recording.reader import Recording

#: s; clocks of nodes and of Slurm's controller differ by less, and one job's starts by more
_NEAR_S = 30.0


def by_attempt(
    recordings: Iterable[Recording], starts: Mapping[int, float] | None = None
) -> dict[int, list[Recording]]:
    """The recordings of each attempt, by the number of restarts before it, in its order.

    A recording tells that number, or (in a step from outside of the job) only when it began.
    `starts`: when each attempt started (epoch s), as Slurm's accounting says.
    """
    told = [
        (each.header.job.restarts if each.header.job else None, each)
        for each in sorted(recordings, key=lambda each: each.start)
    ]
    begins = dict(starts or {})
    for number, each in told:
        if number is not None:
            begins[number] = min(_begin(each), begins.get(number, inf))
    begins = begins or _by_start(each for _, each in told)
    found: dict[int, list[Recording]] = {}
    for number, each in told:
        if number is None:
            begun = [n for n, at in begins.items() if at <= each.start + _NEAR_S]
            number = max(begun, default=min(begins))
        found.setdefault(number, []).append(each)
    return dict(sorted(found.items()))


def is_same_attempt(one: JobContext | None, other: JobContext | None) -> bool:
    """Whether two headers of a stream are of one attempt, as far as they tell."""
    if one is None or other is None:
        return one is other
    if one.restarts is not None and other.restarts is not None:
        return (one.id, one.restarts) == (other.id, other.restarts)
    both = one.start is not None and other.start is not None
    is_near = abs((one.start or 0.0) - (other.start or 0.0)) <= _NEAR_S
    return one.id == other.id and (is_near or not both)


def _begin(recording: Recording) -> float:
    """When its job started, where it tells, else when it began itself."""
    job = recording.header.job
    start = recording.start if job is None or job.start is None else job.start
    return min(start, recording.start)


def _by_start(recordings: Iterable[Recording]) -> dict[int, float]:
    """By the starts of the job that the recordings tell, where they tell any."""
    jobs = [each.header.job for each in recordings]
    told = sorted(job.start for job in jobs if job is not None and job.start is not None)
    apart = [at for n, at in enumerate(told) if n == 0 or at - told[n - 1] > _NEAR_S]
    return dict(enumerate(apart)) or {0: 0.0}
