"""The tasks of a job array: which count, how their figures are spread, and who is far off.

Only tasks that ended and ran at least five minutes enter the figures, and only from five of them
on; a task whose figure is not known is in no denominator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

from gpumon.analysis.accounting import highest, out_of_memory, used
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.requested import requested
from gpumon.analysis.summary import RunSummary
from gpumon.slurm.job import Job
from gpumon.slurm.js1 import parse

LEAST_TASKS = 5
LEAST_S = 300.0


@dataclass(frozen=True)
class Task:
    """One task's figures; None where nobody knows. `source`: recording, jobstats, sacct."""

    job: Job
    mem_bytes: float | None = None  # of the node that used most
    mem_factor: float = 1.5  # margin that this figure needs
    peak_cores: float | None = None  # largest mean of a minute: recordings only
    busy_percent: float | None = None
    gpu_idle: bool | None = None  # no GPU ever worked
    source: str = "sacct"

    @property
    def name(self) -> str:
        return self.job.array_task or self.job.id


@dataclass(frozen=True)
class Spread:
    """Figures over tasks, in the unit of the figures."""

    low: float
    p50: float
    p95: float
    high: float
    count: int


def all_tasks(evidence: Evidence) -> list[Job]:
    """The newest attempt of each task of the job's array, this one's too."""
    job = evidence.job
    if job is None or not job.array_job_id:
        return []
    newest: dict[str, Job] = {}
    for each in (*evidence.siblings, job):
        if each.array_job_id != job.array_job_id:
            continue
        known = newest.get(each.raw_id)
        if known is None or (each.start or 0.0) >= (known.start or 0.0):
            newest[each.raw_id] = each
    return list(newest.values())


def ended_tasks(evidence: Evidence) -> list[Task]:
    """Those that count: ended, and at least five minutes long."""
    least_s = evidence.site.threshold("array.elapsed_s", LEAST_S)
    return [
        _task(evidence, job)
        for job in all_tasks(evidence)
        if job.has_ended and job.elapsed_s is not None and job.elapsed_s >= least_s
    ]


def _task(evidence: Evidence, job: Job) -> Task:
    run = evidence.sibling_runs.get(job.raw_id)
    if run is not None and run.jobs:
        return _recorded(evidence, job, run)
    figures = used(job)
    meaning = figures.mem_meaning
    cut = job.state == "CANCELLED" and figures.source == "sacct"
    return Task(
        job,
        mem_bytes=None if cut else figures.mem_bytes,
        mem_factor=1.2 if meaning is not None and meaning.cache else 1.5,
        busy_percent=figures.gpu_busy_percent,
        gpu_idle=_summary_idle(job),
        source=figures.source,
    )


def _recorded(evidence: Evidence, job: Job, run: RunSummary) -> Task:
    nodes = requested(evidence).nodes
    peaks = [each.mem_peak_bytes for each in run.jobs if each.mem_peak_bytes is not None]
    shares = [each.active_share for each in run.devices]
    busy = [each.busy_mean for each in run.devices if each.busy_mean is not None]
    idle = None if None in shares or not shares else not any(shares)
    return Task(
        job,
        mem_bytes=max(peaks) if len(peaks) >= nodes and run.covered_percent >= 50 else None,
        mem_factor=1.2 if run.covered_percent >= 95 else 1.5,
        peak_cores=highest(each.cpu_cores_peak60 for each in run.jobs),
        busy_percent=sum(busy) / len(busy) if busy else None,
        gpu_idle=idle if run.covered_percent >= 95 or idle is False else None,
        source="recording",
    )


def _summary_idle(job: Job) -> bool | None:
    """By jobstats: every GPU's mean is 0. None without its summary, or where a GPU has no mean."""
    summary = parse(job.admin_comment)
    gpus = [g for node in summary.nodes.values() for g in node.gpus.values()] if summary else []
    means = [gpu.busy_percent for gpu in gpus]
    if not means:
        return None
    return False if any(means) else None if None in means else True


def spread(values: Iterable[float | None]) -> Spread | None:
    """Of the known ones; None of fewer than five."""
    known = sorted(value for value in values if value is not None)
    if len(known) < LEAST_TASKS:
        return None
    p95 = quantiles(known, n=20, method="inclusive")[-1]
    return Spread(known[0], median(known), p95, known[-1], len(known))


def outliers(
    tasks: Iterable[Task], figure: Callable[[Task], float | None], least: float
) -> list[tuple[Task, float, float]]:
    """(task, its value, the median) beyond Q3 + 3 · IQR, or at least twice the median.

    Values differ by at least `least` from the median; where more than a fifth of the tasks would
    be outliers, the figures are spread widely and nobody is one.
    """
    known = [(task, value) for task in tasks if (value := figure(task)) is not None]
    if len(known) < LEAST_TASKS:
        return []
    q1, p50, q3 = quantiles([value for _, value in known], n=4, method="inclusive")
    far = [
        (task, value, p50)
        for task, value in known
        if value - p50 >= least and (value > q3 + 3 * (q3 - q1) or value >= 2 * p50)
    ]
    return far if len(far) <= len(known) / 5 else []


def most_at_once(jobs: Iterable[Job]) -> int:
    """How many of them ran at the same time, at most; one where times are not known."""
    changes = sorted(
        change
        for job in jobs
        if job.start is not None and job.end is not None
        for change in ((job.start, 1), (job.end, -1))
    )
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return max(most, 1)


def outcomes(jobs: Iterable[Job]) -> Counter[str]:
    """State -> tasks; a task that ran out of memory counts as that, whatever its own state."""
    return Counter("OUT_OF_MEMORY" if out_of_memory(job) else job.state for job in jobs)


# -- staff -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rank:
    """GPU-hours of one user, account or job. `known_hours` are those whose use is known."""

    name: str
    jobs: int
    gpu_hours: float
    known_hours: float
    idle_hours: float
    sources: tuple[str, ...]

    @property
    def idle_percent(self) -> float | None:
        return 100 * self.idle_hours / self.known_hours if self.known_hours else None


def waste_rank(jobs: Iterable[tuple[Job, float | None, str]], by: str = "user") -> list[Rank]:
    """Most idle GPU-hours first. `jobs`: each with its idle GPU-hours and who measured them; None
    where nobody did, and then its hours count as not known. `by`: user, account, id, partition.
    """
    groups: dict[str, list[tuple[Job, float | None, str]]] = {}
    for job, idle, source in jobs:
        groups.setdefault(str(getattr(job, by)), []).append((job, idle, source))
    ranks = [
        Rank(
            name,
            len(rows),
            sum(gpu_hours(job) for job, _, _ in rows),
            sum(gpu_hours(job) for job, idle, _ in rows if idle is not None),
            sum(idle for _, idle, _ in rows if idle is not None),
            tuple(sorted({source for _, idle, source in rows if idle is not None})),
        )
        for name, rows in groups.items()
    ]
    return sorted(ranks, key=lambda rank: (-rank.idle_hours, -rank.gpu_hours, rank.name))


def gpu_hours(job: Job) -> float:
    return (job.gpus or 0) * (job.elapsed_s or 0.0) / 3600


def summary_idle_gpu_hours(job: Job) -> float | None:
    """By jobstats' summary: hours of the GPUs whose mean was 0; None without means."""
    summary = parse(job.admin_comment)
    gpus = [g for node in summary.nodes.values() for g in node.gpus.values()] if summary else []
    if not gpus or any(gpu.busy_percent is None for gpu in gpus):
        return None
    return sum(gpu.busy_percent == 0 for gpu in gpus) * (job.elapsed_s or 0.0) / 3600
