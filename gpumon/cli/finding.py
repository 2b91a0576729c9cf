"""Finding the job that `gpumon attach` names, and saying why it cannot be followed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.model.lines import Line, word
from gpumon.model.text import clean
from gpumon.slurm import hostlist
from gpumon.slurm.choose import choose
from gpumon.slurm.client import Slurm
from gpumon.slurm.ids import JobId
from gpumon.slurm.job import Job


def find_jobs(slurm: Slurm, id: JobId) -> list[Job]:
    """The job, of a het job all components, of an array that is named without a task its tasks.

    The controller is asked; the accounting only for a job that it no longer knows. Raises
    NotFoundError and SlurmError.
    """
    live = slurm.live(id.whole)
    if not id.task and not id.het:
        parts = [job for job in live if job.het_job_id == id.job]
        if parts:
            return sorted(parts, key=lambda job: job.het_offset or 0)
        tasks = [job for job in live if job.array_job_id == id.job and not job.has_ended]
        if tasks:
            return sorted(tasks, key=_task_number)
    job = choose(id, live) or slurm.job(id.whole)
    return [job]


def _task_number(job: Job) -> tuple[int, str]:
    """Running tasks by number, the pending rest behind them."""
    number = int(job.array_task) if job.array_task.isdigit() else 1 << 32
    return number, job.array_task


def is_array(jobs: Sequence[Job]) -> bool:
    """Whether these are several tasks, of which one must be chosen."""
    return len(jobs) > 1 and not jobs[0].het_job_id


def look_again(slurm: Slurm, jobs: Sequence[Job], *, soon: bool = False) -> list[Job]:
    """The same jobs as Slurm has them now, `soon` as in Slurm.live.

    Raises NotFoundError and SlurmError.
    """
    first = jobs[0]
    whole = first.array_job_id if first.array_task else first.het_job_id or first.raw_id
    found = {job.raw_id: job for job in slurm.live(whole, soon=soon)}
    if not any(job.raw_id in found for job in jobs):
        job = slurm.job(first.id or first.raw_id)
        found = {job.raw_id: job}
    return [
        replace(found[job.raw_id], cluster=job.cluster) if job.raw_id in found else job
        for job in jobs
    ]


def with_cluster(slurm: Slurm, jobs: Sequence[Job]) -> list[Job]:
    """Recordings lie in a folder per cluster; where its name is not to be had, in none."""
    try:
        cluster = slurm.config().cluster
    except GpumonError:
        return list(jobs)
    return [replace(job, cluster=job.cluster or cluster) for job in jobs]


def check(jobs: Sequence[Job], *, remote: bool) -> None:
    """Raises GpumonError for a job that has ended, and for that of somebody else.

    `remote`: the user there may be another than here.
    """
    job = jobs[0]
    if all(each.has_ended for each in jobs):
        raise GpumonError(
            f"job {clean(job.id, 40)} has ended ({clean(job.state, 40)}); run "
            f"'{Line('gpumon report {}', word('job', job.id)) or 'gpumon report JOBID'}'"
        )
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
            f"{clean(strange[0], 80)} is no node of job {jobs[0].id}; it runs on "
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


def choice_text(jobs: Sequence[Job]) -> str:
    """Which tasks there are, for those who cannot be asked."""
    shown = [f"{job.id} ({clean(job.state, 20)})" for job in jobs[:6]]
    more = ", …" if len(jobs) > len(shown) else ""
    return f"this is an array; name one of its tasks: {', '.join(shown)}{more}"
