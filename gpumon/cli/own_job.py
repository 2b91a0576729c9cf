"""The allocation around this shell, when it has other nodes than this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from gpumon.cli.finding import look_again, with_cluster
from gpumon.collect.base import node_name
from gpumon.errors import GpumonError
from gpumon.model.text import clean
from gpumon.slurm import hostlist
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.runner import LocalRunner

#: `gpumon` opens at once; a controller that is slower than this is not waited for
_PATIENCE_S = 2.0
_MAX_COMPONENTS = 128
#: s until Slurm is asked about the job of a screen that opens without it
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


def known_better(jobs: Sequence[Job]) -> list[Job]:
    """The same with what Slurm knows of them (GPUs per node, limits), if it answers at once."""
    slurm = Slurm(LocalRunner(), timeout_s=_PATIENCE_S)
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


class OwnJob:
    """What Slurm knows of the job around this shell; asked once, when the screen stands."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._found: Job | None = None
        timer = threading.Timer(_LATER_S, self._ask)
        timer.daemon = True
        timer.start()

    def job(self) -> Job | None:
        return self._found

    def news(self) -> str:
        return ""

    def _ask(self) -> None:
        try:
            found = Slurm(LocalRunner()).job(self._id)
            self._found = found.on_our_clock(found.ahead_s)
        except GpumonError:  # the job's environment and cgroup say enough without Slurm
            return
