"""The three lines that `gpumon record` leaves in a job's output."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpumon.analysis.run import LIVE, Run
from gpumon.analysis.summary import run_summary
from gpumon.frames.frame import Frame
from gpumon.model.reading import number
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.units import age_text, bytes_text
from gpumon.report.usage import size_text

if TYPE_CHECKING:
    from gpumon.analysis.summary import DeviceRow, JobSummary, RunSummary
    from gpumon.model.view import Status

_MAX_DEVICES = 16


class Summary:
    """A sink that keeps what these lines tell."""

    def __init__(self) -> None:
        self.probed: set[Key] = set()  # processes that a probe told of
        self._run = Run(LIVE)
        self._host_peaks: dict[str, float] = {}  # of the fields of `host`

    def header(self, node: str, header: Header) -> None:
        """Frames have it."""

    def frame(self, node: str, frame: Frame) -> None:
        self._run.add(node, frame)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        for name, reading in sample.rows.get("host", {}).get("", {}).items():
            value = number(reading)
            if value is not None:
                self._host_peaks[name] = max(value, self._host_peaks.get(name, value))
        self.probed.update(sample.rows.get("program", ()))
        self.probed.update(key[1] for key in sample.rows.get("pool", ()) if isinstance(key, tuple))

    def status(self, node: str, status: Status) -> None:
        """This node is always there."""

    def reset(self) -> None:
        """Nothing is played here."""

    def lines(self, path: str, ran_s: float) -> list[str]:
        return summary_lines(run_summary(self._run.data()), self._host_peaks, path, ran_s)


def summary_lines(
    summary: RunSummary, host_peaks: Mapping[str, float], path: str, ran_s: float
) -> list[str]:
    """Where it lies and what it covers; the GPUs; the host. `ran_s`: how long the recorder ran, of
    which the time before the first sample and after the last is not covered.
    """
    header = summary.headers[-1]
    try:
        size = f", {bytes_text(os.path.getsize(path))}" if os.path.isfile(path) else ""
    except OSError:
        size = ""
    recorded_s = summary.elapsed_s + header.interval_s
    percent = summary.covered_percent * min(1.0, recorded_s / ran_s)
    lasted = age_text(recorded_s)
    if ran_s > recorded_s and age_text(ran_s) != lasted:
        lasted += f" of {age_text(ran_s)}"
    where = f"recorded {lasted} on {header.node} ({percent:.0f} % covered{size}) in {path}"
    host = _job(summary.jobs[0]) if summary.jobs else _host(summary, host_peaks)
    return [f"gpumon: {line}" for line in (where, _devices(summary), host)]


def _devices(summary: RunSummary) -> str:
    """The job's GPUs where it is known which these are, else all."""
    in_job = summary.headers[-1].job is not None
    mine = [each for each in summary.devices if each.device.cuda_index is not None]
    devices = mine if in_job and mine else summary.devices
    if not devices:
        return "no GPU: " + (" ".join(summary.headers[-1].notes) or "none is visible here")
    words = [_device(each) for each in devices[:_MAX_DEVICES]]
    if len(devices) > _MAX_DEVICES:
        words.append(f"and {len(devices) - _MAX_DEVICES} more")
    if any(each.reserved for each in devices):
        words.append("(* reserved by a framework: the real need is unknown)")
    return " · ".join(words)


def _device(each: DeviceRow) -> str:
    busy = "n/a" if each.busy_mean is None else f"{each.busy_mean:.0f} %"
    peak = each.mem_peak_bytes
    memory = "n/a" if peak is None else size_text(peak, each.mem_total_bytes)
    if each.mem_in_use_peak_bytes is not None:
        memory = f"{bytes_text(each.mem_in_use_peak_bytes)} in use, {memory} reserved"
    return f"GPU {each.device.label} busy {busy} mem {memory}{'*' if each.reserved else ''}"


def _job(job: JobSummary) -> str:
    """Peaks of the job's share of this node; memory without page cache."""
    cores = "n/a"
    if job.cpu_cores_mean is not None:
        peak = job.cpu_cores_peak60
        cores = f"{job.cpu_cores_mean:.1f} cores" + (f", peak {peak:.1f}" if peak else "")
        cores += f" of {job.cpus}" if job.cpus else ""
    memory = "n/a"
    if job.mem_peak_bytes is not None:
        memory = f"peak {size_text(job.mem_peak_bytes, job.mem_limit_bytes)}"
    return f"job CPU {cores} · memory {memory}"


def _host(summary: RunSummary, peaks: Mapping[str, float]) -> str:
    busy = peaks.get("cpu_percent")
    used = peaks.get("mem_used_bytes")
    total = number(summary.headers[-1].facts.get("mem_total_bytes"))
    cpu = "n/a" if busy is None else f"peak {busy:.0f} %"
    memory = "n/a"
    if used is not None:
        memory = f"peak {size_text(used, total)}"
    return f"host CPU {cpu} · memory {memory}"
