"""One sample of each running task of an array: a line for each task, or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import EXIT_FAILED, EXIT_OK, GpumonError
from gpumon.model import clock
from gpumon.model.reading import number
from gpumon.model.sample import Header, Sample, leaves
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text, plural
from gpumon.pipeline.array import to_follow
from gpumon.report.render.layout import aligned
from gpumon.services.jobs import waiting_text
from gpumon.services.samples import WAIT_S, Samples, why_not
from gpumon.slurm.parts import parts_of
from gpumon.sources.watched import WatchedJob

if TYPE_CHECKING:
    from gpumon.config import Settings
    from gpumon.slurm.job import Job
    from gpumon.transport.available import AvailableTransports

_HEADINGS = ("TASK", "STATE", "NODES", "ELAPSED", "LEFT", "GPUS", "BUSY", "GPU MEMORY", "CORES",
             "MEMORY")  # fmt: skip
_RIGHT = range(3, len(_HEADINGS))


class _Asked(NamedTuple):
    """A task whose nodes are asked."""

    job: Job
    source: WatchedJob
    nodes: list[str]
    samples: Samples

    @property
    def told(self) -> list[str]:
        return [node for node in self.nodes if node in self.samples.samples]

    @property
    def said(self) -> list[tuple[Header, Sample]]:
        return [(self.samples.headers[node], self.samples.samples[node]) for node in self.told]


def print_tasks(
    jobs: Sequence[Job], available: AvailableTransports, settings: Settings, *, as_json: bool
) -> int:
    """Print what is known of each task, as JSON the samples of each node of each running one.

    Returns the exit code: 1 where a node sent nothing. Raises GpumonError where there is no sample
    to print as JSON.
    """
    if as_json and not any(job.is_running for job in jobs):
        raise GpumonError(waiting_text(jobs[0]))
    available.is_shared = True
    try:
        asked = _ask([_asked(job, available, settings) for job in to_follow(jobs, ())])
    finally:
        available.close()
    if as_json:
        for each in asked:
            for node in each.told:
                print(each.samples.json(node))
    else:
        told = {each.job.id: each.said for each in asked}
        lines = [_line(job, told.get(job.id, [])) for job in jobs]
        print("\n".join(aligned([_HEADINGS, *lines], _RIGHT)))
    left_out = sum(job.is_running for job in jobs) - len(asked)
    if left_out:
        print(f"gpumon: {plural(left_out, 'running task')} not measured", file=sys.stderr)
    return EXIT_FAILED if _complain(asked) else EXIT_OK


def _asked(job: Job, available: AvailableTransports, settings: Settings) -> _Asked:
    source = WatchedJob([job], lambda soon: [job], available.for_jobs, settings.interval_s)
    nodes = [part.name for part in parts_of([job])]
    return _Asked(job, source, nodes, Samples(nodes))


def _ask(asked: list[_Asked]) -> list[_Asked]:
    for each in asked:
        each.source.start(each.samples)
    until = time.monotonic() + WAIT_S
    try:
        for each in asked:
            each.samples.wait(until - time.monotonic())
    finally:
        for each in asked:
            each.source.stop()
    return asked


def _complain(asked: Iterable[_Asked]) -> int:
    """Print why nodes sent nothing; returns how many did."""
    failed = 0
    for each in asked:
        for node in each.nodes:
            if node not in each.samples.samples:
                failed += 1
                why = why_not(each.source, each.samples, node)
                print(f"gpumon: {clean(each.job.id, 40)}: {node}: {why}", file=sys.stderr)
    return failed


def _line(job: Job, told: Sequence[tuple[Header, Sample]]) -> tuple[str, ...]:
    elapsed_s = None if job.is_pending else job.elapsed_at(clock.now())
    left_s = None if elapsed_s is None or not job.time_limit_s else job.time_limit_s - elapsed_s
    where = clean(job.reason if job.is_pending else job.node_list, 60)
    return (
        clean(job.id, 60),
        clean(job.state, 40),
        where,
        "" if elapsed_s is None else age_text(elapsed_s),
        "" if left_s is None else age_text(left_s),
        "" if job.gpus is None else f"{job.gpus}",
        *(_figures(job, told) if told else ("",) * 4),
    )


def _figures(job: Job, told: Sequence[tuple[Header, Sample]]) -> tuple[str, str, str, str]:
    """Busy, GPU memory, cores and memory; "?" for figures that a node lacks."""
    busy: list[float | None] = []
    used: list[float | None] = []
    total: list[float | None] = []
    for header, sample in told:
        own = [device for device in header.devices if device.cuda_index is not None]
        for device in leaves(own or header.devices):
            row = sample.rows.get("device", {}).get(device.index, {})
            busy.append(number(row.get("busy_percent")))
            used.append(number(row.get("mem_used_bytes")))
            total.append(number(device.facts.get("mem_total_bytes")))
    cores = [_of_job(sample, "cpu_cores_used") for _, sample in told]
    mem = [_of_job(sample, "mem_used_bytes") for _, sample in told]
    limits = [float(h.job.mem_limit_bytes) if h.job and h.job.mem_limit_bytes else None
              for h, _ in told]  # fmt: skip
    given = job.allocated.cpus
    return (
        _sum(busy, lambda value: f"{value / len(busy):.0f} %"),
        _share(used, total),
        _sum(cores, lambda value: f"{value:.1f} / {given}" if given else f"{value:.1f}"),
        _share(mem, limits),
    )


def _of_job(sample: Sample, field: str) -> float | None:
    return number(sample.rows.get("job", {}).get("", {}).get(field))


def _sum(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Nothing where there is nothing to measure, and "?" where a part is not known."""
    if not values:
        return ""
    known = [value for value in values if value is not None]
    return form(sum(known)) if len(known) == len(values) else "?"


def _share(used: Sequence[float | None], of: Sequence[float | None]) -> str:
    whole = sum(value or 0.0 for value in of) if None not in of else 0.0
    return _sum(used, lambda value: of_bytes_text(value, whole) if whole else bytes_text(value))
