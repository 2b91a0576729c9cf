"""One report for a whole array: outcomes, distributions, and one recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpumon import __version__
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rightsize.tasks import (
    Task,
    all_tasks,
    ended_tasks,
    gpu_hours,
    outcomes,
    outliers,
    spread,
)
from gpumon.analysis.rules.catalogue import FAMILIES, evaluate
from gpumon.analysis.rundata import Coverage, RunData
from gpumon.analysis.summary import RunSummary
from gpumon.report.build import from_accounting
from gpumon.report.model import Report, Spread, Tasks
from gpumon.site import Site
from gpumon.slurm.job import Job

_GIB = float(1 << 30)


def build_array(
    tasks: Sequence[Job], site: Site, runs: Mapping[str, RunSummary] | None = None
) -> Report:
    """The report of these tasks of one array; `runs`: recordings of some, by raw id."""
    first = max(tasks, key=lambda job: (job.has_ended, job.elapsed_s or 0.0))
    run = replace(from_accounting(first, site, siblings=tasks), sibling_runs=runs or {})
    found = evaluate(run, FAMILIES["Arrays"])
    jobs = all_tasks(run) or list(tasks)
    counted = ended_tasks(run)
    waiting = next((job for job in jobs if job.is_pending), None)
    name = first.array_job_id or first.id
    return Report(
        job=replace(
            first, id=name, raw_id=name, state="", exit_code=None, elapsed_s=None, nodes=(),
            node_list="", time_limit_s=(waiting or first).time_limit_s,
        ),
        start=min((job.start for job in jobs if job.start is not None), default=None),
        end=max((job.end for job in jobs if job.has_ended and job.end is not None), default=None),
        running=any(not job.has_ended for job in jobs),
        findings=found.raised,
        suppressed=found.suppressed,
        not_evaluable=found.not_evaluable,
        recommendations=found.recommendations,
        coverage=_coverage(run, counted),
        gpu_hours=sum(map(gpu_hours, jobs)) or None,
        waste_gpu_hours=sum(each.waste_gpu_hours for each in found.raised),
        unattributed_gpu_hours=found.unattributed_gpu_hours,
        known_gpu_hours=found.known_gpu_hours,
        tasks=Tasks(dict(outcomes(jobs)), len(counted), tuple(_spreads(run, counted))),
        version=__version__,
    )  # fmt: skip


def _coverage(run: RunData, tasks: Sequence[Task]) -> Coverage:
    """What the figures rest on: recordings of some tasks, accounting of the others."""
    recorded = sum(task.source == "recording" for task in tasks)
    share = 100.0 * recorded / len(tasks) if tasks else 0.0
    missing = dict(run.coverage.missing)
    if recorded:
        missing["tasks"] = f"{recorded} of {len(tasks)} tasks were recorded"
    if any(task.busy_percent is not None for task in tasks):
        missing.pop("gpu", None)
    return Coverage("recording" if recorded else "sacct", share, None, missing=missing)


def _spreads(run: RunData, tasks: Sequence[Task]) -> list[Spread]:
    request = requested(run)
    figures: list[
        tuple[str, str, Sequence[Task], Callable[[Task], float | None], float | None, float]
    ] = [
        ("memory", "B", tasks, lambda task: task.mem_bytes, request.mem_bytes, _GIB),
        ("elapsed", "s", tasks, lambda task: task.job.elapsed_s, request.time_limit_s, 300.0),
        ("peak cores", "cores", tasks, lambda task: task.peak_cores, request.cpus, 1.0),
        ("GPU busy", "%", tasks, lambda task: task.busy_percent, None, 20.0),
    ]
    found = []
    for name, unit, of, figure, asked, least in figures:
        known = spread(figure(task) for task in of)
        if known is not None:
            far = tuple(f"{task.job.id}" for task, _, _ in outliers(of, figure, least))
            found.append(Spread(name, unit, *known[:4], asked, far, known.count))
    return found
