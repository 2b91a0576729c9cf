"""What the screen asks about the job itself, and what it says of it in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpumon.slurm.job import Job, Resources

from gpumon.model.text import clean
from gpumon.model.units import bytes_text


class JobSource(Protocol):
    """Knows the job from Slurm and keeps asking, from threads of its own. Neither call waits."""

    def job(self) -> Job | None:
        """The newest knowledge; None before the first answer."""

    def news(self) -> str:
        """One line that has not been told yet, else "": Slurm no longer answers, say."""


#: why a job waits, in words, for the reasons that users meet most (squeue(1), JOB REASON CODES)
REASONS = {
    "Priority": "jobs with a higher priority are before it",
    "Resources": "it is next, and waits for nodes to become free",
    "Dependency": "it waits for another job to end",
    "DependencyNeverSatisfied": "the job it waits for failed: it will never start; cancel it",
    "BeginTime": "its begin time has not come",
    "JobHeldUser": "held by its user: scontrol release JOBID lets it go",
    "JobHeldAdmin": "held by an administrator",
    "ReqNodeNotAvail": "nodes it asked for are down, drained or reserved",
    "Reservation": "it waits for its reservation",
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionDown": "the partition is down",
    "JobArrayTaskLimit": "as many tasks of the array run as it allows at once",
    "BadConstraints": "no node has what it asks for",
    "Licenses": "it waits for a licence",
    "launch failed requeued held": "its start failed, and it is held",
}


def reason_text(reason: str) -> str:
    """`Priority: jobs with a higher priority are before it`; QOS and association limits too."""
    word = clean(reason.split(",")[0].strip("() "), 80)
    if word in ("", "None"):
        return ""
    meaning = REASONS.get(word, "")
    if not meaning and word.startswith(("QOS", "Assoc")):
        whose = "the QOS" if word.startswith("QOS") else "the account"
        meaning = f"a limit of {whose} is reached"
    return f"{word}: {meaning}" if meaning else word


def state_text(job: Job) -> str:
    """`FAILED, exit code 1`, `CANCELLED by 1000`, `RUNNING`."""
    text = clean(job.state, 40)
    if job.state_by:
        text += f" by {clean(job.state_by, 40)}"
    code = job.exit_code
    if job.has_ended and code is not None and code.signal == 125:
        text += ", out of memory"  # Slurm's own mark, see ExitCode
    elif job.has_ended and code is not None and code.signal:
        text += f", signal {code.signal}"
    elif job.has_ended and code is not None and code.code:
        text += f", exit code {code.code}"
    return text


def job_id(job: Job) -> str:
    return clean(job.id or job.raw_id, 60)


def component_text(job: Job) -> str:
    """`component 1 of het job 4711`, `task 3 of array 4700`; "" for a plain job."""
    if job.het_job_id:
        return f"component {job.het_offset or 0} of het job {clean(job.het_job_id, 40)}"
    if job.array_job_id and job.array_task:
        return f"task {clean(job.array_task, 40)} of array {clean(job.array_job_id, 40)}"
    return ""


def resources_text(wanted: Resources) -> str:
    """`8 × a100 · 64 cores · 256 GiB · 2 nodes`."""
    parts = [f"{count} × {clean(kind, 40)}" for kind, count in wanted.gpu_types.items()]
    if not parts and wanted.gpus:
        parts = [f"{wanted.gpus} GPU{'s' * (wanted.gpus > 1)}"]
    parts += [f"{wanted.cpus} cores"] if wanted.cpus else []
    parts += [bytes_text(wanted.mem_bytes)] if wanted.mem_bytes else []
    parts += [f"{wanted.nodes} node{'s' * (wanted.nodes > 1)}"] if wanted.nodes else []
    return " · ".join(parts)
