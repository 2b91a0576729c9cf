"""Why Slurm's numbers and ours differ: both beside each other, and the reason.

Source of the reasons: the accounting plug-ins' and seff's code of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.analysis.accounting import highest, meaning_of, out_of_memory, used
from gpumon.analysis.evidence import Evidence, Track
from gpumon.analysis.requested import requested
from gpumon.analysis.signals import job_devices
from gpumon.model.units import bytes_text
from gpumon.slurm.job import Job
from gpumon.slurm.seff import Seff, seff


@dataclass(frozen=True)
class Difference:
    """One quantity, in %: what Slurm says, what was measured, and why; raises nothing."""

    quantity: str  # cpu, mem, gpu
    theirs: float
    ours: float
    reasons: tuple[str, ...]

    @property
    def points(self) -> float:
        return abs(self.theirs - self.ours)

    def is_large(self, share: float, points: float) -> bool:
        """By more than `share` of the larger number, and by so many points."""
        return self.points > share * max(self.theirs, self.ours) and self.points >= points


def differences(evidence: Evidence) -> list[Difference]:
    """Of those quantities that both Slurm and the recording know. Empty without either."""
    job = evidence.job
    if job is None or not evidence.has_samples:
        return []
    theirs = seff(job)
    found = [_memory(evidence, job, theirs), _cpu(evidence, job, theirs), _gpu(evidence, job)]
    return [each for each in found if each is not None]


def mem_percent(evidence: Evidence) -> float | None:
    """Measured memory of all nodes of what was allocated; None as soon as a node is missing."""
    request = requested(evidence)
    peaks = [each.mem_peak_bytes for each in evidence.nodes if each.mem_peak_bytes is not None]
    if not request.mem_bytes or len(peaks) < request.nodes:
        return None
    return 100 * sum(peaks) / (request.mem_bytes * request.nodes)


def cpu_percent(evidence: Evidence) -> float | None:
    """Measured CPU time of cores × time; None where the recording began later than the job."""
    request = requested(evidence)
    known = [each.cpu_core_s for each in evidence.nodes if each.cpu_core_s is not None]
    elapsed_s = evidence.elapsed_s
    if not request.cpus or len(known) < request.nodes or not elapsed_s:
        return None
    if not evidence.coverage.from_start:
        return None
    return 100 * sum(known) / (request.cpus * request.nodes * elapsed_s)


def time_reason(job: Job) -> str:
    """Why a job ran longer than its limit; "" where it did not."""
    if job.elapsed_s is None or not job.time_limit_s or job.elapsed_s <= job.time_limit_s:
        return ""
    return "limit exceeded by the kill's grace time"


def _memory(evidence: Evidence, job: Job, theirs: Seff) -> Difference | None:
    ours = mem_percent(evidence)
    if ours is None or theirs.mem_percent is None:
        return None
    reasons = (
        _why_more(evidence, job, theirs, ours)
        if theirs.mem_percent > ours
        else _why_less(evidence, job)
    )
    return Difference("mem", theirs.mem_percent, ours, tuple(reasons))


def _why_more(evidence: Evidence, job: Job, theirs: Seff, ours: float) -> list[str]:
    reasons = []
    cache = highest(each.job.get("mem_cache_bytes", Track()).peak() for each in evidence.nodes)
    meaning = meaning_of(job)
    if meaning.is_upper_bound and cache:
        known = "includes" if meaning.cache else "may include"
        reasons.append(f"Slurm's peak {known} page cache: {bytes_text(cache)} were measured")
    if theirs.rule == "24.11" and any((step.tasks or 1) > 1 for step in job.steps):
        reasons.append("it is the sum of task peaks that were not simultaneous")
    tasks = max((step.tasks or 1 for step in job.steps), default=1)
    if theirs.rule != "24.11" and tasks > 1:
        reasons.append(f"it counts the largest task's peak for each of {tasks} tasks")
    if job.acct_gather.endswith("linux") and not _counts_shared_once(job):
        reasons.append("shared pages are counted in each process")
    if not reasons and meaning.is_upper_bound:
        reasons.append("Slurm's figure may include page cache")
    return reasons or ["the recording missed a short peak"]


def _why_less(evidence: Evidence, job: Job) -> list[str]:
    reasons = []
    if out_of_memory(job) and not any(step.max_rss_bytes for step in job.steps):
        reasons.append("out of memory before Slurm's first look")
    if meaning_of(job).polled:
        reasons.append("Slurm looks every 30 s and missed the peak")
    if len([step for step in job.steps if step.max_rss_bytes]) > 1:
        reasons.append("only the largest step is counted")
    shared = highest(each.job.get("mem_shmem_bytes", Track()).peak() for each in evidence.nodes)
    if shared and job.acct_gather.endswith("linux"):
        reasons.append(f"{bytes_text(shared)} of shared memory are the job's, not its processes'")
    return reasons or ["Slurm counts its steps, the recording the whole job"]


def _counts_shared_once(job: Job) -> bool:
    return any(word in job.acct_params.lower() for word in ("usepss", "noshared"))


def _cpu(evidence: Evidence, job: Job, theirs: Seff) -> Difference | None:
    ours = cpu_percent(evidence)
    if ours is None or theirs.cpu_percent is None:
        return None
    if job.is_running:
        reason = "Slurm counts a step's CPU time when it ends"
    elif theirs.cpu_percent < ours:
        reason = "the CPU time of killed processes is lost to Slurm"
    else:
        reason = "the recording does not cover the whole run"
    return Difference("cpu", theirs.cpu_percent, ours, (reason,))


def _gpu(evidence: Evidence, job: Job) -> Difference | None:
    """gres/gpuutil is a peak; over all GPUs of a task it goes up to N × 100."""
    peak = used(job).gpu_peak_percent
    means = [each.track("busy_percent").average() for each in job_devices(evidence)]
    known = [value for value in means if value is not None]
    if peak is None or not known or len(known) < len(means):
        return None
    reasons = ["Slurm stores the peak of 30-s polls, not the mean"]
    if peak > 100:
        reasons.append("and adds up the GPUs of a task")
    return Difference("gpu", peak, sum(known) / len(known), tuple(reasons))
