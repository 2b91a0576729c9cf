"""The job itself in words, for the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.slurm.job import Job, Past, Resources

from gpumon.model.text import clean
from gpumon.model.units import bytes_text

#: why a job waits, in words, for the reasons that users meet most (squeue(1), JOB REASON CODES)
REASONS = {
    "Priority": "jobs with a higher priority are ahead of it",
    "Resources": "it is next, waiting for free nodes",
    "Dependency": "it waits for another job to end",
    "DependencyNeverSatisfied": "the job it waits for failed: it will never start; cancel it",
    "BeginTime": "its begin time has not been reached",
    "JobHeldUser": "held by its user; release it with scontrol release JOBID",
    "JobHeldAdmin": "held by an administrator",
    "ReqNodeNotAvail": "requested nodes are down, drained or reserved",
    "Reservation": "it waits for its reservation",
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionNodeLimit": "it requests more nodes than the partition allows",
    "PartitionDown": "the partition is down",
    "JobArrayTaskLimit": "the array's limit of running tasks is reached",
    "BadConstraints": "no node has the requested resources",
    "Licenses": "it waits for a licence",
    "launch failed requeued held": "its start failed, and it is held",
}


def reason_text(reason: str) -> str:
    """`Priority: jobs with a higher priority are ahead of it`; QOS and association limits too."""
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


def restart_text(job: Job) -> str:
    """`restart 2, because node4 failed`; "" in the first attempt."""
    if not job.restarts:
        return ""
    why = _why_restarted(job.past) if job.past is not None else ""
    return f"restart {job.restarts}{f', because {why}' if why else ''}"


def _why_restarted(past: Past) -> str:
    """Only what is no decision of the user's."""
    failed = [clean(node, 40) for node in past.failed_nodes]
    nodes = " and ".join(failed) if len(failed) <= 2 else f"{len(failed)} nodes"
    if past.state == "NODE_FAIL":
        return f"{nodes or 'a node'} failed"
    return {"PREEMPTED": "it was preempted", "BOOT_FAIL": "a node did not boot"}.get(past.state, "")


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


def elapsed_s(job: Job, now: float) -> float | None:
    """How long the job has run, or ran."""
    if job.has_ended and job.elapsed_s is not None:
        return job.elapsed_s
    counted_s = job.elapsed_at(now)
    if counted_s is not None:
        return counted_s
    if job.start is None:
        return None
    end = job.end if job.has_ended and job.end is not None else now
    return max(0.0, end - job.start)
