"""The right-job guard: is this the job that was asked for?

A shell that ssh brings to a node may be adopted into another job of the same user, or into none.
What is read there must not be shown as the job's.
"""

from __future__ import annotations

from typing import FrozenSet, Mapping, NamedTuple, Optional

from gpumon.collect.jobpath import (
    SLUID,
    JobPath,
    Mount,
    find_job_cgroup,
    parse_mounts,
    search_job_cgroup,
)
from gpumon.collect.proc import parse_count, read_text

#: `why` in the data of an `end` event, for readers that act on it
WRONG_JOB = "wrong-job"
NO_JOB = "no-job"
JOB_ENDED = "job-ended"

_MAX_JOB = 1 << 32


class Target(NamedTuple):
    """The job asked for. `gpus`: how many it has on this node, None when that is not known."""

    names: FrozenSet[str]  # its id as cgroups and SLURM_JOB_ID have it, its SLUID
    gpus: Optional[int] = None

    @property
    def id(self) -> str:
        """The id, else the SLUID."""
        return next((name for name in sorted(self.names) if name.isdigit()), min(self.names))


class Standing(NamedTuple):
    """Where this process stands. `why` is set where it must not speak for the job."""

    path: Optional[JobPath]  # of the job asked for; None where it has no cgroup
    inside: bool
    why: str = ""  # WRONG_JOB or NO_JOB
    text: str = ""  # the same for people


def parse_target(text: str, gpus: Optional[int] = None) -> Target:
    """`4711`, `4711.batch`, or several names of one job: `4711,sEKNKTV3WPV500`.

    Raises ValueError for what is no name of a job on a node: an array's task and a component of
    a het job have a number of their own there; and for GPUs fewer than none.
    """
    names = [name.split(".")[0] for name in text.split(",")]
    for name in names:
        number = parse_count(name)
        if not SLUID.fullmatch(name) and not (name.isdigit() and number and number < _MAX_JOB):
            raise ValueError(f"{name!r} is no job: give the number that SLURM_JOB_ID has in it")
    if gpus is not None and gpus < 0:
        raise ValueError(f"{gpus} is no number of GPUs; give 0 or more")
    return Target(frozenset(names), gpus)


def stand(
    target: Target,
    environ: Mapping[str, str],
    proc: str = "/proc",
    mounts: Optional[Mapping[str, Mount]] = None,
) -> Standing:
    """Compare this process's cgroup, else its environment, with the job asked for."""
    try:
        own = find_job_cgroup(read_text(f"{proc}/self/cgroup"), environ)
    except OSError:
        own = None
    if own is not None:
        if {own.job, own.name} & target.names:
            return Standing(own, True)
        return _wrong(own.job or own.name, target)
    told = environ.get("SLURM_JOB_ID", "") if environ.get("SLURMD_NODENAME") else ""
    if told:  # a node where Slurm uses no cgroups
        same = {told, environ.get("SLURM_JOB_SLUID", told)} & target.names
        return Standing(None, True) if same else _wrong(told, target)
    if mounts is None:
        mounts = _mounts(proc)
    path = search_job_cgroup(target.names, mounts)
    if path is None:
        return Standing(None, False, NO_JOB, f"no cgroup of job {target.id} on this node")
    return Standing(path, False)


def _wrong(stands_in: str, target: Target) -> Standing:
    text = f"this shell was put into job {stands_in}, not into job {target.id}"
    return Standing(None, False, WRONG_JOB, text)


def _mounts(proc: str) -> Mapping[str, Mount]:
    try:
        return parse_mounts(read_text(f"{proc}/self/mountinfo"))
    except OSError:
        return {}
