"""The report's rows: one per GPU, one per stretch between the user's marks."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.rundata import DeviceData, ProcessData, RunData, Track
from gpumon.analysis.signals import busy_track, job_devices, job_processes
from gpumon.analysis.summary import device_summary, marks_of
from gpumon.model.reading import Missing, number
from gpumon.report.model import Attempt, DeviceRow

#: parts of the run in a row's course over time; a chart needs no more
PARTS = 160
_SHOWN = ("busy_percent", "mem_used_bytes", "power_w")


def device_rows(run: RunData) -> list[DeviceRow]:
    """The job's devices in the order of their nodes."""
    return [_row(run, device) for device in job_devices(run)]


def _row(run: RunData, device: DeviceData) -> DeviceRow:
    summary = device_summary(run, device, run.elapsed_s)
    busy, memory = busy_track(device), device.track("mem_used_bytes")
    total, truth = device.mem_total_bytes, mem_truth_of(device)
    need = truth.need
    missing = {
        name: str(reading)
        for name in _SHOWN
        if isinstance(reading := device.last.get(name), Missing) and not device.track(name).known()
    }
    missing.update(device.refused)
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
        mem_truth=truth.mem_truth,
        mem_in_use_peak_bytes=None if need is None else need.in_use_bytes,
        mem_need_bytes=None if need is None else need.low_bytes,
        framework=next((each.facts.framework for each in _by_memory(device)), ""),
        power_mean_w=summary.power_mean_w,
        energy_j=summary.energy_j,
        busy_over_time=_parts(run, busy),
        sm_over_time=_parts(run, device.track("sm_active_percent")),
        mem_over_time=_parts(run, memory, 100 / total) if total else (),
        need_over_time=_parts(run, truth.needed(device), 100 / total) if need and total else (),
        note=_note(device, busy),
        missing=missing,
    )


def _by_memory(device: DeviceData) -> list[ProcessData]:
    processes = [each for each in job_processes(device) if each.facts.framework]
    return sorted(processes, key=lambda each: -(each.mem_bytes.peak() or 0.0))


def _parts(run: RunData, track: Track, factor: float = 1.0) -> tuple[float | None, ...]:
    """The course over the whole run in at most `PARTS` equal parts: means, None where nothing is
    known, as of what was before the recording.
    """
    before = max(0, round((run.grid_start - run.start) / run.bin_s)) if run.count else 0
    after = max(0, round((run.end - run.grid_start) / run.bin_s) - run.count) if run.count else 0
    bins = before + len(track.mean) + after
    count = min(PARTS, bins) if len(track.mean) else 0
    parts = []
    for n in range(count):
        first, last = (max(0, edge * bins // count - before) for edge in (n, n + 1))
        mean = track.average(first, last) if last > first else None
        parts.append(None if mean is None else mean * factor)
    return tuple(parts)


def _note(device: DeviceData, busy: Track) -> str:
    """What stands in place of numbers."""
    lost = [event for event in device.states if event.text == "lost"]
    if lost:
        xid = f" Xid {device.xids[-1].text}" if device.xids else ""
        return f"lost{xid}"
    known = busy.known()
    if not known:
        reading = device.last.get("busy_percent")
        return str(reading) if isinstance(reading, Missing) else ""
    if device.process_list_known and not device.processes and max(known) < 1:
        return "never used"
    return ""


def segments(run: RunData) -> tuple[Attempt, ...]:
    """The peaks between the user's marks; empty without any."""
    starts = marks_of(run)
    if not starts:
        return ()
    edges = [*starts, (run.end, "")]
    if starts[0][0] - run.start > run.bin_s:
        edges.insert(0, (run.start, "before the first mark"))
    return tuple(
        _segment(run, text, time, following)
        for (time, text), (following, _) in zip(edges, edges[1:])
    )


def _segment(run: RunData, text: str, start: float, end: float) -> Attempt:
    first = run.bin_at(start)
    last = max(first + 1, run.bin_at(end))
    devices = job_devices(run)
    busy = [busy_track(device).average(first, last) for device in devices]
    known = [value for value in busy if value is not None]
    return Attempt(
        name=text,
        start=start,
        end=end,
        cpu_cores_peak=_total(
            node.job["cpu_cores_used"].peak(first, last)
            for node in run.nodes
            if "cpu_cores_used" in node.job
        ),
        mem_peak_bytes=_total(
            node.job["mem_used_bytes"].peak(first, last)
            for node in run.nodes
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
