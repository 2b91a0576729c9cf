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

from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.reservation import reserves
from gpumon.analysis.signals import busy_track, is_of_job, node_of
from gpumon.analysis.steps import Steps, ranks_of, steps_of
from gpumon.model.sample import Device, Header

if TYPE_CHECKING:
    from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, RunData

#: what tells that a device could be read
_READ = ("busy_percent", "sm_active_percent", "mem_used_bytes", "power_w", "temperature_c")


class DeviceRow(NamedTuple):
    """One GPU, or MIG instance, over the run; None where it was not measured. Percentages 0 to 100;
    `coverage` and `active_share` 0 to 1.
    """

    node: str
    device: Device
    busy_mean: float | None = None  # %
    busy_p50: float | None = None
    busy_p95: float | None = None
    active_share: float | None = None  # part of the measured time with at least 1 % of anything
    idle_tail_s: float | None = None  # known to be idle without a break until the end of the run
    sm_active_mean: float | None = None  # %
    tensor_active_mean: float | None = None  # %
    mem_peak_bytes: float | None = None
    mem_total_bytes: float | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None  # from the device's own counter; across gaps too
    framework: str = ""  # of those known, of the process that held most memory on it; "" unknown
    command: str = ""  # the same
    reserved: bool = False  # its memory is a framework's reservation, not a need
    xids: Sequence[str] = ()  # "79", each time it was reported
    coverage: float = 0.0  # part of the run in which it could be read
    mem_in_use_peak_bytes: float | None = None  # in frameworks' pools, where that was measured
    mem_need_bytes: float | None = None  # measured: that, and what lies beside the pools
    mem_truth: str = "unknown"  # real, upper-bound, unknown, measured
    #: in equal parts of the run, None: not measured then: busy %, % of the SMs active, memory and
    #: the need, where that was measured, in % of the total
    busy_over_time: Sequence[float | None] = ()
    sm_over_time: Sequence[float | None] = ()
    mem_over_time: Sequence[float | None] = ()
    need_over_time: Sequence[float | None] = ()
    note: str = ""  # instead of numbers: "lost Xid 79", "never used", "n/a MIG"
    missing: Mapping[str, str] = {}

    @property
    def label(self) -> str:
        """`gpu01:0`."""
        device = self.device
        return f"{self.node}:{device.label if device.index >= 0 else device.uuid}"

    @property
    def has_unproven_need(self) -> bool:
        """Whether its peak of memory may be a reservation."""
        return self.mem_truth == "unknown" and bool(self.mem_peak_bytes)

    @property
    def mem_counted_bytes(self) -> float | None:
        """The need where it was measured; else the peak."""
        return self.mem_peak_bytes if self.mem_need_bytes is None else self.mem_need_bytes


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
    devices: list[DeviceRow]
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
        devices=[device_row(run, each, runs[each.node]) for each in run.devices],
        jobs=_jobs(run) if any(node.last for node in nodes) else [],
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


def device_row(run: RunData, device: DeviceData, run_s: float) -> DeviceRow:
    """Of one device; `run_s`: seconds in which it could have been read."""
    busy, truth = busy_track(device), mem_truth_of(device)
    known, need, total = sorted(busy.known()), truth.need, device.mem_total_bytes
    read_s = max(device.track(name).known_count() for name in _READ) * run.bin_s
    processes = sorted(device.processes, key=_size, reverse=True)
    mine = [each for each in processes if is_of_job(each.facts)] or processes
    framework = next(filter(None, (each.facts.framework for each in mine)), "")
    command = next(filter(None, (each.facts.command for each in processes)), "")
    peak = device.track("mem_used_bytes").peak()
    if peak and total and peak > total:
        peak, need = None, None  # no GPU holds more than it has
    return DeviceRow(
        device.node, device.device, busy.average(), _percentile(known, 50),
        _percentile(known, 95), device.active.average(), _idle_tail_s(run, device),
        device.track("sm_active_percent").average(),
        device.track("tensor_active_percent").average(), peak, total,
        device.track("power_w").average(), device.counters.get("energy_j"), framework, command,
        reserved=need is None and any(reserves(each.facts) for each in processes),
        xids=[event.text for event in device.xids],
        coverage=min(read_s / run_s, 1.0) if run_s else 0.0,
        mem_in_use_peak_bytes=None if need is None else need.in_use_bytes,
        mem_need_bytes=None if need is None else need.low_bytes,
        mem_truth=truth.mem_truth,
    )  # fmt: skip


def _size(process: ProcessData) -> tuple[float, int]:
    return process.mem_bytes.peak() or 0.0, process.facts.pid


def _percentile(known: Sequence[float], percent: float) -> float | None:
    """Nearest rank of sorted values."""
    if not known:
        return None
    rank = -(-len(known) * percent // 100)
    return known[max(0, int(rank) - 1)]


def _idle_tail_s(run: RunData, device: DeviceData) -> float | None:
    """Known to be idle until the end, without a break before no GPU of the job worked any more;
    None where its end is not known.
    """
    active = device.active.mean
    if not active or isnan(active[-1]):
        return None
    ledger = ledger_of(run)
    is_of_job = ledger.row_of(device.label) is not None
    tail = ledger.idle_now.first if is_of_job and ledger.idle_now is not None else len(active)
    bins = range(len(active) - 1, -1, -1)
    ends = (n + 1 for n in bins if isnan(active[n]) or (active[n] != 0 and n < tail))
    first = next(ends, 0)  # a gap is no rest
    begin, end = (run.grid_start + n * run.bin_s for n in (first, len(active)))
    node = node_of(run, device)
    if node is not None and node.span:  # bins are wider than what was sampled in them
        begin, end = max(begin, node.span[0]), min(end, node.span[1])
    return max(0.0, min(end - begin, run.elapsed_s))


def _jobs(run: RunData) -> list[JobSummary]:
    """Of all nodes of the job, also those of which nothing is known."""
    found = []
    for node in run.nodes:
        cores = node.job.get("cpu_cores_used")
        found.append(JobSummary(
            node.node, node.cpus, cores.average() if cores else None, node.peak60_cores,
            node.cpu_core_s, node.mem_peak_bytes, node.mem_limit_bytes,
            node.mem_charged_peak_bytes, node.oom_kills_told,
        ))  # fmt: skip
    return found + [JobSummary(name, *[None] * 8) for name in run.coverage.unrecorded]
