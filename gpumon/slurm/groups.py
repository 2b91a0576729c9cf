"""Jobs as their user submitted them: all tasks of an array are one, all components of a het job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpumon.slurm.states import HELD_STATES

if TYPE_CHECKING:
    from gpumon.slurm.job import Job

#: of a group in several states, the one that it is shown in: the first of these
_FOREMOST = ("RUNNING", "SUSPENDED", "COMPLETING", "PENDING", "FAILED")


@dataclass(frozen=True)
class JobGroup:
    """What one `sbatch` made, under the id that its user typed or read."""

    id: str  # 4711; 4711_3 where that is the only task in the answer
    jobs: tuple[Job, ...]  # never empty

    @property
    def name(self) -> str:
        return self.jobs[0].name

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.is_running]

    @property
    def shown(self) -> list[Job]:
        """The jobs whose resources it holds; where none runs, all."""
        return self.running or list(self.jobs)

    @property
    def is_running(self) -> bool:
        return any(job.is_running for job in self.jobs)

    @property
    def is_pending(self) -> bool:
        """Whether it waits, and nothing of it runs."""
        return not self.is_running and any(job.is_pending for job in self.jobs)

    @property
    def has_ended(self) -> bool:
        return all(job.has_ended for job in self.jobs)

    @property
    def state(self) -> str:
        """Of a group in several states, the most informative one."""
        states = {job.state for job in self.jobs}
        return next((each for each in _FOREMOST if each in states), self.jobs[-1].state)

    @property
    def tasks(self) -> dict[str, int]:
        """Of an array, how many tasks are in each state; empty for every other job."""
        counted: Counter[str] = Counter()
        for job in self.jobs if self.jobs[0].array_job_id else ():
            counted[job.state] += task_count(job.array_task)
        return dict(counted) if sum(counted.values()) > 1 else {}

    @property
    def nodes(self) -> int | None:
        """How many; None if unknown to Slurm."""
        names = {node for job in self.shown for node in job.nodes}
        if names:
            return len(names)
        return _total(job.allocated.nodes or job.requested.resources.nodes for job in self.shown)

    @property
    def gpus(self) -> int | None:
        return _total(0 if job.lists_no_gpus else job.gpus for job in self.shown)

    @property
    def start(self) -> float | None:
        """When the newest of it started."""
        return max((job.start for job in self.jobs if job.start is not None), default=None)

    @property
    def submit(self) -> float | None:
        return min((job.submit for job in self.jobs if job.submit is not None), default=None)

    def elapsed_s(self, now: float) -> float | None:
        """Of its part that has run for the longest, of those that run."""
        known = [_elapsed_s(job, now) for job in self.shown]
        return max((each for each in known if each is not None), default=None)

    def left_s(self, now: float) -> float | None:
        """Until the limit ends the first of it that runs; None where there is no limit."""
        left = [
            job.time_limit_s - elapsed_s
            for job in self.running
            if job.time_limit_s and (elapsed_s := _elapsed_s(job, now)) is not None
        ]
        return max(0.0, min(left)) if left else None

    @property
    def is_held(self) -> bool:
        """Whether its time stands still."""
        return self.state in HELD_STATES


def groups_of(jobs: Iterable[Job]) -> list[JobGroup]:
    """The jobs, tasks and components that belong together as one, in the order of their first."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.array_job_id or job.het_job_id or job.raw_id or job.id, []).append(job)
    return [JobGroup(_id(whole, parts), tuple(parts)) for whole, parts in found.items()]


def _id(whole: str, parts: list[Job]) -> str:
    only = parts[0]
    if len(parts) == 1 and only.array_task.isdigit():
        return only.id
    return whole


def task_count(tasks: str) -> int:
    """How many tasks `3` or `1-9:2,12%2` names; 1 for what cannot be counted."""
    count = 0
    for part in tasks.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if not (first.isdigit() and (last or first).isdigit() and (step or "1").isdigit()):
            return 1
        count += max(0, int(last or first) - int(first)) // max(1, int(step or 1)) + 1
    return count


def task_order(job: Job) -> tuple[int, str]:
    """By task number; those that wait together behind all others."""
    task = job.array_task
    return (int(task), "") if task.isdecimal() else (1 << 40, task)


def _elapsed_s(job: Job, now: float) -> float | None:
    counted_s = job.elapsed_at(now)
    return job.elapsed_s if counted_s is None else counted_s


def _total(values: Iterable[int | None]) -> int | None:
    """Their sum; None if one is unknown, because a partial sum is misleading."""
    known = list(values)
    return None if None in known or not known else sum(each or 0 for each in known)
