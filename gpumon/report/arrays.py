"""One report for a whole array: outcomes, distributions, and one recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpumon import __version__
from gpumon.analysis.catalogue import evaluate
from gpumon.analysis.evidence import Coverage, Evidence
from gpumon.analysis.findings import arrays
from gpumon.analysis.recommend import recommend
from gpumon.analysis.requested import requested
from gpumon.analysis.summary import RunSummary
from gpumon.analysis.tasks import (
    Task,
    all_tasks,
    ended_tasks,
    gpu_hours,
    outcomes,
    outliers,
    spread,
)
from gpumon.report.build import from_accounting
from gpumon.report.model import Report, SeffFigures, Spread, Tasks, Used
from gpumon.site import Site
from gpumon.slurm.job import Job

_GIB = float(1 << 30)


def build_array(
    tasks: Sequence[Job], site: Site, runs: Mapping[str, RunSummary] | None = None
) -> Report:
    """The report of these tasks of one array; `runs`: recordings of some, by raw id."""
    first = max(tasks, key=lambda job: (job.has_ended, job.elapsed_s or 0.0))
    evidence = replace(from_accounting(first, site, siblings=tasks), sibling_runs=runs or {})
    verdicts = evaluate(evidence, arrays.RULES)
    jobs = all_tasks(evidence) or list(tasks)
    counted = ended_tasks(evidence)
    waiting = next((job for job in jobs if job.is_pending), None)
    name = first.array_job_id or first.id
    return Report(
        job=replace(
            first, id=name, raw_id=name, state="", exit_code=None, elapsed_s=None, nodes=(),
            node_list="", time_limit_s=(waiting or first).time_limit_s,
        ),
        start=min((job.start for job in jobs if job.start is not None), default=None),
        end=max((job.end for job in jobs if job.has_ended and job.end is not None), default=None),
        elapsed_s=None,
        running=any(not job.has_ended for job in jobs),
        used=Used(),
        seff=SeffFigures(),
        devices=(),
        findings=verdicts.raised,
        suppressed=verdicts.suppressed,
        not_evaluable=verdicts.not_evaluable,
        recommendations=tuple(recommend(evidence, verdicts.raised)),
        coverage=_coverage(evidence, counted),
        efficiency={},
        efficiency_missing={},
        gpu_hours=sum(map(gpu_hours, jobs)) or None,
        waste_gpu_hours=verdicts.waste_gpu_hours,
        tasks=Tasks(dict(outcomes(jobs)), len(counted), tuple(_spreads(evidence, counted))),
        version=__version__,
    )  # fmt: skip


def _coverage(evidence: Evidence, tasks: Sequence[Task]) -> Coverage:
    """What the figures rest on: recordings of some tasks, accounting of the others."""
    recorded = sum(task.source == "recording" for task in tasks)
    share = 100.0 * recorded / len(tasks) if tasks else 0.0
    missing = dict(evidence.coverage.missing)
    if recorded:
        missing["tasks"] = f"{recorded} of {len(tasks)} tasks were recorded"
    return Coverage("recording" if recorded else "sacct", share, None, missing=missing)


def _spreads(evidence: Evidence, tasks: Sequence[Task]) -> list[Spread]:
    request = requested(evidence)
    done = [task for task in tasks if task.job.state == "COMPLETED"]
    figures: list[
        tuple[str, str, Sequence[Task], Callable[[Task], float | None], float | None, float]
    ] = [
        ("memory", "B", tasks, lambda task: task.mem_bytes, request.mem_bytes, _GIB),
        ("elapsed", "s", done, lambda task: task.job.elapsed_s, request.time_limit_s, 300.0),
        ("peak cores", "cores", tasks, lambda task: task.peak_cores, request.cpus, 1.0),
        ("GPU busy", "%", tasks, lambda task: task.busy_percent, None, 20.0),
    ]
    found = []
    for name, unit, of, figure, asked, least in figures:
        known = spread(figure(task) for task in of)
        if known is not None:
            far = tuple(f"{task.job.id}" for task, _, _ in outliers(of, figure, least))
            found.append(
                Spread(name, unit, known.low, known.p50, known.p95, known.high, asked, far)
            )
    return found
