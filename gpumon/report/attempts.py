"""The attempts of jobs that were requeued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpumon.analysis.accounting import used
from gpumon.report.model import Attempt, Report
from gpumon.slurm.job import Job


def with_attempts(jobs: Iterable[Job]) -> Iterator[tuple[Job, Sequence[Job]]]:
    """Each job once, its last attempt, with all of them where there are several."""
    runs: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        runs[(job.cluster, job.raw_id or job.id)].append(job)
    for tries in runs.values():
        tries.sort(key=lambda job: job.submit or job.start or 0.0)
        yield tries[-1], tries if len(tries) > 1 else ()


def numbered(runs: Sequence[Job]) -> dict[int, Job]:
    """The attempts by the number of restarts before each; older releases of Slurm count none."""
    told = {run.restarts: run for run in runs if run.restarts is not None}
    return told if len(told) == len(runs) else dict(enumerate(runs))


def attempts(runs: Mapping[int, Job], recorded: Mapping[int, Report]) -> tuple[Attempt, ...]:
    """All attempts, by what Slurm has of them and by reports of their recordings; none of a job
    that had one.
    """
    numbers = sorted({*runs, *recorded})
    if len(numbers) < 2:
        return ()
    return tuple(_attempt(number, runs.get(number), recorded.get(number)) for number in numbers)


def _attempt(number: int, run: Job | None, report: Report | None) -> Attempt:
    known = used(run) if run is not None else None
    measured = report.used if report is not None else None
    start, end = (report.start, report.end) if report is not None else (None, None)
    if run is not None:
        start = start if run.start is None else run.start
        is_over = run.has_ended or run.state == "REQUEUED"
        end = (end if run.end is None else run.end) if is_over else None
    mem_peak_bytes = measured.mem_peak_bytes if measured is not None else None
    busy_percent = measured.gpu_busy_percent if measured is not None else None
    if known is not None:
        mem_peak_bytes = known.mem_bytes if mem_peak_bytes is None else mem_peak_bytes
        busy_percent = known.gpu_busy_percent if busy_percent is None else busy_percent
    return Attempt(
        str(number + 1),
        start,
        end,
        run.state if run is not None else "",
        note=_why(run) if run is not None else "Slurm has no record of it",
        cpu_cores_peak=measured.cpu_cores_peak if measured is not None else None,
        mem_peak_bytes=mem_peak_bytes,
        gpu_mem_peak_bytes=measured.gpu_mem_peak_bytes if measured is not None else None,
        gpu_busy_percent=busy_percent,
    )


def _why(run: Job) -> str:
    return f"failed node {run.failed_node}" if run.failed_node else ""
