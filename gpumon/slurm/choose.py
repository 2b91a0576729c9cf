"""Which of several jobs an id means: arrays have tasks, het jobs components."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.errors import UsageError
from gpumon.slurm.ids import JobId
from gpumon.slurm.job import Job

_SHOWN = 6
_MAX_TASK = 1 << 32


def choose(id: JobId, jobs: Sequence[Job]) -> Job | None:
    """The job that `id` means, of those that Slurm told for it; the newest of several attempts.

    Of a het job without a component the first; of an array without a task its only one. Raises
    UsageError where an array has several.
    """
    exact = [job for job in jobs if job.id == id.whole]
    if exact:
        return exact[-1]
    if id.task:
        waiting = [
            job for job in jobs if job.array_job_id == id.job and _holds(job.array_task, id.task)
        ]
        return waiting[-1] if waiting else None
    if id.het:
        return None
    tasks = [job for job in jobs if job.array_job_id == id.job]
    names = list(dict.fromkeys(job.id for job in sorted(tasks, key=_place)))
    if len(names) > 1:
        more = ", …" if len(names) > _SHOWN else ""
        raise UsageError(
            f"job {id.job} is an array; name one of its tasks: {', '.join(names[:_SHOWN])}{more}"
        )
    first = [job for job in jobs if job.het_job_id == id.job and job.het_offset == 0]
    raw = [job for job in jobs if job.raw_id == id.job]
    return next((found[-1] for found in (tasks, first, raw) if found), None)


def _place(job: Job) -> tuple[bool, int]:
    """By task number, those that wait last."""
    number = job.array_task.isdigit()
    return not number, int(job.array_task) if number else 0


def _holds(waiting: str, task: str) -> bool:
    """Whether the tasks that still wait, `1-9:2%2`, have this one."""
    if not task.isdigit():
        return False
    for part in waiting.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdigit() and (last or first).isdigit() and (step or "1").isdigit():
            inside = range(int(first), min(int(last or first), _MAX_TASK) + 1, int(step or 1) or 1)
            if int(task) in inside:
                return True
    return False
