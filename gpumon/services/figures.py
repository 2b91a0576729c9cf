"""What recordings show of a job: the newest minute of one that grows, or the whole run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.accounting import summary_of
from gpumon.errors import GpumonError
from gpumon.model.reading import Reading, number
from gpumon.model.sample import Header, Sample, leaves
from gpumon.recording import Recording
from gpumon.recording.runs import SUFFIX, job_folder
from gpumon.report.build import build, from_accounting
from gpumon.report.jobs import NOT_RECORDED, Verdict, run_figures, verdict_of
from gpumon.report.usage import NO_GPUS, Figures, Use, mean, read, together, total, unknown, working
from gpumon.services.runs import open_last, run_of
from gpumon.site import Site
from gpumon.slurm.job import Job

#: what counts as now
_NEWEST_S = 60.0
#: s; a recording to which nobody wrote for so long does not grow
_GROWING_S = 120.0


class File(NamedTuple):
    """A recording, as its folder lists it; another size or time: it was written to."""

    path: str
    size_bytes: int
    written: float  # epoch s


def files_of(job: Job, cluster: str) -> tuple[File, ...]:
    """The recordings of a job, by their names: none is opened."""
    for id in dict.fromkeys((job.id, job.raw_id)):
        for name in dict.fromkeys((job.cluster or cluster, "local")):
            if id and name and (found := _files_in(job_folder(name, id))):
                return found
    return ()


def _files_in(folder: str) -> tuple[File, ...]:
    try:
        with os.scandir(folder) as entries:
            found = [
                File(entry.path, status.st_size, status.st_mtime)
                for entry in entries
                if entry.name.endswith(SUFFIX) and (status := entry.stat())
            ]
    except OSError:
        return ()
    return tuple(sorted(found))


def measured(job: Job | None, files: Sequence[File], site: Site) -> tuple[Figures, Verdict]:
    """Over the whole last attempt so far, by all of its recordings. `job`: as Slurm knows it."""
    streams = open_last(os.path.dirname(files[0].path))
    data = run_of(streams).data(job, site, live=bool(job and job.is_running), shared=True)
    data.coverage.source = "recording"
    report = build(data)
    return run_figures(report), verdict_of(report)


def accounted(job: Job, site: Site) -> tuple[Figures, Verdict]:
    """From the job's means and maxima where they are known, else from Slurm's accounting alone:
    the peak of the host's memory, no GPUs.
    """
    report = build(from_accounting(job, site))
    if summary_of(job) is not None and report.devices:
        return run_figures(report), verdict_of(report)
    why, mem = report.coverage.missing.get("usage", NOT_RECORDED), report.used.mem
    used = mem.peak or None  # 0: it ended before Slurm looked
    mem = Use(used, mem.given, why="" if used else mem.why or why)
    return replace(unknown(NOT_RECORDED), mem=mem), verdict_of(report)


def newest(files: Sequence[File], nodes: Sequence[str] = ()) -> Figures:
    """Of the last minute, on all of the job's nodes; only recordings that grow are opened."""
    found: dict[str, tuple[float, Figures]] = {}  # by node, of the recording that is the newest
    now = time.time()
    for file in files:
        if now - file.written > _GROWING_S:
            continue
        try:
            with Recording(file.path) as recording:
                node, end = recording.header.node, recording.end
                if recording.state == "recording" and end >= found.get(node, (0.0,))[0]:
                    found[node] = end, _newest(recording)
        except GpumonError:  # it is damaged, or has no sample yet
            continue
    if not found:
        last = max(file.written for file in files)
        why = f"recorded until {time.strftime('%H:%M', time.localtime(last))}"
        return replace(unknown(why), is_now=True)
    here = {node.partition(".")[0] for node in found}
    absent = [name for name in nodes if name.partition(".")[0] not in here]
    absent = absent[: max(0, len(nodes) - len(found))]  # a node may have another name in Slurm
    parts = [figures for _, figures in found.values()]
    return together([*parts, *(unknown(NOT_RECORDED, name) for name in absent)])


def _newest(recording: Recording) -> Figures:
    items = list(recording.items(recording.end - _NEWEST_S))
    headers = [item for item in items if isinstance(item, Header)]
    samples = [
        item
        for item in items
        if isinstance(item, Sample) and item.rows and item.time > recording.end - _NEWEST_S
    ]
    return sampled(headers[-1] if headers else recording.header, samples)


def sampled(header: Header, samples: Sequence[Sample]) -> Figures:
    """What the job does on a node, or all of the node: GPUs in the mean of these samples, memory
    and cores in the last.
    """
    job = header.job
    mine = [each for each in header.devices if job is not None and each.cuda_index is not None]
    busy, gpu_mem = [], []
    for each in leaves(mine or header.devices):
        column = _column(samples, "device", each.key, "busy_percent")
        seen = [value for reading in column if (value := number(reading)) is not None]
        busy.append(
            Use(sum(seen) / len(seen), of=each.label) if seen else _last(column, of=each.label)
        )
        column = _column(samples, "device", each.key, "mem_used_bytes")
        gpu_mem.append(_last(column, number(each.facts.get("mem_total_bytes")), each.label))
    cpus, limit_bytes = (job.cpus, job.mem_limit_bytes) if job is not None else (None, None)
    no_gpus = Use(why=NO_GPUS)
    return Figures(
        cores=_last(_column(samples, "job", "", "cpu_cores_used"), cpus, header.node),
        mem=_last(_column(samples, "job", "", "mem_used_bytes"), limit_bytes, header.node),
        gpus=total(map(working, busy)) if busy else no_gpus,
        busy=mean(busy) if busy else no_gpus,
        gpu_mem=total(gpu_mem) if busy else no_gpus,
        is_now=True,
    )


def _column(samples: Sequence[Sample], group: str, key: object, name: str) -> list[Reading]:
    rows = (sample.rows.get(group, {}).get(key) for sample in samples)  # type: ignore[call-overload]
    return [row[name] for row in rows if row is not None and name in row]


def _last(column: Sequence[Reading], given: float | None = None, of: str = "") -> Use:
    return read(column[-1] if column else None, given, of)
