"""The allocation around this shell: first from its environment, later from Slurm."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpumon.collect.base import node_name
from gpumon.errors import GpumonError
from gpumon.model.text import clean
from gpumon.services.asking import shared_slurm
from gpumon.services.jobs import look_again, with_cluster
from gpumon.services.restarts import Restarts
from gpumon.slurm import hostlist
from gpumon.slurm.ids import JobId
from gpumon.slurm.job import Job
from gpumon.slurm.parts import parts_of
from gpumon.slurm.runner import LocalRunner
from gpumon.sources.attach import task_here
from gpumon.sources.watched import WatchedJob
from gpumon.transport.fallback import Transports
from gpumon.transport.local import LocalTransport

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.model.view import Silence
    from gpumon.transport.prompt import Prompter

#: `gpumon` opens at once; a controller that is slower than this is not waited for
_PATIENCE_S = 2.0
_MAX_COMPONENTS = 128
#: s until Slurm is queried for the job of a screen that opened without it
_LATER_S = 1.0


def jobs_around(environ: Mapping[str, str]) -> list[Job]:
    """The job (of a het job, its components) as the environment tells of it.

    Empty outside of a job, and where the job has no node but this one: then this node is enough.
    """
    size = environ.get("SLURM_HET_SIZE", "")
    count = int(size) if size.isascii() and size.isdigit() else 0
    if 1 < count <= _MAX_COMPONENTS:
        jobs = [_job(environ, f"_HET_GROUP_{offset}", offset) for offset in range(count)]
    else:
        jobs = [_job(environ, "", None)]
    if not all(job.raw_id and job.nodes for job in jobs):
        return []
    nodes = {node for job in jobs for node in job.nodes}
    return [] if nodes == {node_name(environ)} else jobs


def named_around(environ: Mapping[str, str], id: JobId, why: str) -> list[Job]:
    """The job around this shell if it is that of the id, else empty; `why` Slurm does not tell."""
    jobs = [replace(job, missing={"queue": why}) for job in jobs_around(environ)]
    return jobs if any(id.job in (job.raw_id, job.het_job_id) for job in jobs) else []


def known_better(jobs: Sequence[Job]) -> list[Job]:
    """The same with what Slurm knows of them (GPUs per node, limits), if it answers at once."""
    slurm = shared_slurm(LocalRunner(), timeout_s=_PATIENCE_S)
    try:
        found = with_cluster(slurm, look_again(slurm, jobs))
    except GpumonError:
        return list(jobs)
    return found if all(job.is_running and job.nodes for job in found) else list(jobs)


def _job(environ: Mapping[str, str], suffix: str, offset: int | None) -> Job:
    def text(name: str) -> str:
        return clean(environ.get(f"{name}{suffix}", ""), 4096).strip()

    raw_id = text("SLURM_JOB_ID")
    try:
        nodes = tuple(hostlist.expand(text("SLURM_JOB_NODELIST")))
    except ValueError:
        nodes = ()
    start = text("SLURM_JOB_START_TIME")
    leader = clean(environ.get("SLURM_JOB_ID_HET_GROUP_0", ""), 20) if offset is not None else ""
    return Job(
        raw_id=raw_id if raw_id.isascii() and raw_id.isdigit() else "",
        id=f"{leader}+{offset}" if leader else raw_id,
        het_job_id=leader,
        het_offset=offset,
        name=text("SLURM_JOB_NAME"),
        cluster=clean(environ.get("SLURM_CLUSTER_NAME", ""), 80),
        state="RUNNING",
        node_list=text("SLURM_JOB_NODELIST"),
        nodes=nodes,
        start=float(start) if start.isascii() and start.isdigit() else None,
    )


def job_here(environ: Mapping[str, str]) -> Job | None:
    """The job around this shell, if it has a number; its nodes as far as they are told."""
    job = _job(environ, "", None)
    return job if job.raw_id else None


class OwnJob:
    """What Slurm knows of the job around this shell, on whose node the screen stands already.

    Before Slurm's first answer it says nothing: the job's environment and cgroup say enough, also
    where there is no Slurm, in a container say.
    """

    def __init__(self, watched: WatchedJob) -> None:
        self._watched = watched
        timer = threading.Timer(_LATER_S, watched.ask_soon)
        timer.daemon = True
        timer.start()

    def job(self) -> Job | None:
        job = self._watched.job()
        return job if job is not None and job.told_at is not None else None

    @property
    def silence(self) -> Silence | None:
        return self._watched.silence if self.job() is not None else None

    def news(self) -> str:
        return self._watched.news()


def watch_here(job: Job, settings: Settings, prompter: Prompter) -> WatchedJob:
    """The source of this node, and of those that the job around this shell gets later."""
    node = node_name(os.environ)
    slurm = shared_slurm(LocalRunner())

    def look(soon: bool) -> Sequence[Job]:
        return look_again(slurm, [job], soon=soon)

    def ways(running: Sequence[Job]) -> Mapping[str, Transports]:
        return _ways(running, node, prompter)

    first, explained = [task_here(node)], Restarts(slurm).explained
    watched = WatchedJob([job], look, ways, settings.interval_s, explained, first=first)
    watched.name = "local"
    return watched


def _ways(running: Sequence[Job], node: str, prompter: Prompter) -> Mapping[str, Transports]:
    """This node is read as ever; ways to others are looked for when there are any."""
    parts = parts_of(running)
    ways: Mapping[str, Transports] = {}
    if any(part.node != node for part in parts):
        from gpumon.transport.available import AvailableTransports, here

        ways = AvailableTransports(prompter, here(os.environ)).for_jobs(running)
    local = Transports([LocalTransport(node)])
    return {part.name: local if part.node == node else ways[part.name] for part in parts}
