"""What Slurm's accounting proves about a job's use of its nodes, and what its figures mean.

Accounting knows CPU seconds exactly, memory only as some peak whose meaning hangs on Slurm's
version and plug-in, and of GPUs at most a peak. A site with jobstats also leaves a summary per
node and GPU (JS1 in AdminComment); where it is there, it is believed before the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from gpumon.analysis.once import once
from gpumon.slurm.job import ExitCode, Job, Step
from gpumon.slurm.js1 import NodeSummary, Summary, parse
from gpumon.slurm.values import version

#: how often Slurm's plug-ins look at a step unless told otherwise (JobAcctGatherFrequency)
POLL_S = 30
#: Slurm's own mark for out of memory, as the signal of an exit code
OOM_SIGNAL = 125
#: states in which Slurm killed the job's processes; then TotalCPU lacks theirs
KILLED_STATES = frozenset((
    "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED", "DEADLINE",
))  # fmt: skip
_CACHE_V2 = (23, 11)
_PEAK = (24, 11)


@dataclass(frozen=True)
class Meaning:
    """What a figure of memory counts. Source: the sources of Slurm 22.05 to 26.05.

    | Slurm | cgroup v2 | cgroup v1 | linux |
    |---|---|---|---|
    | to 23.02 | anonymous, polled | rss, polled | rss of the processes, polled |
    | 23.11, 24.05 | with page cache, polled | rss, polled | the same |
    | 24.11 on | the kernel's peak, with page cache (both versions) | | the same |
    | 25.11 on, no_file_cache | without page cache, polled | | |
    """

    words: str
    cache: bool | None  # page cache is in; None: it may be
    polled: bool = True  # looked at now and then: a spike in between is lost

    @property
    def is_upper_bound(self) -> bool:
        """The job may have needed much less."""
        return self.cache is not False


JS1_MEANING = Meaning("rss and shared memory, as jobstats measures them", cache=False)


@dataclass(frozen=True)
class Used:
    """What a job used by accounting alone; None where that is not known, `missing` says why.

    `mem_bytes` is of the node that used most. `gpu_peak_percent` is Slurm's gres/gpuutil: the
    highest sum over a task's GPUs in any poll, never a mean.
    """

    source: str  # sacct, jobstats
    cpu_core_s: float | None = None
    cpu_cores_mean: float | None = None
    mem_bytes: float | None = None
    mem_meaning: Meaning | None = None
    gpu_peak_percent: float | None = None
    gpu_mem_bytes: float | None = None
    gpu_busy_percent: float | None = None  # mean over the run and the GPUs: jobstats only
    nodes: Mapping[str, NodeSummary] = field(default_factory=dict)  # jobstats only
    missing: Mapping[str, str] = field(default_factory=dict)


def meaning_of(job: Job) -> Meaning:
    """What MaxRSS means for this job. Of what is not known the worst is assumed."""
    release, gather = version(job.slurm_version), job.acct_gather
    if gather.endswith("linux"):
        return Meaning(f"sum over processes, polled every {POLL_S} s", cache=False)
    if "no_file_cache" in job.acct_params.lower():
        return Meaning(f"without page cache, polled every {POLL_S} s", cache=False)
    if release is None:
        return Meaning("may contain page cache (Slurm's version is not known)", cache=None)
    name = f"Slurm {release[0]}.{release[1]:02d}"
    if release < _CACHE_V2 or (release < _PEAK and gather.endswith("v1")):
        return Meaning(f"without page cache, polled every {POLL_S} s ({name})", cache=False)
    if gather.endswith(("v1", "v2")):
        polled = release < _PEAK
        how = f"polled every {POLL_S} s" if polled else "the kernel's peak"
        return Meaning(f"{how}, page cache included ({name})", cache=True, polled=polled)
    return Meaning(f"may contain page cache ({name})", cache=None, polled=release < _PEAK)


def out_of_memory(job: Job) -> list[str]:
    """Where Slurm says that memory ran out: `job`, and ids of steps; never read from MaxRSS.

    A step may be OUT_OF_MEMORY while its job is FAILED 1:0; then the derived exit code tells, and
    `job` stands here only where no step is known to be the one.
    """
    steps = [step.id for step in job.steps if _step_out_of_memory(step)]
    own = job.state == "OUT_OF_MEMORY" or _is_oom(job.exit_code)
    return ["job", *steps] if own or (_is_oom(job.derived_exit_code) and not steps) else steps


def _is_oom(code: ExitCode | None) -> bool:
    return code is not None and code.signal == OOM_SIGNAL


def _step_out_of_memory(step: Step) -> bool:
    return step.state == "OUT_OF_MEMORY" or _is_oom(step.exit_code)


@once
def used(job: Job) -> Used:
    """What accounting alone proves."""
    summary = parse(job.admin_comment)
    if summary is not None and summary.nodes:
        return _from_summary(job, summary)
    missing: dict[str, str] = {}
    cpu_core_s = _cpu(job, missing)
    return Used(
        source="sacct",
        cpu_core_s=cpu_core_s,
        cpu_cores_mean=_per_s(cpu_core_s, job.elapsed_s),
        mem_bytes=_memory(job, missing),
        mem_meaning=meaning_of(job),
        gpu_peak_percent=_tracked(job, "gres/gpuutil"),
        gpu_mem_bytes=_tracked(job, "gres/gpumem"),
        missing=missing,
    )


def _from_summary(job: Job, summary: Summary) -> Used:
    """A total is None as soon as a node's figure is missing: a part is no total."""
    nodes = list(summary.nodes.values())
    seconds = [each.cpu_s for each in nodes if each.cpu_s is not None]
    core_s = sum(seconds) if len(seconds) == len(nodes) else None
    memory = [float(each.mem_used_bytes) for each in nodes if each.mem_used_bytes is not None]
    gpus = [gpu for each in nodes for gpu in each.gpus.values()]
    busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    return Used(
        source="jobstats",
        cpu_core_s=core_s,
        cpu_cores_mean=_per_s(core_s, summary.elapsed_s or job.elapsed_s),
        mem_bytes=max(memory) if memory and len(memory) == len(nodes) else None,
        mem_meaning=JS1_MEANING,
        gpu_mem_bytes=highest(gpu.mem_used_bytes for gpu in gpus),
        gpu_busy_percent=sum(busy) / len(busy) if busy and len(busy) == len(gpus) else None,
        nodes=summary.nodes,
        missing={} if len(memory) == len(nodes) else {"mem": "jobstats lacks a node's memory"},
    )


def _per_s(amount: float | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds else None


def _cpu(job: Job, missing: dict[str, str]) -> float | None:
    if not job.has_ended and not _is_told(job):
        missing["cpu"] = "Slurm counts CPU time when a step ends"
        return None
    if job.state in KILLED_STATES and not any("cpu" in step.usage.total for step in job.steps):
        missing["cpu"] = "Slurm loses the CPU time of processes that it kills"
        return None
    steps = [step.cpu_s for step in job.steps if step.cpu_s is not None]
    known = [sum(steps)] if steps else []
    known += [job.cpu_s] if job.cpu_s is not None else []
    if not known:
        missing["cpu"] = "no CPU time in accounting"
    return max(known, default=None)  # either may lack the time of killed processes


def _is_told(job: Job) -> bool:
    """Whether sstat told what the running steps used so far."""
    return any(step.source == "sstat" for step in job.steps)


def _memory(job: Job, missing: dict[str, str]) -> float | None:
    """The most that one node can have used at once, by the steps' peaks: an upper bound.

    MaxRSS is of the largest task. So: times the tasks on a node, at most the sum over all tasks
    (TRESUsageInTot); and steps that ran at the same time are added.
    """
    if not job.has_ended and not _is_told(job):
        missing["mem"] = "Slurm tells a step's memory when it ends"
        return None
    peaks = [(step, peak) for step in job.steps if (peak := _on_a_node(step, job)) is not None]
    if not any(peak for _, peak in peaks):
        missing["mem"] = (
            "out of memory before the first look" if out_of_memory(job) else
            f"no step lived until Slurm's first look (every {POLL_S} s)" if peaks else
            "no memory in accounting"
        )  # fmt: skip
        return None
    return max(sum(peak for each, peak in peaks if _together(each, step)) for step, _ in peaks)


def _on_a_node(step: Step, job: Job) -> float | None:
    if step.max_rss_bytes is None:
        return None
    tasks, nodes = max(step.tasks or 1, 1), max(step.node_count or 1, 1)
    share = 1 / nodes
    cpus = [each.cpus for each in job.allocations if each.cpus]
    if nodes > 1 and len(cpus) == nodes:
        share = max(cpus) / sum(cpus)  # Slurm fills nodes by their CPUs
    peak = float(step.max_rss_bytes) * ceil(tasks * share)
    total = step.usage.total.get("mem")
    return peak if not total else max(float(step.max_rss_bytes), min(peak, total))


def _together(one: Step, other: Step) -> bool:
    """Whether `one` ran when `other` began; unknown times count as yes, for it is a bound."""
    if one is other or one.start is None or other.start is None:
        return True
    end = one.end
    if end is None and one.elapsed_s is not None:
        end = one.start + one.elapsed_s
    return one.start <= other.start and (end is None or other.start < end)


def _tracked(job: Job, name: str) -> float | None:
    """The highest of a TRES that sites may track; None where they do not, or while it runs."""
    return highest(step.usage.maximum.get(name) for step in job.steps)


def highest(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)
