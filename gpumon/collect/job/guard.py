"""The right-job guard: is this the requested job?

A shell that ssh brings to a node may be adopted into another job of the same user, or into none.
What is read there must not be shown as the job's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.collect.cgroup.path import SLUID, JobPath, Mount, mounts_of, own_job, search_job_cgroup
from gpumon.collect.procfs import parse_count
from gpumon.model.sample import NO_JOB, WRONG_JOB

_MAX_JOB = 1 << 32


class Target(NamedTuple):
    """The requested job. `gpus`: how many it has on this node, None if unknown."""

    names: frozenset[str]  # its id as cgroups and SLURM_JOB_ID have it, its SLUID
    gpus: int | None = None

    @property
    def id(self) -> str:
        """The id, else the SLUID."""
        return next((name for name in sorted(self.names) if name.isdigit()), min(self.names))


class Standing(NamedTuple):
    """Where this process stands. `why` is set where it must not speak for the job."""

    path: JobPath | None  # of the requested job; None if it has no cgroup
    inside: bool
    why: str = ""  # WRONG_JOB or NO_JOB
    text: str = ""  # the same for people


def parse_target(text: str, gpus: int | None = None) -> Target:
    """`4711`, `4711.batch`, or several names of one job: `4711,sEKNKTV3WPV500`.

    Raises ValueError for what is no name of a job on a node: an array's task and a component of
    a het job have a number of their own there; and for GPUs fewer than none.
    """
    names = [name.split(".")[0] for name in text.split(",")]
    for name in names:
        number = parse_count(name)
        if not SLUID.fullmatch(name) and not (name.isdigit() and number and number < _MAX_JOB):
            raise ValueError(
                f"{name!r} is not a valid job ID: expected the number in the job's SLURM_JOB_ID"
            )
    if gpus is not None and gpus < 0:
        raise ValueError(f"{gpus} is not a valid number of GPUs: expected 0 or more")
    return Target(frozenset(names), gpus)


def stand(
    target: Target,
    environ: Mapping[str, str],
    proc: str = "/proc",
    mounts: Mapping[str, Mount] | None = None,
) -> Standing:
    """Compare this process's cgroup, or else its environment, with the requested job."""
    own = own_job(environ, proc)
    if own is not None:
        if {own.job, own.name} & target.names:
            return Standing(own, True)
        return _wrong(own.job or own.name, target)
    told = environ.get("SLURM_JOB_ID", "") if environ.get("SLURMD_NODENAME") else ""
    if told:  # a node where Slurm uses no cgroups
        same = {told, environ.get("SLURM_JOB_SLUID", told)} & target.names
        return Standing(None, True) if same else _wrong(told, target)
    path = search_job_cgroup(target.names, mounts_of(proc) if mounts is None else mounts)
    if path is None:
        return Standing(None, False, NO_JOB, f"no cgroup of job {target.id} on this node")
    return Standing(path, False)


def _wrong(stands_in: str, target: Target) -> Standing:
    text = f"this shell belongs to job {stands_in}, not to job {target.id}"
    return Standing(None, False, WRONG_JOB, text)
