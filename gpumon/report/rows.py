"""The report's rows: one per GPU, one per stretch between the user's marks."""

from __future__ import annotations

from gpumon.analysis import known
from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import busy_track, job_devices
from gpumon.analysis.summary import DeviceRow, device_row, marks_of
from gpumon.model.reading import Missing
from gpumon.report.model import Attempt
from gpumon.report.usage import Use, mean

#: parts of the run in a row's course over time; a chart needs no more
PARTS = 160
_SHOWN = ("busy_percent", "mem_used_bytes", "power_w")


def device_rows(run: RunData) -> list[DeviceRow]:
    """The job's devices in the order of their nodes."""
    return [_row(run, device) for device in job_devices(run)]


def _row(run: RunData, device: DeviceData) -> DeviceRow:
    row, memory = device_row(run, device, run.elapsed_s), device.track("mem_used_bytes")
    busy, total = busy_track(device), row.mem_total_bytes
    missing = {
        name: str(reading)
        for name in _SHOWN
        if isinstance(reading := device.last.get(name), Missing) and not device.track(name).known()
    }
    if row.mem_peak_bytes is None and memory.known():
        missing["mem_used_bytes"] = "n/a more than the GPU has"
    needed = mem_truth_of(device).needed(device) if row.mem_need_bytes else None
    return row._replace(
        busy_over_time=_parts(run, busy),
        sm_over_time=_parts(run, device.track("sm_active_percent")),
        mem_over_time=_parts(run, memory, 100 / total) if total else (),
        need_over_time=_parts(run, needed, 100 / total) if needed and total else (),
        note=_note(device, busy),
        missing={**missing, **device.refused},
    )


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

    def peak(name: str) -> float | None:
        tracks = [node.job.get(name) for node in run.nodes]
        tracks += [None] * len(run.coverage.unrecorded)
        return known.total(None if each is None else each.peak(first, last) for each in tracks)

    busy = mean(Use(busy_track(device).average(first, last)) for device in devices)
    return Attempt(
        name=text,
        start=start,
        end=end,
        cpu_cores_peak=peak("cpu_cores_used"),
        mem_peak_bytes=peak("mem_used_bytes"),
        gpu_mem_peak_bytes=known.total(
            device.track("mem_used_bytes").peak(first, last) for device in devices
        ),
        gpu_busy_percent=busy.used,
    )
