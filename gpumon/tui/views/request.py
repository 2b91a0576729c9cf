"""Requested against used: CPU, memory, GPUs and GPU memory, of the job or of the whole node."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.reservation import reserves
from gpumon.chart import bar
from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text, of_bytes_text
from gpumon.model.view import DeviceView, Latest
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit, row_width
from gpumon.tui.state import ViewState
from gpumon.tui.values import value_of

ACTIVE_PERCENT = 1.0  # a device busier than this works (findings.md 1.2)


SIGNS = {"bad": "●", "attention": "▲", "note": "·", "unknown": "?"}
ASCII_SIGNS = {"bad": "!", "attention": "^", "note": "-", "unknown": "?"}


class Line(NamedTuple):
    """One resource. `share` and `extra_share` fill the bar; `remark` says what stands out."""

    name: str
    asked: str
    used: str
    share: float | None = None
    extra: str = ""  # beside `used`, not in it: cache
    extra_share: float = 0.0  # shown in another pattern: cache, a reservation
    peak: str = ""
    remark: str = ""
    remark_level: str = ""  # one of SIGNS, or "" for a plain remark
    role: str = "bar"


def reserving_framework(state: ViewState, node: NodeView, device: DeviceView) -> str:
    """The framework on this device that takes memory ahead of need, "" if there is none."""
    for process in state.processes(node):
        if device.key in process.usage and reserves(process.facts):
            return process.facts.framework
    return ""


def request_lines(state: ViewState) -> list[Line]:
    """CPU, memory, GPUs, GPU memory, as far as they are known."""
    if not state.nodes or state.nodes[0].header is None:
        return []
    node = state.nodes[0]
    in_job = state.job_of(node) is not None
    lines = [_job_cpu(node, state), _job_memory(node, state)] if in_job else [
        _node_cpu(node, state), _node_memory(node, state)
    ]  # fmt: skip
    lines += _gpus(state)
    return lines


def _unknown(name: str, asked: str, latest: Latest) -> Line:
    reading = latest.reading
    why = str(reading) if isinstance(reading, Missing) else "stale"
    return Line(name, asked, why, role="unknown")


def _job_cpu(node: NodeView, state: ViewState) -> Line:
    job = node.header.job if node.header else None
    cores = job.cpus if job else None
    asked = f"{cores} cores" if cores else "?"
    latest = node.latest("job", "", "cpu_cores_used", state.now)
    used = value_of(latest)
    if used is None:
        return _unknown("CPU", asked, latest)
    peak = node.peak60("job", "", "cpu_cores_used")
    return Line(
        "CPU", asked, f"{used:.1f} cores",
        share=used / cores if cores else None,
        peak=f"peak {peak:.1f}" if peak is not None else "",
        remark=f"{peak / cores * 100:.0f} % at most" if cores and peak is not None else "",
    )  # fmt: skip


def _job_memory(node: NodeView, state: ViewState) -> Line:
    job = node.header.job if node.header else None
    limit = number(node.latest("job", "", "mem_limit_bytes", state.now).reading)
    limit = limit or (float(job.mem_limit_bytes) if job and job.mem_limit_bytes else None)
    asked = bytes_text(limit) if limit else "no limit"
    latest = node.latest("job", "", "mem_used_bytes", state.now)
    used = value_of(latest)
    if used is None:
        return _unknown("memory", asked, latest)
    cache = value_of(node.latest("job", "", "mem_cache_bytes", state.now)) or 0.0
    peak = node.peak("job", "", "mem_used_bytes")
    near = limit is not None and used > 0.9 * limit
    return Line(
        "memory", asked, bytes_text(used),
        share=used / limit if limit else None,
        extra=f"+{bytes_text(cache)} cache" if cache >= 1 << 20 else "",
        extra_share=cache / limit if limit else 0.0,
        peak=f"peak {bytes_text(peak)}" if peak is not None else "",
        remark="close to the limit" if near else "",
        remark_level="bad" if near else "",
        role="bad" if near else "bar",
    )  # fmt: skip


def _node_cpu(node: NodeView, state: ViewState) -> Line:
    cpus = number(node.header.facts.get("cpus")) if node.header else None
    asked = f"{cpus:.0f} cores" if cpus else "?"
    latest = node.latest("host", "", "cpu_percent", state.now)
    percent = value_of(latest)
    if percent is None:
        return _unknown("CPU", asked, latest)
    load = value_of(node.latest("host", "", "load1", state.now))
    used = f"{percent:.0f} %" + (f"  load {load:.1f}" if load is not None else "")
    peak = node.peak60("host", "", "cpu_percent")
    return Line(
        "CPU", asked, used, share=percent / 100,
        peak=f"peak {peak:.0f} %" if peak is not None else "",
    )  # fmt: skip


def _node_memory(node: NodeView, state: ViewState) -> Line:
    total = number(node.header.facts.get("mem_total_bytes")) if node.header else None
    latest = node.latest("host", "", "mem_used_bytes", state.now)
    used = value_of(latest)
    asked = bytes_text(total) if total else "?"
    if used is None:
        return _unknown("memory", asked, latest)
    cache = value_of(node.latest("host", "", "mem_cache_bytes", state.now)) or 0.0
    peak = node.peak("host", "", "mem_used_bytes")
    near = total is not None and used > 0.95 * total
    return Line(
        "memory", asked, bytes_text(used),
        share=used / total if total else None,
        extra=f"+{bytes_text(cache)} cache" if cache else "",
        extra_share=cache / total if total else 0.0,
        peak=f"peak {bytes_text(peak)}" if peak is not None else "",
        remark="nearly full" if near else "",
        remark_level="bad" if near else "",
        role="bad" if near else "bar",
    )  # fmt: skip


def _gpus(state: ViewState) -> list[Line]:
    devices = state.devices
    if not devices:
        return []
    known = active = 0
    used_bytes = total_bytes = 0.0
    mem_known = 0
    reserved = ""
    parents = {device.device.mig.parent for _, device in devices if device.device.mig}
    counted = 0
    for node, device in devices:
        if device.device.uuid in parents:  # its instances count, not the whole beside them
            continue
        counted += 1
        busy = device_activity(node, device, state.now)
        if busy is not None:
            known += 1
            active += busy >= ACTIVE_PERCENT
        used = value_of(node.latest("device", device.key, "mem_used_bytes", state.now))
        total = number(device.device.facts.get("mem_total_bytes"))
        if used is not None and total:
            mem_known += 1
            used_bytes += used
            total_bytes += total
            reserved = reserved or reserving_framework(state, node, device)
    work = f"{active} of {known} at work" if known else "n/a"
    if 0 < known < counted:
        work += f", {counted - known} unknown"
    idle = known - active
    gpus = Line(
        "GPUs", str(counted), work,
        share=active / known if known else None,
        remark=f"{idle} idle now" if idle and active else "",
        remark_level="attention" if idle and active else "",
    )  # fmt: skip
    if not mem_known:
        return [gpus, Line("GPU mem", "?", "n/a", role="unknown")]
    some = f" ({mem_known} of {counted})" if mem_known < counted else ""
    memory = Line(
        "GPU mem", bytes_text(total_bytes),
        of_bytes_text(used_bytes, total_bytes) + some,
        share=0.0 if reserved else used_bytes / total_bytes,
        extra_share=used_bytes / total_bytes if reserved else 0.0,
        remark=f"{FRAMEWORK_NAMES[reserved]}'s reservation" if reserved else "",
        remark_level="unknown" if reserved else "",
    )  # fmt: skip
    return [gpus, memory]


FRAMEWORK_NAMES = {
    "tf": "TensorFlow", "jax": "JAX", "vllm": "vLLM", "rmm": "RMM", "torch": "PyTorch",
    "llama": "llama.cpp", "cuda-other": "CUDA",
}  # fmt: skip


def device_activity(node: NodeView, device: DeviceView, now: float) -> float | None:
    """How much the device works: busy %, where there is none (MIG) SM activity."""
    for field in ("busy_percent", "sm_active_percent"):
        value = value_of(node.latest("device", device.key, field, now))
        if value is not None:
            return value
    return None


def request_rows(state: ViewState, width: int) -> list[Row]:
    """Four rows with bars from 100 columns on; two without below."""
    lines = request_lines(state)
    if width < 100:
        return _compact(lines, width, state.glyphs)
    bar_width = min(36, max(16, (width - 76) // 2))
    rows = []
    for line in lines:
        row: Row = [(f" {line.name:<8}", "dim"), (fit(line.asked, 11), "")]
        row += _bar_runs(line, bar_width, state.glyphs)
        used = f"{line.used} {line.extra}"
        row.append((" " + fit(used, 26), "unknown" if line.role == "unknown" else ""))
        row.append((fit(line.peak, 15), "dim"))
        row.append((" ", ""))
        row += _remark_runs(line, state.glyphs)
        rows.append(row)
    return rows


def _remark_runs(line: Line, glyphs: str) -> Row:
    if not line.remark_level:
        return [(line.remark, "dim")]
    signs = ASCII_SIGNS if glyphs == "ascii" else SIGNS
    role = line.remark_level
    return [(f"{signs[role]} {line.remark}", role)]


def _bar_runs(line: Line, width: int, glyphs: str) -> Row:
    used, extra, rest = bar(line.share, line.extra_share, width, glyphs)
    return [(used, line.role), (extra, "bar2"), (rest, "track"), (" ", "")]


def _compact(lines: list[Line], width: int, glyphs: str) -> list[Row]:
    """Two resources in a row: `CPU 5.1 of 64 cores  peak 7.9`."""
    rows: list[Row] = []
    half = width // 2
    for first in range(0, len(lines), 2):
        row: Row = []
        for line in lines[first : first + 2]:
            cell: Row = [(f" {line.name} ", "dim"), (line.used, "")]
            if "/" not in line.used and " of " not in line.used:
                cell.append((f" of {line.asked}", "dim"))
            if line.remark:
                cell += [("  ", ""), *_remark_runs(line, glyphs)]
            for text in ("" if line.remark else line.peak, line.extra):  # whole or not at all
                if text and row_width(cell) + 1 + len(text) <= half:
                    cell.append((f" {text}", "dim"))
            text_width = row_width(cell)
            if text_width < half:
                cell.append((" " * (half - text_width), ""))
            row += cell
        rows.append(row)
    return rows
