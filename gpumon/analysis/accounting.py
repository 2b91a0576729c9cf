"""What Slurm's accounting proves about a job's use of its nodes, and what its figures mean.

Accounting knows CPU seconds exactly, memory only as some peak whose meaning hangs on Slurm's
version and plug-in, and of GPUs at most a peak. A site with jobstats also leaves a summary per
node and GPU (JS1 in AdminComment); where it is there, it is believed before the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import ceil

from gpumon.analysis.known import highest, largest, mean, total
from gpumon.analysis.once import once
from gpumon.model.units import bytes_text
from gpumon.plain import dataclass
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
#: of its limit: more can be no job's memory (a sentinel, an overflow); proposed
_MOST_TIMES = 64
#: of its limit; a job that ran out of memory had more when it did
_NEAR_SHARE = 0.9
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
_SCRAPED = Meaning("rss and shared memory at the scrapes of Prometheus", cache=False)


def named(source: str) -> str:
    """Who summarized a job, in a sentence."""
    return {"prometheus": "Prometheus"}.get(source, source)


@dataclass(frozen=True)
class Used:
    """What a job used by accounting alone; None where that is not known, `missing` says why.

    `mem_bytes` is of the node that used most. `gpu_peak_percent` is Slurm's gres/gpuutil: the
    highest sum over a task's GPUs in any poll, never a mean.
    """

    source: str  # sacct, jobstats, prometheus
    cpu_core_s: float | None = None
    cpu_cores_mean: float | None = None
    mem_bytes: float | None = None
    mem_in_all_bytes: float | None = None  # of all nodes
    mem_meaning: Meaning | None = None
    gpu_peak_percent: float | None = None
    gpu_mem_bytes: float | None = None
    gpu_busy_percent: float | None = None  # mean over the run and the GPUs: of a summary only
    nodes: Mapping[str, NodeSummary] = field(default_factory=dict)  # of a summary only
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_upper_bound(self) -> bool:
        """Whether the job may have needed much less memory; also where that is not known."""
        return self.mem_meaning is None or self.mem_meaning.is_upper_bound


@once
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


@once
def out_of_memory(job: Job) -> list[str]:
    """Where Slurm says that memory ran out: `job`, and ids of steps; never read from MaxRSS.

    A step may be OUT_OF_MEMORY while its job is FAILED 1:0; then the derived exit code tells, and
    `job` stands here only where no step is known to be the one. gpumon's own steps prove nothing.
    """
    every = [step for step in job.steps if _step_out_of_memory(step)]
    steps = [step.id for step in every if not step.is_own]
    own = job.state == "OUT_OF_MEMORY" or _is_oom(job.exit_code)
    return ["job", *steps] if own or (_is_oom(job.derived_exit_code) and not every) else steps


def _is_oom(code: ExitCode | None) -> bool:
    return code is not None and code.signal == OOM_SIGNAL


def _step_out_of_memory(step: Step) -> bool:
    return step.state == "OUT_OF_MEMORY" or _is_oom(step.exit_code)


@once
def failed_steps(job: Job) -> list[Step]:
    """Steps that did not do their work. The job's script goes on after them, and its own exit code
    is what Slurm keeps: such a job may be COMPLETED.
    """
    return [each for each in job.user_steps if each.is_cut_short or _is_oom(each.exit_code)]


def has_completed(job: Job) -> bool:
    """COMPLETED, and each of its steps too: only such a job shows what the next one needs."""
    return job.state == "COMPLETED" and not failed_steps(job) and not out_of_memory(job)


def is_polled(job: Job) -> bool:
    """Whether Slurm knows its memory only from looks now and then, between which a peak is lost."""
    figures = used(job)
    return figures.source == "prometheus" or (figures.source == "sacct" and meaning_of(job).polled)


def summary_of(job: Job) -> Summary | None:
    """Of its samples by Prometheus, else what jobstats left; None without either."""
    return job.summary or parse(job.admin_comment)


@once
def used(job: Job) -> Used:
    """What accounting alone proves."""
    summary = summary_of(job)
    if summary is not None and summary.nodes:
        return _from_summary(job, summary)
    missing: dict[str, str] = {}
    cpu_core_s, mem_bytes = _cpu(job, missing), _memory(job, missing)
    has_several = (job.allocated.nodes or len(job.nodes)) > 1
    if mem_bytes is not None and has_several:
        missing["mem"] = "Slurm has the memory of the node that used most, not of all"
    return Used(
        source="sacct",
        cpu_core_s=cpu_core_s,
        cpu_cores_mean=_per_s(cpu_core_s, job.elapsed_s),
        mem_bytes=mem_bytes,
        mem_in_all_bytes=None if has_several else mem_bytes,
        mem_meaning=meaning_of(job),
        gpu_peak_percent=_tracked(job, "gres/gpuutil"),
        gpu_mem_bytes=_tracked(job, "gres/gpumem"),
        missing=missing,
    )


def _from_summary(job: Job, summary: Summary) -> Used:
    """A total is None as soon as a node's figure is missing: a part is no total."""
    nodes = list(summary.nodes.values())
    core_s = total(each.cpu_s for each in nodes)
    if summary.source == "prometheus":  # whose last scrape was before the end
        core_s = highest((core_s, _cpu(job, {})))
    memory = [each.mem_used_bytes and float(each.mem_used_bytes) for each in nodes]
    gpus = [gpu for each in nodes for gpu in each.gpus.values()]
    return Used(
        source=summary.source,
        cpu_core_s=core_s,
        cpu_cores_mean=_per_s(core_s, summary.elapsed_s or job.elapsed_s),
        mem_bytes=largest(memory),
        mem_in_all_bytes=total(memory),
        mem_meaning=JS1_MEANING if summary.source == "jobstats" else _SCRAPED,
        gpu_mem_bytes=total(gpu.mem_used_bytes for gpu in gpus),
        gpu_busy_percent=mean(gpu.busy_percent for gpu in gpus),
        nodes=summary.nodes,
        missing={"mem": f"{named(summary.source)} lacks a node's memory"} if None in memory else {},
    )


def _per_s(amount: float | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds else None


def _cpu(job: Job, missing: dict[str, str]) -> float | None:
    if not job.has_ended and not _is_told(job):
        missing["cpu"] = "Slurm counts CPU time when a step ends"
        return None
    if job.state in KILLED_STATES and not any("cpu" in step.usage.total for step in job.steps):
        missing["cpu"] = "Slurm does not count the CPU time of processes that it kills"
        return None
    steps = [step.cpu_s for step in job.steps if step.cpu_s is not None]
    known = [sum(steps)] if steps else []
    known += [job.cpu_s] if job.cpu_s is not None else []
    is_measured = not job.steps or any(step.max_rss_bytes for step in job.steps)
    if not known or not (any(known) or is_measured):  # even to start a job takes some time
        missing["cpu"] = "the accounting holds no CPU time"
        return None
    return max(known)  # either may lack the time of killed processes


def _is_told(job: Job) -> bool:
    """Whether sstat told what the running steps used so far."""
    return any(step.source == "sstat" for step in job.steps)


def _memory(job: Job, missing: dict[str, str]) -> float | None:
    """The most that one node can have used at once, by the steps' peaks: an upper bound.

    MaxRSS is of the largest task. So: times the tasks on a node, at most the sum over all tasks
    (TRESUsageInTot); and steps that ran at the same time are added, but not gpumon's own. Not known
    as soon as a step that Slurm should have looked at has no figure, or where the job had more than
    Slurm last saw.
    """
    if not job.has_ended and not _is_told(job):
        missing["mem"] = "Slurm stores a step's memory when it ends"
        return None
    steps = [step for step in job.steps if not step.is_own]
    peaks = [(step, peak) for step in steps if (peak := _on_a_node(step, job)) is not None]
    most = max((_at_once(step, peaks) for step, _ in peaks), default=0.0)
    if why := _why_no_memory(job, most, max((peak for _, peak in peaks), default=0.0)):
        missing["mem"] = why
        return None
    return most


def _at_once(step: Step, peaks: Sequence[tuple[Step, float]]) -> float:
    return sum([peak for each, peak in peaks if _together(each, step)])


def _why_no_memory(job: Job, most: float, of_a_step: float) -> str:
    """Why `most`, the highest of steps that ran at once, is not the job's; "" where it is."""
    lost_to_oom = "the job ran out of memory before Slurm's first poll"
    limit = job.allocated.mem_bytes
    if not most:
        known = any(step.max_rss_bytes is not None for step in job.steps if not step.is_own)
        if out_of_memory(job):
            return lost_to_oom
        return f"all steps ended before Slurm's first poll ({POLL_S} s)" if known else _NO_MEMORY
    if limit and (most > _MOST_TIMES * limit or of_a_step <= limit < most):
        return f"Slurm's {bytes_text(most)} cannot be right: the limit was {bytes_text(limit)}"
    unknown = next((step.id for step in job.steps if job.has_ended and _is_unmeasured(step)), None)
    if unknown is not None:
        return lost_to_oom if out_of_memory(job) else f"Slurm has no memory of step {unknown}"
    nodes = job.allocated.nodes or len(job.nodes) or 1
    polled = meaning_of(job).polled and out_of_memory(job)
    if polled and limit and most < _NEAR_SHARE * limit / nodes:
        return f"the job ran out of memory after Slurm's last poll, at {bytes_text(most)}"
    return ""


_NO_MEMORY = "the accounting holds no memory use"


def _is_unmeasured(step: Step) -> bool:
    """Whether it should have a figure and has none. `.extern` holds nothing, and a step may end
    before the first poll.
    """
    if step.max_rss_bytes or step.id == "extern" or step.is_own:
        return False
    return _step_out_of_memory(step) or (step.elapsed_s or 0.0) > POLL_S


def _on_a_node(step: Step, job: Job) -> float | None:
    """Slurm fills nodes by their CPUs. Where these are not known, and the tasks cannot be spread
    evenly, all may be on one node.
    """
    if step.max_rss_bytes is None:
        return None
    tasks, nodes = max(step.tasks or 1, 1), max(step.node_count or 1, 1)
    share = 1 / nodes if tasks % nodes == 0 else 1.0
    if nodes > 1:
        cpus = [each.cpus for each in job.allocations if each.cpus]
        share = max(cpus) / sum(cpus) if len(cpus) == nodes else share
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


def gpus_unknown(job: Job) -> str:
    """What Slurm knows of a job's GPUs: peaks at most, which tell neither a mean nor a need."""
    told = used(job)
    busy, held = told.gpu_peak_percent, told.gpu_mem_bytes
    seen = [f"{busy:.0f} % busy"] if busy is not None else []
    seen += [f"{bytes_text(held)} held"] if held is not None else []
    if not seen or told.source != "sacct":
        return "Slurm's accounting has no GPU usage"
    most = f"Slurm's polls every {POLL_S} s saw at most {' and '.join(seen)}"
    return f"{most} (by one task, its GPUs added up), neither the mean nor the need"


def _tracked(job: Job, name: str) -> float | None:
    """The highest of a TRES that sites may track; None where they do not, or while it runs."""
    return highest(step.usage.maximum.get(name) for step in job.steps)
