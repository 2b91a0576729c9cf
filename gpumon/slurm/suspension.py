"""When a job was suspended, from Slurm's answers about it as they follow each other."""

from __future__ import annotations

from dataclasses import replace

from gpumon.slurm.job import Job
from gpumon.slurm.states import HELD_STATES

#: of one job; older ones are forgotten
MAX_SUSPENSIONS = 1000
#: s; Slurm counts whole seconds, and an answer takes a while
_LEAST_S = 3.0

Stretch = tuple[float, "float | None"]  # epoch s, since and until; None: it lasts


class Suspensions:
    """The stretches of one job's present attempt in which it was suspended.

    Slurm says how long a job has run and how long it was suspended in all, but not when. The moment
    is the job's start and the time that it has run by then, suspended or not. A stretch that began
    and ended between two answers is put at the earlier one.
    """

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._total_s = 0.0  # of those that are over
        self._before: Job | None = None

    def take(self, job: Job) -> Job:
        """The newest answer, on our clock; returned with the stretches so far."""
        before = self._before
        if before is None or not job.is_same_attempt(before):
            self._stretches, self._total_s = [], 0.0
        if job.state in HELD_STATES:
            self._begin(job)
        elif job.state == "RUNNING":
            self._end(job, before)
        self._before = job
        return replace(job, suspensions=tuple(self._stretches))

    @property
    def _lasts(self) -> bool:
        return bool(self._stretches) and self._stretches[-1][1] is None

    def _begin(self, job: Job) -> None:
        if self._lasts or job.start is None or job.elapsed_s is None:
            return
        self._add((job.start + job.elapsed_s + self._total_s, None))

    def _end(self, job: Job, before: Job | None) -> None:
        total_s = job.suspended_s
        if total_s is None:
            return
        lasted_s = max(0.0, total_s - self._total_s)
        if self._lasts:
            since = self._stretches.pop()[0]
            self._add((since, since + lasted_s))
        elif before is not None and before.told_at is not None and lasted_s > _LEAST_S:
            self._add((before.told_at, before.told_at + lasted_s))
        self._total_s = total_s

    def _add(self, stretch: Stretch) -> None:
        self._stretches = [*self._stretches, stretch][-MAX_SUSPENSIONS:]


def is_suspended(job: Job | None, at: float) -> bool:
    """Whether the job was suspended at this moment (epoch s), as far as that was seen."""
    stretches = reversed(job.suspensions) if job is not None else ()
    return any(since <= at and (until is None or at < until) for since, until in stretches)
