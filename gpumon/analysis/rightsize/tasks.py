"""The tasks of a job array: which count, how their figures are spread, and who is far off.

Only tasks that ended and ran at least five minutes enter the figures, and only from five of them
on; a task whose figure is not known is in no denominator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median, quantiles
from typing import NamedTuple

from gpumon.analysis import accounting
from gpumon.analysis.known import highest, largest, mean, total
from gpumon.analysis.once import once
from gpumon.analysis.rightsize import amounts
from gpumon.analysis.rightsize.cores import cpus_for
from gpumon.analysis.rightsize.gpus import was_never_opened
from gpumon.analysis.rightsize.proof import is_worth
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import RunData
from gpumon.analysis.summary import RunSummary
from gpumon.analysis.thresholds import Array, of_site
from gpumon.plain import dataclass
from gpumon.slurm.job import Job

LEAST_TASKS = 5


@dataclass(frozen=True)
class Task:
    """One task's figures; None where nobody knows. `source`: recording, jobstats, sacct."""

    job: Job
    mem_bytes: float | None = None  # of the node that used most
    mem_factor: float = amounts.POLLED_FACTOR  # margin that this figure needs
    polled_s: float | None = None  # between looks at the memory, where any peak may lie between
    peak_cores: float | None = None  # largest mean of a minute: recordings only
    mean_cores: float | None = None  # of all nodes
    busy_percent: float | None = None
    gpu_idle: bool | None = None  # no GPU ever worked
    source: str = "sacct"

    @property
    def name(self) -> str:
        return self.job.array_task or self.job.id


class Spread(NamedTuple):
    """Figures over tasks, in the unit of the figures."""

    low: float
    p50: float
    p95: float
    high: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here


@once
def all_tasks(data: RunData) -> list[Job]:
    """The newest attempt of each task of the job's array, this one's too."""
    job = data.job
    if job is None or not job.array_job_id:
        return []
    newest: dict[str, Job] = {}
    for each in (*data.siblings, job):
        if each.array_job_id != job.array_job_id:
            continue
        known = newest.get(each.raw_id)
        if known is None or (each.start or 0.0) >= (known.start or 0.0):
            newest[each.raw_id] = each
    return list(newest.values())


@once
def ended_tasks(data: RunData) -> list[Task]:
    """Those that count: ended, and long enough."""
    least_s = of_site(data.site, "array", Array).elapsed_s
    return [
        _task(data, job)
        for job in all_tasks(data)
        if job.has_ended and job.elapsed_s is not None and job.elapsed_s >= least_s
    ]


@once
def completed_tasks(data: RunData) -> list[Task]:
    """Those of them that show what a task needs."""
    return [task for task in ended_tasks(data) if accounting.has_completed(task.job)]


def _task(data: RunData, job: Job) -> Task:
    run = data.sibling_runs.get(job.raw_id)
    if run is not None and run.jobs:
        return _recorded(data, job, run)
    figures = accounting.used(job)
    meaning = figures.mem_meaning
    is_polled = figures.source == "sacct" and accounting.is_polled(job)
    cut = job.state == "CANCELLED" and figures.source == "sacct"
    return Task(
        job,
        mem_bytes=None if cut else figures.mem_bytes,
        mem_factor=amounts.POLLED_FACTOR if meaning is None or meaning.polled else 1.2,
        polled_s=accounting.POLL_S if is_polled else None,
        mean_cores=figures.cpu_cores_mean,
        busy_percent=figures.gpu_busy_percent,
        gpu_idle=_summary_idle(job),
        source=figures.source,
    )


def _recorded(data: RunData, job: Job, run: RunSummary) -> Task:
    nodes = requested(data).nodes
    peak = largest(each.mem_peak_bytes for each in run.jobs)
    shares = [each.active_share for each in run.devices]
    idle = None if None in shares or not shares else not any(shares)
    interval_s = highest(each.interval_s for each in run.headers)
    kernel_bytes = highest(each.mem_charged_peak_bytes for each in run.jobs)
    hidden, far_s = amounts.hidden_peak(interval_s, kernel_bytes, peak or 0.0)
    is_whole = run.covered_percent >= 95
    is_known = is_whole and len(run.jobs) >= nodes
    return Task(
        job,
        mem_bytes=peak if is_known else None,
        mem_factor=max(1.2, hidden),
        polled_s=far_s,
        peak_cores=largest(each.cpu_cores_peak60 for each in run.jobs),
        mean_cores=total(each.cpu_cores_mean for each in run.jobs) if is_known else None,
        busy_percent=mean(each.busy_mean for each in run.devices),
        gpu_idle=idle if is_whole or idle is False else None,
        source="recording",
    )


def _summary_idle(job: Job) -> bool | None:
    """By a summary. None without one, where a GPU has no mean, or where a mean that is
    rounded to 0 may be some work.
    """
    summary = accounting.summary_of(job)
    gpus = [g for node in summary.nodes.values() for g in node.gpus.values()] if summary else []
    if any(gpu.busy_percent for gpu in gpus):
        return False
    return True if gpus and all(map(was_never_opened, gpus)) else None


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


def outcomes(jobs: Iterable[Job]) -> Counter[str]:
    """State -> tasks."""
    return Counter(map(outcome, jobs))


def outcome(job: Job) -> str:
    """A task that ran out of memory counts as that, whatever its own state."""
    return "OUT_OF_MEMORY" if accounting.out_of_memory(job) else job.state


def gpu_hours(job: Job) -> float:
    return (job.gpus or 0) * (job.elapsed_s or 0.0) / 3600


def array_cpus(run: RunData, tasks: Iterable[Task]) -> int | None:
    """CPUs per node for all tasks, from the greatest peak; None where none is known, or where they
    are no fewer by so much that the request is worth a change.
    """
    request = requested(run)
    peaks = [task.peak_cores for task in tasks if task.peak_cores is not None]
    if not peaks or not request.cpus:
        return None
    wanted = cpus_for(max(peaks), request.cpus, request.gpus or 0)
    return wanted if is_worth(request.cpus, wanted) else None
