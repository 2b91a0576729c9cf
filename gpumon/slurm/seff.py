"""`seff`'s two percentages, by the rule of each Slurm version, to explain why ours differ.

Source: contribs/seff/seff.in of the tags 22.05 to 26.05, and what it prints. CPU seconds are the
job row's TotalCPU. Memory: before 24.11 that of the task with the highest peak of all steps,
times the tasks of its step; from 24.11 on the highest sum of a step's tasks' peaks. Of what was
requested (22.05 and before), else allocated.
"""

from __future__ import annotations

from gpumon.plain import dataclass
from gpumon.slurm import values
from gpumon.slurm.job import Job, Step


@dataclass(frozen=True)
class Seff:
    """What seff would print; None where it cannot be computed."""

    rule: str  # 22.05, 23.02, 24.11: the first release with it, or 22.05 and before
    cpu_percent: float | None
    mem_percent: float | None
    mem_bytes: int | None


def rule(version: str) -> str:
    """The name of the rule of this release; "" where it is not known."""
    parsed = values.version(version)
    if parsed is None:
        return ""
    return "24.11" if parsed >= (24, 11) else "23.02" if parsed >= (23, 2) else "22.05"


def seff(job: Job, version: str = "") -> Seff:
    """For a job, with its steps; `version` is that of its Slurm, else the job says it."""
    name = rule(version or job.slurm_version)
    core_s = None
    if job.elapsed_s is not None and job.allocated.cpus is not None:
        core_s = job.elapsed_s * job.allocated.cpus
    of = job.requested.resources.mem_bytes if name == "22.05" else job.allocated.mem_bytes
    mem = _mem_bytes(job.steps, name) if name else None
    return Seff(
        name,
        # seff rounds the CPU time to seconds
        _percent(round(job.cpu_s) if job.cpu_s is not None else None, core_s),
        _percent(mem, of),
        mem,
    )


def _mem_bytes(steps: tuple[Step, ...], rule: str) -> int | None:
    if rule == "24.11":
        totals = [int(step.usage.total["mem"]) for step in steps if "mem" in step.usage.total]
        return max(totals, default=None)
    peaks = [
        (int(step.usage.maximum["mem"]), step.tasks)
        for step in steps
        if "mem" in step.usage.maximum and step.tasks is not None
    ]
    peak, tasks = max(peaks, key=lambda each: each[0], default=(None, 1))
    return peak * tasks if peak is not None and tasks is not None else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100.0 * part / whole if part is not None and whole else None
