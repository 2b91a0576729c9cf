"""Find the job for `gpumon attach`, or the reason why it cannot be followed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.model.text import clean
from gpumon.slurm import hostlist, ids
from gpumon.slurm.choose import choose
from gpumon.slurm.client import Slurm
from gpumon.slurm.groups import task_order
from gpumon.slurm.ids import JobId
from gpumon.slurm.job import Job
from gpumon.slurm.runner import SlurmError

#: steps that a message lists
_MAX_STEPS = 8


def find_jobs(slurm: Slurm, id: JobId) -> list[Job]:
    """The job, of a het job all components, of an array that is named without a task its tasks:
    those that have not ended, or all.

    The controller is asked; the accounting only for a job that it no longer knows, or where it
    does not answer. Raises NotFoundError and SlurmError.
    """
    try:
        live = slurm.live(id.whole)
    except SlurmError:  # the accounting may know it; it tells of this error where it does not
        live = []
    if not id.task and not id.het:
        parts = [job for job in live if job.het_job_id == id.job]
        if parts:
            return sorted(parts, key=lambda job: job.het_offset or 0)
        tasks = [job for job in live or _recorded(slurm, id) if job.array_job_id == id.job]
        if tasks:
            left = [job for job in tasks if not job.has_ended]
            return sorted(left or tasks, key=task_order)
    return [_task(choose(id, live) or slurm.job(id.whole), id)]


def _recorded(slurm: Slurm, id: JobId) -> list[Job]:
    """What the accounting has under this number; nothing where it does not answer."""
    with contextlib.suppress(SlurmError):
        return slurm.jobs([id.whole])
    return []


def _task(job: Job, id: JobId) -> Job:
    """The requested one of tasks that are pending together."""
    if not id.task.isdigit() or job.array_task.isdigit():
        return job
    return replace(job, id=id.whole, array_task=id.task)


def check_step(slurm: Slurm, id: JobId, jobs: Sequence[Job]) -> None:
    """Raise NotFoundError where `id` names a step that none of these jobs has.

    The accounting lists steps from their start on, but not at once: of a running job sstat is asked
    too. A step about which neither answers is taken as there.
    """
    if not id.step:
        return
    raw_ids = {job.raw_id for job in jobs}
    steps = {step.id for job in jobs for step in job.steps}
    running = [job.raw_id for job in jobs if job.is_running]
    answered = bool(steps) or all(job.is_pending for job in jobs)
    if id.step not in steps:
        with contextlib.suppress(SlurmError):
            listed = [job for job in slurm.jobs([id.whole]) if job.raw_id in raw_ids]
            steps |= {step.id for job in listed for step in job.steps}
            answered = answered or bool(listed)
    if id.step not in steps and running:
        with contextlib.suppress(SlurmError):
            steps |= {step.id for each in slurm.usage(running).values() for step in each}
            answered = answered or bool(steps)
    if answered and id.step not in steps:
        there = f"it has {_steps_text(steps)}" if steps else "it has none yet"
        raise NotFoundError(f"job {clean(jobs[0].id, 40)} has no step {id.step}; {there}")


def _steps_text(steps: set[str]) -> str:
    """`batch, extern, 0, 1`: those with names first; of many the first and the last."""
    ordered = sorted(steps, key=lambda step: (step[0].isdigit(), len(step), step))
    if len(ordered) > _MAX_STEPS:
        ordered = [*ordered[: _MAX_STEPS - 1], "…", ordered[-1]]
    return ", ".join(ordered)


def is_array(jobs: Sequence[Job]) -> bool:
    """Whether these are tasks of an array."""
    return bool(jobs[0].array_job_id) and not jobs[0].het_job_id


def look_again(slurm: Slurm, jobs: Sequence[Job], *, soon: bool = False) -> list[Job]:
    """The same jobs as Slurm has them now, `soon` as in Slurm.live.

    Raises NotFoundError and SlurmError.
    """
    first = jobs[0]
    if first.array_task.isdigit():
        return [replace(_task_again(slurm, first, soon=soon), cluster=first.cluster)]
    found = {job.raw_id: job for job in slurm.live(_asked_as(first), soon=soon)}
    if not any(job.raw_id in found for job in jobs):
        job = slurm.job(first.id or first.raw_id)
        found = {job.raw_id: job}
    return [
        replace(found[job.raw_id], cluster=job.cluster) if job.raw_id in found else job
        for job in jobs
    ]


def _task_again(slurm: Slurm, task: Job, *, soon: bool) -> Job:
    """One task, which gets another number when it starts."""
    id = ids.parse(task.id)
    return _task(choose(id, slurm.live(_asked_as(task), soon=soon)) or slurm.job(task.id), id)


def _asked_as(job: Job) -> str:
    """The id that gives this job and as few others as possible."""
    if job.array_task and not job.array_task.isdigit():  # the pending rest of an array
        return job.array_job_id
    if job.raw_id == job.array_job_id:  # one task has the number of its array
        return job.id
    return job.het_job_id or job.raw_id


def with_cluster(slurm: Slurm, jobs: Sequence[Job]) -> list[Job]:
    """Recordings lie in a folder per cluster; where its name is not to be had, in none."""
    try:
        cluster = slurm.config().cluster
    except GpumonError:
        return list(jobs)
    return [replace(job, cluster=job.cluster or cluster) for job in jobs]


def check(jobs: Sequence[Job], *, remote: bool) -> None:
    """Raises GpumonError for another user's job.

    `remote`: the user there may be another than here.
    """
    job = jobs[0]
    if not remote and os.getuid() not in (0, job.uid) and job.uid is not None:
        raise GpumonError(
            f"job {job.id} is {clean(job.user, 80)}'s: only they and the staff get to its nodes; "
            "they may share a recording of it ('gpumon record')"
        )


def chosen_nodes(text: str | None, jobs: Sequence[Job]) -> list[str]:
    """The nodes that --nodes names; empty for all. Raises UsageError and NotFoundError."""
    if text is None:
        return []
    try:
        chosen = hostlist.expand(text)
    except ValueError as error:
        raise UsageError(f"--nodes: {error}") from None
    if not chosen:
        raise UsageError("--nodes names no node: give a list such as gpu[01-02],gpu07")
    of_job = {node for job in jobs for node in job.nodes}
    strange = [node for node in chosen if of_job and node not in of_job]
    if strange:
        raise NotFoundError(
            f"{clean(strange[0], 80)} is not a node of job {jobs[0].id}; it runs on "
            f"{clean(','.join(job.node_list for job in jobs), 200)}"
        )
    return chosen


def waiting_text(job: Job) -> str:
    """Of a pending job: why it waits, and when it may start."""
    reason = clean(job.reason, 80)
    text = f"job {job.id} waits" + (f" ({reason})" if reason and reason != "None" else "")
    if job.expected_start is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.expected_start))
        text += f"; expected to start {when}"
    return text + "; gpumon attach in a terminal opens when it starts"
