"""The report's rows from evidence: one per GPU, one per stretch between the user's marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpumon.analysis.evidence import DeviceEvidence, Evidence, ProcessEvidence, Track
from gpumon.analysis.run_summary import device_summary
from gpumon.analysis.signals import busy_track, job_devices, job_processes
from gpumon.model.reading import Missing, number
from gpumon.report.model import Attempt, DeviceRow

#: parts of the run in a row's course over time; a chart needs no more
PARTS = 160
_SHOWN = ("busy_percent", "mem_used_bytes", "power_w")


def device_rows(evidence: Evidence, truth: Callable[[DeviceEvidence], str]) -> list[DeviceRow]:
    """The job's devices in the order of their nodes; `truth` says what their memory means."""
    return [_row(evidence, device, truth(device)) for device in job_devices(evidence)]


def _row(evidence: Evidence, device: DeviceEvidence, truth: str) -> DeviceRow:
    summary = device_summary(evidence, device, evidence.elapsed_s)
    busy, memory = busy_track(device), device.track("mem_used_bytes")
    total = device.mem_total_bytes
    missing = {
        name: str(reading)
        for name in _SHOWN
        if isinstance(reading := device.last.get(name), Missing) and not device.track(name).known()
    }
    return DeviceRow(
        node=device.node,
        index=device.device.index,
        label=device.label,
        uuid=device.device.uuid,
        name=device.device.name,
        busy_mean=summary.busy_mean,
        busy_p50=summary.busy_p50,
        busy_p95=summary.busy_p95,
        idle_tail_s=summary.idle_tail_s,
        mem_peak_bytes=summary.mem_peak_bytes,
        mem_total_bytes=total,
        mem_truth=truth,
        framework=next((each.facts.framework for each in _by_memory(device)), ""),
        power_mean_w=summary.power_mean_w,
        energy_j=summary.energy_j,
        busy_over_time=_parts(busy),
        mem_over_time=_parts(memory, 100 / total) if total else (),
        note=_note(device, busy),
        missing=missing,
    )


def _by_memory(device: DeviceEvidence) -> list[ProcessEvidence]:
    processes = [each for each in job_processes(device) if each.facts.framework]
    return sorted(processes, key=lambda each: -(each.mem_bytes.peak() or 0.0))


def _parts(track: Track, factor: float = 1.0) -> tuple[float | None, ...]:
    """The course in at most `PARTS` equal parts: means, None where nothing is known."""
    values = track.mean
    count = min(PARTS, len(values))
    parts = []
    for n in range(count):
        first, last = n * len(values) // count, (n + 1) * len(values) // count
        mean = track.average(first, last)
        parts.append(None if mean is None else mean * factor)
    return tuple(parts)


def _note(device: DeviceEvidence, busy: Track) -> str:
    """What stands in place of numbers."""
    lost = [event for event in device.states if event.text.startswith("lost")]
    if lost:
        xid = f" Xid {device.xids[-1].text}" if device.xids else ""
        return f"lost{xid}"
    known = busy.known()
    if not known:
        reading = device.last.get("busy_percent")
        return str(reading) if isinstance(reading, Missing) else ""
    if device.process_list_known and not device.processes and max(known) < 1:
        return "no process ever"
    return ""


def segments(evidence: Evidence) -> tuple[Attempt, ...]:
    """The peaks between the user's marks; empty without any."""
    marks: dict[str, float] = {}
    for _, event in evidence.events:
        if event.kind == "mark":
            marks.setdefault(event.text, event.time)  # every node has it
    if not marks:
        return ()
    starts = sorted((time, text) for text, time in marks.items())
    edges = [*((time, text) for time, text in starts), (evidence.end, "")]
    if starts[0][0] - evidence.start > evidence.bin_s:
        edges.insert(0, (evidence.start, "before the first mark"))
    return tuple(
        _segment(evidence, text, time, following)
        for (time, text), (following, _) in zip(edges, edges[1:])
    )


def _segment(evidence: Evidence, text: str, start: float, end: float) -> Attempt:
    first = evidence.bin_at(start)
    last = max(first + 1, evidence.bin_at(end))
    devices = job_devices(evidence)
    busy = [busy_track(device).average(first, last) for device in devices]
    known = [value for value in busy if value is not None]
    return Attempt(
        name=text,
        start=start,
        end=end,
        cpu_cores_peak=_total(
            node.job["cpu_cores_used"].peak(first, last)
            for node in evidence.nodes
            if "cpu_cores_used" in node.job
        ),
        mem_peak_bytes=_total(
            node.job["mem_used_bytes"].peak(first, last)
            for node in evidence.nodes
            if "mem_used_bytes" in node.job
        ),
        gpu_mem_peak_bytes=_total(
            device.track("mem_used_bytes").peak(first, last) for device in devices
        ),
        gpu_busy_percent=sum(known) / len(known) if known else None,
    )


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for each in values if (value := number(each)) is not None]
    return sum(known) if known else None
