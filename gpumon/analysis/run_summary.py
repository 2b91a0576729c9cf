"""A run in numbers, from its evidence: what the report's rows, `compare` and arrays say.

`analysis.summary.summarise` gives the same of one stream while it is written, sample by sample; of
recordings evidence is to be had twenty times faster. Means are over the grid's bins that hold
something, percentiles and the idle tail are by its bins (10 s in runs of up to a day).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from gpumon.analysis.evidence import DeviceEvidence, Evidence, NodeEvidence, ProcessEvidence
from gpumon.analysis.reservation import reserves
from gpumon.analysis.signals import busy_track, last_active
from gpumon.analysis.summary import DeviceSummary, JobSummary, RunSummary

#: what tells that a device could be read
_READ = ("busy_percent", "sm_active_percent", "mem_used_bytes", "power_w", "temperature_c")


def run_summary(evidence: Evidence) -> RunSummary:
    """Of all nodes that told anything, and all their devices."""
    nodes = evidence.nodes
    spans = [node.span or (node.header.time, node.header.time) for node in nodes]
    runs = {node.node: _run_s(node) for node in nodes}
    shares = [min(node.covered_s / runs[node.node], 1.0) if node.span else 0.0 for node in nodes]
    return RunSummary(
        headers=[node.header for node in nodes],
        start=min((start for start, _ in spans), default=0.0),
        end=max((end for _, end in spans), default=0.0),
        covered_percent=100 * sum(shares) / max(len(nodes), 1),
        gaps=sum(node.gaps for node in nodes),
        devices=[device_summary(evidence, each, runs[each.node]) for each in evidence.devices],
        jobs=[_job(node) for node in nodes if node.last],
    )


def _run_s(node: NodeEvidence) -> float:
    """Each of n samples stands for one interval, also the last; 0 without any."""
    return node.span[1] - node.span[0] + node.header.interval_s if node.span else 0.0


def device_summary(evidence: Evidence, device: DeviceEvidence, run_s: float) -> DeviceSummary:
    """Of one device; `run_s`: seconds in which it could have been read."""
    busy = busy_track(device)
    known = sorted(busy.known())
    read_s = max(device.track(name).known_count() for name in _READ) * evidence.bin_s
    processes = sorted(device.processes, key=_size, reverse=True)
    return DeviceSummary(
        node=device.node,
        device=device.device,
        busy_mean=busy.average(),
        busy_p50=_percentile(known, 50),
        busy_p95=_percentile(known, 95),
        active_share=device.active.average(),
        idle_tail_s=_idle_tail_s(evidence, device),
        sm_active_mean=device.track("sm_active_percent").average(),
        tensor_active_mean=device.track("tensor_active_percent").average(),
        mem_peak_bytes=device.track("mem_used_bytes").peak(),
        mem_total_bytes=device.mem_total_bytes,
        power_mean_w=device.track("power_w").average(),
        energy_j=device.counters.get("energy_j"),
        temperature_high_c=device.track("temperature_c").peak(),
        framework=next((each.facts.framework for each in processes if each.facts.framework), ""),
        command=next((each.facts.command for each in processes if each.facts.command), ""),
        reserved=any(reserves(each.facts) for each in processes),
        xids=[event.text for event in device.xids],
        coverage=min(read_s / run_s, 1.0) if run_s else 0.0,
    )


def _size(process: ProcessEvidence) -> tuple[float, int]:
    return process.mem_bytes.peak() or 0.0, process.facts.pid


def _percentile(known: Sequence[float], percent: float) -> float | None:
    """Nearest rank of sorted values."""
    if not known:
        return None
    rank = -(-len(known) * percent // 100)
    return known[max(0, int(rank) - 1)]


def _idle_tail_s(evidence: Evidence, device: DeviceEvidence) -> float | None:
    """Known to be idle without a break until the end; None where its end is not known."""
    active = device.active.mean
    if not active or isnan(active[-1]):
        return None
    worked = last_active(device)
    first = 0 if worked is None else worked + 1
    gaps = [n for n in range(first, len(active)) if isnan(active[n])]
    first = gaps[-1] + 1 if gaps else first
    return min((len(active) - first) * evidence.bin_s, evidence.elapsed_s)


def _job(node: NodeEvidence) -> JobSummary:
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
