"""Requested against used: CPU, memory, GPUs and GPU memory, of the job or of the whole node."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gpumon.chart import bar
from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text, of_bytes_text
from gpumon.model.view import DeviceView, Latest
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit, row_width
from gpumon.tui.state import ViewState
from gpumon.tui.values import value_of

if TYPE_CHECKING:
    from gpumon.slurm.job import Resources

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


def device_name(node: NodeView, device: DeviceView, *, several: bool) -> str:
    """`gpu02:3` among several nodes, `GPU 3` on the only one."""
    return f"{node.name}:{device.device.label}" if several else f"GPU {device.device.label}"


def request_lines(state: ViewState) -> list[Line]:
    """CPU, memory, GPUs, GPU memory, as far as they are known; over all nodes."""
    nodes = [node for node in state.nodes if node.header is not None]
    if not nodes:
        return []
    in_job = any(state.job_of(node) is not None for node in nodes)
    cpu, memory = (_job_cpu, _job_memory) if in_job else (_node_cpu, _node_memory)
    return [cpu(state, nodes), memory(state, nodes), *_gpus(state)]


class Total(NamedTuple):
    """A figure over nodes: the sum of those that are known now, and who is not in it."""

    known: list[tuple[NodeView, float]]
    absent: list[str]  # names of nodes
    first: Latest  # for its reason, where nothing is known

    @property
    def value(self) -> float:
        return sum(value for _, value in self.known)

    def nodes(self) -> list[NodeView]:
        return [node for node, _ in self.known]


def total(state: ViewState, nodes: list[NodeView], entity: str, field: str) -> Total:
    """The sum of a reading; a node without it now is named, and never counted as 0."""
    known, absent = [], silent_nodes(state)
    for node in nodes:
        value = value_of(node.latest(entity, "", field, state.now))
        if value is None:
            absent.append(node.name)
        else:
            known.append((node, value))
    return Total(known, absent, nodes[0].latest(entity, "", field, state.now))


def silent_nodes(state: ViewState) -> list[str]:
    """Nodes of the job that have not said anything yet."""
    heard = {node.name for node in state.nodes if node.header is not None}
    job = state.job
    named = list(job.nodes) if job is not None else []
    return [name for name in dict.fromkeys([*named, *(n.name for n in state.nodes)])
            if name not in heard]  # fmt: skip


def allocated(state: ViewState) -> Resources | None:
    """What Slurm gave the job, if that is for the nodes shown: of a het job, one component's."""
    job = state.job
    if job is None or not {node.name for node in state.nodes} <= set(job.nodes):
        return None
    return job.allocated


def names_text(names: list[str]) -> str:
    """`gpu03`, `gpu03 and gpu07`, `gpu03 and 4 more`."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more"


def _unknown(name: str, asked: str, latest: Latest) -> Line:
    reading = latest.reading
    why = str(reading) if isinstance(reading, Missing) else "stale"
    return Line(name, asked, why, role="unknown")


def _without(line: Line, absent: list[str]) -> Line:
    """The line, with the nodes that are missing in it."""
    if not absent:
        return line
    remark = f"without {names_text(absent)}"
    if line.remark_level:
        remark = f"{line.remark}, {remark}"
    return line._replace(remark=remark, remark_level=line.remark_level or "unknown", peak="")


def _most(peaks: list[float | None], form: Callable[[float], str]) -> str:
    """Of one node its peak; of several the sum of theirs: all together never used more."""
    known = [peak for peak in peaks if peak is not None]
    if not known or len(known) < len(peaks):
        return ""
    return f"{'peak' if len(known) == 1 else 'peaks'} {form(sum(known))}"


def _job_cpu(state: ViewState, nodes: list[NodeView]) -> Line:
    given = [job.cpus if (job := state.job_of(node)) else None for node in nodes]
    whole = allocated(state)
    cores = whole.cpus if whole is not None else None
    if cores is None and None not in given:
        cores = sum(each or 0 for each in given)
    asked = f"{cores} cores" if cores else "?"
    used = total(state, nodes, "job", "cpu_cores_used")
    if not used.known:
        return _unknown("CPU", asked, used.first)
    peaks = [node.peak60("job", "", "cpu_cores_used") for node in used.nodes()]
    most = sum(peak or 0.0 for peak in peaks) if None not in peaks else None
    line = Line(
        "CPU", asked, f"{used.value:.1f} cores",
        share=used.value / cores if cores else None,
        peak=_most(peaks, lambda value: f"{value:.1f}"),
        remark=f"{most / cores * 100:.0f} % at most" if cores and most is not None else "",
    )  # fmt: skip
    return _without(line, used.absent)


def _mem_limit(state: ViewState, node: NodeView) -> float | None:
    """Of the job's cgroup on this node, in bytes."""
    limit = number(node.latest("job", "", "mem_limit_bytes", state.now).reading)
    job = state.job_of(node)
    return limit or (float(job.mem_limit_bytes) if job and job.mem_limit_bytes else None)


def _job_memory(state: ViewState, nodes: list[NodeView]) -> Line:
    limits = {node.name: _mem_limit(state, node) for node in nodes}
    whole = allocated(state)
    limit = float(whole.mem_bytes or 0) if whole is not None else 0.0
    if not limit and None not in limits.values():
        limit = sum(each or 0.0 for each in limits.values())
    asked = bytes_text(limit) if limit else "no limit"
    used = total(state, nodes, "job", "mem_used_bytes")
    if not used.known:
        return _unknown("memory", asked, used.first)
    cache = total(state, used.nodes(), "job", "mem_cache_bytes").value
    peaks = [node.peak("job", "", "mem_used_bytes") for node in used.nodes()]
    near = [node.name for node, value in used.known if value > 0.9 * (limits[node.name] or inf)]
    where = f" on {names_text(near)}" if len(nodes) > 1 else ""
    line = Line(
        "memory", asked, bytes_text(used.value),
        share=used.value / limit if limit else None,
        extra=f"+{bytes_text(cache)} cache" if cache >= 1 << 20 else "",
        extra_share=cache / limit if limit else 0.0,
        peak=_most(peaks, bytes_text),
        remark=f"close to the limit{where}" if near else "",
        remark_level="bad" if near else "",
        role="bad" if near else "bar",
    )  # fmt: skip
    return _without(line, used.absent)


def _facts(nodes: list[NodeView], name: str) -> dict[str, float]:
    """A static figure of each node that has it."""
    found = {node.name: number(node.header.facts.get(name)) for node in nodes if node.header}
    return {node: value for node, value in found.items() if value}


def _node_cpu(state: ViewState, nodes: list[NodeView]) -> Line:
    cpus = _facts(nodes, "cpus")
    asked = f"{sum(cpus.values()):.0f} cores" if len(cpus) == len(nodes) else "?"
    used = total(state, nodes, "host", "cpu_percent")
    if not used.known:
        return _unknown("CPU", asked, used.first)
    weights = [cpus.get(node.name, 1.0) for node in used.nodes()]
    percent = sum(w * value for w, (_, value) in zip(weights, used.known)) / sum(weights)
    loads = total(state, used.nodes(), "host", "load1")
    load = f"  load {loads.value:.1f}" if len(loads.known) == len(used.known) else ""
    peak = nodes[0].peak60("host", "", "cpu_percent") if len(nodes) == 1 else None
    line = Line(
        "CPU", asked, f"{percent:.0f} %{load}", share=percent / 100,
        peak=f"peak {peak:.0f} %" if peak is not None else "",
    )  # fmt: skip
    return _without(line, used.absent)


def _node_memory(state: ViewState, nodes: list[NodeView]) -> Line:
    totals = _facts(nodes, "mem_total_bytes")
    size = sum(totals.values()) if len(totals) == len(nodes) else 0.0
    used = total(state, nodes, "host", "mem_used_bytes")
    asked = bytes_text(size) if size else "?"
    if not used.known:
        return _unknown("memory", asked, used.first)
    cache = total(state, used.nodes(), "host", "mem_cache_bytes").value
    peaks = [node.peak("host", "", "mem_used_bytes") for node in used.nodes()]
    near = [node.name for node, value in used.known if value > 0.95 * totals.get(node.name, inf)]
    where = f" on {names_text(near)}" if len(nodes) > 1 else ""
    line = Line(
        "memory", asked, bytes_text(used.value),
        share=used.value / size if size else None,
        extra=f"+{bytes_text(cache)} cache" if cache else "",
        extra_share=cache / size if size else 0.0,
        peak=_most(peaks, bytes_text),
        remark=f"nearly full{where}" if near else "",
        remark_level="bad" if near else "",
        role="bad" if near else "bar",
    )  # fmt: skip
    return _without(line, used.absent)


def _gpus(state: ViewState) -> list[Line]:
    devices = state.devices
    whole = allocated(state)
    given = whole.gpus if whole is not None else None
    if not devices:
        return [Line("GPUs", str(given), "n/a", role="unknown")] if given else []
    loads = state.device_loads()
    counted = sum(load.devices for load in loads)
    known = sum(load.known for load in loads)
    active = sum(load.active for load in loads)
    mem_known = sum(len(load.mem_keys) for load in loads)
    used_bytes = sum(load.mem_used_bytes for load in loads)
    total_bytes = sum(load.mem_total_bytes for load in loads)
    work = f"{active} of {known} at work" if known else "n/a"
    if 0 < known < counted:
        work += f", {counted - known} unknown"
    idle = known - active
    if given is not None and given > counted:
        work += f", {given - counted} not seen"
    gpus = Line(
        "GPUs", str(max(counted, given or 0)), work,
        share=active / known if known else None,
        remark=f"{idle} idle now" if idle and active else "",
        remark_level="attention" if idle and active else "",
    )  # fmt: skip
    silent = silent_nodes(state)
    if given is None:  # else those that are not seen are counted
        gpus = _without(gpus, silent)
    if not mem_known:
        return [gpus, Line("GPU mem", "?", "n/a", role="unknown")]
    some = f" ({mem_known} of {counted})" if mem_known < counted else ""
    reserving = [facts.frameworks for facts in state.facts().values()]
    reserved = next(
        (names[key] for load, names in zip(loads, reserving) for key in load.mem_keys
         if key in names), ""
    )  # fmt: skip
    memory = Line(
        "GPU mem", bytes_text(total_bytes),
        of_bytes_text(used_bytes, total_bytes) + some,
        share=0.0 if reserved else used_bytes / total_bytes,
        extra_share=used_bytes / total_bytes if reserved else 0.0,
        remark=f"{FRAMEWORK_NAMES[reserved]}'s reservation" if reserved else "",
        remark_level="unknown" if reserved else "",
    )  # fmt: skip
    return [gpus, _without(memory, silent)]


FRAMEWORK_NAMES = {
    "tf": "TensorFlow", "jax": "JAX", "vllm": "vLLM", "rmm": "RMM", "torch": "PyTorch",
    "llama": "llama.cpp", "cuda-other": "CUDA",
}  # fmt: skip


def request_rows(state: ViewState, width: int) -> list[Row]:
    """Four rows with bars from 100 columns on; two without below."""
    lines = request_lines(state)
    if width < 100:
        return _compact(lines, width, state.glyphs)
    bar_width = min(36, max(16, (width - 76) // 2))
    used_width = max([26, *(row_width([(f"{line.used} {line.extra}", "")]) for line in lines)])
    rows = []
    for line in lines:
        row: Row = [(f" {line.name:<8}", "dim"), (fit(line.asked, 11), "")]
        row += _bar_runs(line, bar_width, state.glyphs)
        used = f"{line.used} {line.extra}"
        row.append(
            (" " + fit(used, min(used_width, 36)), "unknown" if line.role == "unknown" else "")
        )
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
            remark: Row = [("  ", ""), *_remark_runs(line, glyphs)] if line.remark else []
            if line.remark_level or row_width([*cell, *remark]) <= half:
                cell += remark
            for text in ("" if line.remark else line.peak, line.extra):  # whole or not at all
                if text and row_width(cell) + 1 + len(text) <= half:
                    cell.append((f" {text}", "dim"))
            cell.append((" " * (half - row_width(cell)), ""))
            row += cell
        rows.append(row)
    return rows
