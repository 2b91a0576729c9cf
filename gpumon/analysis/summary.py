"""A run in numbers: what each device and the job did.

Definitions are those that sites compare by: busy is a mean over the whole run, device memory its
maximum, host memory without page cache. Means are over the buckets of the run's grid that hold
something; percentiles and the idle tail have the grid's resolution (10 s in runs of up to a day).
A number that was never measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.reservation import reserves
from gpumon.analysis.signals import busy_track, node_of
from gpumon.analysis.steps import Steps, ranks_of, steps_of
from gpumon.model.sample import Device, Header

if TYPE_CHECKING:
    from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, RunData

#: what tells that a device could be read
_READ = ("busy_percent", "sm_active_percent", "mem_used_bytes", "power_w", "temperature_c")


class DeviceSummary(NamedTuple):
    """One device over the run. Percentages 0 to 100; `coverage` and `active_share` 0 to 1."""

    node: str
    device: Device
    busy_mean: float | None  # %
    busy_p50: float | None
    busy_p95: float | None
    active_share: float | None  # part of the measured time with at least 1 % of anything
    idle_tail_s: float | None  # known to be idle without a break until the end of the run
    sm_active_mean: float | None  # %
    tensor_active_mean: float | None  # %
    mem_peak_bytes: float | None
    mem_total_bytes: float | None
    power_mean_w: float | None
    energy_j: float | None  # from the device's own counter; across gaps too
    framework: str  # of those known, of the process that held most memory on it; "" unknown
    command: str  # the same
    reserved: bool  # its memory is a framework's reservation, not a need
    xids: list[str]  # "79", each time it was reported
    coverage: float  # part of the run in which it could be read
    mem_in_use_peak_bytes: float | None = None  # in frameworks' pools, where that was measured


class JobSummary(NamedTuple):
    """The job's share of one node: its cgroup over the run. Memory is without page cache."""

    node: str
    cpus: int | None  # allocated on this node
    cpu_cores_mean: float | None
    cpu_cores_peak60: float | None  # the largest mean of a minute
    cpu_core_s: float | None  # from the kernel's counter; across gaps too
    mem_peak_bytes: float | None
    mem_limit_bytes: float | None
    mem_charged_peak_bytes: float | None  # the kernel's own peak, page cache included
    oom_kills: int | None


class RunSummary(NamedTuple):
    """All nodes of a run. `headers` holds each node's last one, with settings and devices."""

    headers: list[Header]
    start: float  # epoch s of the first sample
    end: float  # and of the last
    covered_percent: float  # of that time, mean over the nodes
    gaps: int  # how often samples failed to come
    devices: list[DeviceSummary]
    jobs: list[JobSummary]  # one per node that told about its job
    #: from each of the user's marks to the next one, in s
    stages: Mapping[str, float] = {}
    steps: Steps | None = None  # as the probe saw them

    @property
    def elapsed_s(self) -> float:
        """From the first sample to the last."""
        return self.end - self.start


def run_summary(run: RunData) -> RunSummary:
    """Of all nodes that told anything, and all their devices."""
    nodes = run.nodes
    spans = [node.span or (node.header.time, node.header.time) for node in nodes]
    runs = {node.node: _run_s(node) for node in nodes}
    shares = [min(node.covered_s / runs[node.node], 1.0) if node.span else 0.0 for node in nodes]
    return RunSummary(
        headers=[node.header for node in nodes],
        start=min((start for start, _ in spans), default=0.0),
        end=max((end for _, end in spans), default=0.0),
        covered_percent=100 * sum(shares) / max(len(nodes), 1),
        gaps=sum(node.gaps for node in nodes),
        devices=[device_summary(run, each, runs[each.node]) for each in run.devices],
        jobs=[_job(node) for node in nodes if node.last],
        stages=_stages(run),
        steps=steps_of(ranks_of(run)),
    )


def marks_of(run: RunData) -> list[tuple[float, str]]:
    """The user's marks in their order, each once: every node has it."""
    marks: dict[str, float] = {}
    for _, event in run.events:
        if event.kind == "mark":
            marks.setdefault(event.text, event.time)
    return sorted((time, text) for text, time in marks.items())


def _stages(run: RunData) -> dict[str, float]:
    """Without the time after the last mark: nobody marked its end."""
    marks = marks_of(run)
    return {text: end - start for (start, text), (end, _) in zip(marks, marks[1:])}


def _run_s(node: NodeData) -> float:
    """Each of n samples stands for one interval, also the last; 0 without any."""
    return node.span[1] - node.span[0] + node.header.interval_s if node.span else 0.0


def device_summary(run: RunData, device: DeviceData, run_s: float) -> DeviceSummary:
    """Of one device; `run_s`: seconds in which it could have been read."""
    busy = busy_track(device)
    known = sorted(busy.known())
    read_s = max(device.track(name).known_count() for name in _READ) * run.bin_s
    processes = sorted(device.processes, key=_size, reverse=True)
    need = mem_truth_of(device).need
    return DeviceSummary(
        node=device.node,
        device=device.device,
        busy_mean=busy.average(),
        busy_p50=_percentile(known, 50),
        busy_p95=_percentile(known, 95),
        active_share=device.active.average(),
        idle_tail_s=_idle_tail_s(run, device),
        sm_active_mean=device.track("sm_active_percent").average(),
        tensor_active_mean=device.track("tensor_active_percent").average(),
        mem_peak_bytes=device.track("mem_used_bytes").peak(),
        mem_total_bytes=device.mem_total_bytes,
        power_mean_w=device.track("power_w").average(),
        energy_j=device.counters.get("energy_j"),
        framework=next((each.facts.framework for each in processes if each.facts.framework), ""),
        command=next((each.facts.command for each in processes if each.facts.command), ""),
        reserved=need is None and any(reserves(each.facts) for each in processes),
        xids=[event.text for event in device.xids],
        coverage=min(read_s / run_s, 1.0) if run_s else 0.0,
        mem_in_use_peak_bytes=None if need is None else need.in_use_bytes,
    )


def _size(process: ProcessData) -> tuple[float, int]:
    return process.mem_bytes.peak() or 0.0, process.facts.pid


def _percentile(known: Sequence[float], percent: float) -> float | None:
    """Nearest rank of sorted values."""
    if not known:
        return None
    rank = -(-len(known) * percent // 100)
    return known[max(0, int(rank) - 1)]


def _idle_tail_s(run: RunData, device: DeviceData) -> float | None:
    """Known to be idle without a break until the end; None where its end is not known."""
    active = device.active.mean
    if not active or isnan(active[-1]):
        return None
    bins = range(len(active) - 1, -1, -1)
    first = next((n + 1 for n in bins if active[n] != 0), 0)  # a gap is no 0
    begin, end = (run.grid_start + n * run.bin_s for n in (first, len(active)))
    node = node_of(run, device)
    if node is not None and node.span:  # bins are wider than what was sampled in them
        begin, end = max(begin, node.span[0]), min(end, node.span[1])
    return max(0.0, min(end - begin, run.elapsed_s))


def _job(node: NodeData) -> JobSummary:
    cores = node.job.get("cpu_cores_used")
    return JobSummary(
        node=node.node,
        cpus=node.cpus,
        cpu_cores_mean=cores.average() if cores else None,
        cpu_cores_peak60=node.peak60_cores,
        cpu_core_s=node.cpu_core_s,
        mem_peak_bytes=node.mem_peak_bytes,
        mem_limit_bytes=node.mem_limit_bytes,
        mem_charged_peak_bytes=node.mem_charged_peak_bytes,
        oom_kills=node.oom_kills_told,
    )
