"""Why Slurm's numbers and ours differ: both beside each other, and the reason.

Source of the reasons: the accounting plug-ins' and seff's code of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

from dataclasses import replace

from gpumon.analysis.accounting import KILLED_STATES, POLL_S, meaning_of, out_of_memory, used
from gpumon.analysis.known import highest, mean, total
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import RunData, Track
from gpumon.analysis.signals import job_devices
from gpumon.analysis.whole_run import cache_peak, host_peak, why_partly
from gpumon.model.units import bytes_text
from gpumon.plain import dataclass
from gpumon.slurm.job import Job
from gpumon.slurm.seff import Seff, seff

#: % of all cores, from which on a figure is wrong: clocks differ by a little
_FULL_PERCENT = 105.0


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


def differences(run: RunData) -> list[Difference]:
    """Of those quantities that both Slurm and the recording know. Empty without either."""
    job = run.job
    if job is None or not run.has_samples:
        return []
    theirs = seff(job)
    found = [_memory(run, job, theirs), _cpu(run, job, theirs), _gpu(run, job)]
    return [each for each in found if each is not None]


def mem_percent(run: RunData) -> float | None:
    """Memory of all nodes of what was allocated; None as soon as a node is missing."""
    request = requested(run)
    peaks = host_peak(run).nodes
    told, in_all = run.job.allocated.mem_bytes if run.job else None, total(peaks)
    given = told or (request.mem_bytes or 0.0) * request.nodes
    if not given or in_all is None or len(peaks) < request.nodes:
        return None
    return 100 * in_all / given


def cpu_percent(run: RunData) -> float | None:
    """Measured CPU time of cores × time; None where the recording lacks the start or the end."""
    request = requested(run)
    core_s, elapsed_s = total(each.cpu_core_s for each in run.nodes), run.elapsed_s
    told = run.job.allocated.cpus if run.job else None
    given = told or (request.cpus or 0) * request.nodes
    is_whole = run.coverage.from_start and run.coverage.to_end
    if not given or core_s is None or len(run.nodes) < request.nodes or not elapsed_s:
        return None
    return 100 * core_s / (given * elapsed_s) if is_whole else None


def _memory(run: RunData, job: Job, theirs: Seff) -> Difference | None:
    ours = mem_percent(run)
    if ours is None or theirs.mem_percent is None:
        return None
    reasons = _why_more(run, job, theirs) if theirs.mem_percent > ours else _why_less(run, job)
    return Difference("mem", theirs.mem_percent, ours, tuple(reasons))


def _why_more(run: RunData, job: Job, theirs: Seff) -> list[str]:
    reasons = []
    others = tuple(step for step in job.steps if not step.is_own)
    without_ours = seff(replace(job, steps=others))
    if without_ours.mem_bytes != theirs.mem_bytes:
        reasons.append(f"Slurm counts gpumon's own step ({bytes_text(theirs.mem_bytes or 0)})")
    cache = cache_peak(run)
    meaning = meaning_of(job)
    if meaning.is_upper_bound and cache:
        known = "includes" if meaning.cache else "may include"
        reasons.append(f"Slurm's peak {known} page cache ({bytes_text(cache)} were measured)")
    if why := why_partly(run):
        return [*reasons, why]
    if theirs.rule == "24.11" and any((step.tasks or 1) > 1 for step in job.steps):
        reasons.append("Slurm adds up the peaks of tasks, which were not simultaneous")
    tasks = max((step.tasks or 1 for step in job.steps), default=1)
    if theirs.rule != "24.11" and tasks > 1:
        reasons.append(f"seff counts the largest task's peak for each of {tasks} tasks")
    counts_once = any(word in job.acct_params.lower() for word in ("usepss", "noshared"))
    if job.acct_gather.endswith("linux") and not counts_once:
        reasons.append("Slurm counts shared pages once for each process")
    if not reasons and meaning.is_upper_bound and cache is None:
        reasons.append("Slurm's figure may include page cache")
    return reasons or ["the recording may have missed a short peak"]


def _why_less(run: RunData, job: Job) -> list[str]:
    reasons = []
    if out_of_memory(job) and not any(s.max_rss_bytes for s in job.steps if not s.is_own):
        reasons.append("the job ran out of memory before Slurm's first poll")
    if meaning_of(job).polled:
        reasons.append(f"Slurm polls every {POLL_S} s and missed the peak")
    if len([step for step in job.steps if step.max_rss_bytes and not step.is_own]) > 1:
        reasons.append("seff counts only the largest step")
    shared = highest(each.job.get("mem_shmem_bytes", Track()).peak() for each in run.nodes)
    if shared and job.acct_gather.endswith("linux"):
        reasons.append(f"{bytes_text(shared)} of shared memory belong to no single process")
    return reasons or ["Slurm counts only its steps, the recording counts the whole job"]


def _cpu(run: RunData, job: Job, theirs: Seff) -> Difference | None:
    ours = cpu_percent(run)
    if ours is None or theirs.cpu_percent is None:
        return None
    why = _why_less_cpu if theirs.cpu_percent < ours else _why_more_cpu
    reason = why(run, job, theirs.cpu_percent)
    return Difference("cpu", theirs.cpu_percent, ours, (reason,) if reason else ())


def _why_less_cpu(run: RunData, job: Job, theirs: float) -> str:
    """Why Slurm counts less; `theirs` in %."""
    nodes = requested(run).nodes
    reached = max((each.node_count or nodes for each in job.user_steps), default=0)
    if job.is_running:
        return "Slurm adds a step's CPU time only when it ends"
    if job.state in KILLED_STATES:
        return "Slurm does not count the CPU time of killed processes"
    if reached and reached < nodes:
        return f"Slurm's steps ran on {reached} of {nodes} nodes only"
    return "Slurm counts no processes that were killed, or started outside of its steps"


def _why_more_cpu(run: RunData, job: Job, theirs: float) -> str:
    """Why Slurm counts more; nothing where that is not known."""
    if theirs > _FULL_PERCENT:
        return "the job's cores cannot do as much as Slurm counted"
    return why_partly(run)


def _gpu(run: RunData, job: Job) -> Difference | None:
    """gres/gpuutil is a peak; over all GPUs of a task it goes up to N × 100."""
    peak = used(job).gpu_peak_percent
    busy = mean(each.track("busy_percent").average() for each in job_devices(run))
    if peak is None or busy is None:
        return None
    reasons = [f"Slurm stores the highest of its polls every {POLL_S} s, not the mean"]
    if peak > 100:
        reasons.append("it adds up the GPUs of a task")
    return Difference("gpu", peak, busy, tuple(reasons))
