"""What recordings show of a job: the newest minute of one that grows, or the whole run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.accounting import summary_of
from gpumon.errors import GpumonError
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Device, Header, Sample
from gpumon.recording import Recording
from gpumon.recording.runs import SUFFIX, job_folder
from gpumon.report.build import build, from_accounting
from gpumon.report.jobs import (
    NO_GPUS,
    NOT_RECORDED,
    Figures,
    Verdict,
    run_figures,
    together,
    total,
    verdict_of,
)
from gpumon.services.runs import open_last, run_of
from gpumon.site import Site
from gpumon.slurm.job import Job

#: what counts as now
_NEWEST_S = 60.0
#: s; a recording to which nobody wrote for so long does not grow
_GROWING_S = 120.0
#: percent: a GPU that did less was idle
_ACTIVE_PERCENT = 1.0


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
    missing = dict.fromkeys(("gpu_busy_percent", "gpu_mem_bytes"), NOT_RECORDED)
    used = report.used.mem_peak_bytes or None  # 0: it ended before Slurm looked
    if used is None:
        missing["mem_bytes"] = report.coverage.missing.get("usage", NOT_RECORDED)
    limit = job.allocated.mem_bytes
    figures = Figures(mem_bytes=used, mem_limit_bytes=limit, missing=missing)
    return figures, verdict_of(report)


def newest(files: Sequence[File]) -> Figures:
    """Of the last minute, on all nodes whose recordings grow; no other file is opened."""
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
        return Figures(
            is_now=True,
            missing=dict.fromkeys(("gpu_busy_percent", "gpu_mem_bytes", "mem_bytes"), why),
        )
    return together([figures for _, figures in found.values()])


def _newest(recording: Recording) -> Figures:
    items = list(recording.items(recording.end - _NEWEST_S))
    headers = [item for item in items if isinstance(item, Header)]
    header = headers[-1] if headers else recording.header
    samples = [
        item
        for item in items
        if isinstance(item, Sample) and item.rows and item.time > recording.end - _NEWEST_S
    ]
    devices = _own(header)
    busy = [_mean(_column(samples, "device", each.key, "busy_percent")) for each in devices]
    used = [_last(_column(samples, "device", each.key, "mem_used_bytes")) for each in devices]
    memory = _last(_column(samples, "job", "", "mem_used_bytes"))
    known = [each for each in map(number, busy) if each is not None]
    limit = header.job.mem_limit_bytes if header.job else None
    missing = {}
    if not known:
        missing["gpu_busy_percent"] = _why(busy) if devices else NO_GPUS
    if (held := total(map(number, used))) is None:
        missing["gpu_mem_bytes"] = _why(used) if devices else NO_GPUS
    if number(memory) is None:
        missing["mem_bytes"] = _why([memory])
    return Figures(
        is_now=True,
        gpus_active=sum(each >= _ACTIVE_PERCENT for each in known) if known else None,
        gpus_seen=len(known) or None,
        gpu_busy_percent=fmean(known) if known else None,
        gpu_mem_bytes=held,
        gpu_mem_total_bytes=total(number(each.facts.get("mem_total_bytes")) for each in devices),
        mem_bytes=number(memory),
        mem_limit_bytes=limit,
        missing=missing,
    )


def _own(header: Header) -> Sequence[Device]:
    """The job's GPUs where it is known which these are, else all."""
    mine = [each for each in header.devices if each.cuda_index is not None]
    return mine if header.job is not None and mine else header.devices


def _column(samples: Sequence[Sample], group: str, key: object, name: str) -> list[Reading]:
    rows = (sample.rows.get(group, {}).get(key) for sample in samples)  # type: ignore[call-overload]
    return [row[name] for row in rows if row is not None and name in row]


def _mean(readings: Sequence[Reading]) -> Reading:
    known = [value for each in readings if (value := number(each)) is not None]
    return fmean(known) if known else _last(readings)


def _last(readings: Sequence[Reading]) -> Reading:
    return readings[-1] if readings else Missing("not-sampled")


def _why(readings: Sequence[Reading]) -> str:
    return next((str(each) for each in readings if isinstance(each, Missing)), NOT_RECORDED)
