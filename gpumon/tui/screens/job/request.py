"""Requested and used: CPU, memory, GPUs and GPU memory, of the job or of the whole node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gpumon.chart.bars import bar
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.units import bytes_text, of_bytes_text
from gpumon.model.view import Latest
from gpumon.report.usage import Use, read, total
from gpumon.slurm.states import HELD_STATES
from gpumon.store import NodeView
from gpumon.tui.lines import Row, fit, row_width
from gpumon.tui.moment import Moment
from gpumon.tui.moment.remarks import node_of
from gpumon.tui.parts.phrasing import FRAMEWORK_NAMES, NAMED, devices_named, names_text, signs
from gpumon.tui.picture import width_of

if TYPE_CHECKING:
    from gpumon.slurm.job import Resources

STALE = Missing("stale")
_LEAST_BAR, _WIDEST_BAR = 4, 24  # cells, where all resources have one row
_IDLE_AFTER_S = 90.0
_IDLE_KINDS = {"idle", "never-worked", "unused"}


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
    remark_level: str = ""  # bad, attention, unknown, or "" for a plain remark
    brief: str = ""  # used of asked, in few letters; else `used`
    shorter: str = ""  # the same where even that is too wide
    is_amount: bool = True  # `used` is an amount, and does not say of how much
    role: str = "bar"


def request_lines(moment: Moment) -> list[Line]:
    """CPU, memory, GPUs, GPU memory, as far as they are known; over all nodes."""
    nodes = [node for node in moment.nodes if node.header is not None]
    if not nodes:
        return []
    in_job = any(moment.job_of(node) is not None for node in nodes)
    cpu = _job_cpu if in_job else _node_cpu
    return [cpu(moment, nodes), _memory(moment, nodes, in_job=in_job), *_gpus(moment)]


def uses(
    moment: Moment, entity: str, field: str, given: Mapping[str, float | None] | None = None
) -> list[Use]:
    """What each node uses now, also those of the job that have not sent anything."""
    found = []
    for node in (node for node in moment.nodes if node.header is not None):
        latest = node.latest(entity, "", field, moment.now)
        use = read(latest.reading if latest.fresh else _not_now(latest), of=node.name)
        peak = node.peak60 if field.startswith("cpu_") else node.peak
        limit = given.get(node.name) if given else None
        found.append(use._replace(given=limit, peak=peak(entity, "", field)))
    return found + [Use(why="no sample yet", of=name) for name in silent_nodes(moment)]


def _not_now(latest: Latest) -> Reading:
    return latest.reading if isinstance(latest.reading, Missing) else STALE


def _known(uses: list[Use]) -> tuple[list[Use], list[str]]:
    """Those that are known now, and the names of the others."""
    known = [each for each in uses if each.used is not None]
    return known, [each.of for each in uses if each.used is None]


def silent_nodes(moment: Moment) -> list[str]:
    """Nodes of the job that have not sent anything yet."""
    heard = {node.name for node in moment.nodes if node.header is not None}
    job = moment.job
    named = list(job.nodes) if job is not None else []
    return [name for name in dict.fromkeys([*named, *(n.name for n in moment.nodes)])
            if name not in heard]  # fmt: skip


def allocated(moment: Moment) -> Resources | None:
    """What Slurm gave the job, if that is for the nodes shown: of a het job, one component's."""
    job = moment.job
    if job is None or not {node.name for node in moment.nodes} <= set(job.nodes):
        return None
    return job.allocated


def _without(line: Line, absent: list[str]) -> Line:
    """The line of a part: it names the nodes that it lacks, and is no share of the whole."""
    if not absent:
        return line
    remark = f"without {names_text(absent)}"
    if line.remark_level:
        remark = f"{line.remark}, {remark}"
    return line._replace(
        remark=remark, remark_level=line.remark_level or "unknown", peak="", share=None,
        extra_share=0.0, brief="",
    )  # fmt: skip


def _most(known: list[Use], form: Callable[[float], str]) -> str:
    """Of one node its peak; of several the sum of theirs: all together never used more."""
    peak = total(known).peak
    return "" if peak is None else f"{'peak' if len(known) == 1 else 'peaks'} {form(peak)}"


def _job_cpu(moment: Moment, nodes: list[NodeView]) -> Line:
    given = [job.cpus if (job := moment.job_of(node)) else None for node in nodes]
    whole = allocated(moment)
    cores = whole.cpus if whole is not None else None
    if cores is None and None not in given:
        cores = sum(each or 0 for each in given)
    asked = f"{cores} cores" if cores else "?"
    parts = uses(moment, "job", "cpu_cores_used")
    known, absent = _known(parts)
    if not known:
        return _unknown("CPU", asked, parts)
    use = total(known)._replace(given=cores)
    share = f" ({use.peak_share * 100:.0f} %)" if use.peak_share is not None else ""
    line = Line(
        "CPU", asked, f"{use.used:.1f} cores", share=use.share,
        brief=f"{use.used:.1f}/{cores}" if cores else "",
        peak=_most(known, lambda value: f"{value:.1f}") + share,
    )  # fmt: skip
    return _without(line, absent)


def _unknown(name: str, asked: str, parts: list[Use]) -> Line:
    return Line(name, asked, parts[0].why, role="unknown", is_amount=False)


def _facts(nodes: list[NodeView], name: str) -> dict[str, float]:
    """A static figure of each node that has it."""
    found = {node.name: number(node.header.facts.get(name)) for node in nodes if node.header}
    return {node: value for node, value in found.items() if value}


def _node_cpu(moment: Moment, nodes: list[NodeView]) -> Line:
    cpus = _facts(nodes, "cpus")
    asked = f"{sum(cpus.values()):.0f} cores" if len(cpus) == len(nodes) else "?"
    parts = uses(moment, "host", "cpu_percent")
    known, absent = _known(parts)
    if not known:
        return _unknown("CPU", asked, parts)
    weights = [cpus.get(each.of, 1.0) for each in known]
    percent = sum(w * (each.used or 0.0) for w, each in zip(weights, known)) / sum(weights)
    loads = total(each for each in uses(moment, "host", "load1") if each.of not in absent)
    load = f"  load {loads.used:.1f}" if loads.used is not None else ""
    peak = known[0].peak if len(nodes) == 1 else None
    line = Line(
        "CPU", asked, f"{percent:.0f} %{load}", share=percent / 100,
        peak=f"peak {peak:.0f} %" if peak is not None else "",
    )  # fmt: skip
    return _without(line, absent)


def _memory(moment: Moment, nodes: list[NodeView], *, in_job: bool) -> Line:
    """Against the job's limit, or what the nodes have."""
    facts = _facts(nodes, "mem_total_bytes")
    limits = {
        node.name: moment.mem_limit(node) if in_job else facts.get(node.name) for node in nodes
    }
    whole = allocated(moment) if in_job else None
    size = float(whole.mem_bytes or 0) if whole is not None else 0.0
    if not size and None not in limits.values():
        size = sum(each or 0.0 for each in limits.values())
    asked = bytes_text(size) if size else "no limit" if in_job else "?"
    entity = "job" if in_job else "host"
    parts = uses(moment, entity, "mem_used_bytes", limits)
    known, absent = _known(parts)
    if not known:
        return _unknown("memory", asked, parts)
    use = total(known)._replace(given=size)
    used = use.used or 0.0
    caches = total(
        each for each in uses(moment, entity, "mem_cache_bytes") if each.of not in absent
    )
    cache = caches.used or 0.0
    much, words = (0.9, "close to the limit") if in_job else (0.95, "nearly full")
    near = [each.of for each in known if (each.used or 0.0) > much * (each.given or inf)]
    where = f" on {names_text(near)}" if len(nodes) > 1 else ""
    line = Line(
        "memory",
        asked,
        bytes_text(used),
        brief=_of(used, size) if size else "",
        share=use.share,
        extra=f"+{bytes_text(cache)} cache" if cache >= 1 << 20 else "",
        extra_share=cache / size if size else 0.0,
        peak=_most(known, bytes_text),
        remark=f"{words}{where}" if near else "",
        remark_level="bad" if near else "",
        role="bad" if near else "bar",
    )
    return _without(line, absent)


def _gpus(moment: Moment) -> list[Line]:
    devices = moment.devices
    whole = allocated(moment)
    given = whole.gpus if whole is not None else None
    if not devices:
        return [Line("GPUs", str(given), "n/a", role="unknown", is_amount=False)] if given else []
    loads = moment.device_loads()
    counted = sum(load.devices for load in loads)
    known = sum(load.known for load in loads)
    mem_known = sum(len(load.mem_keys) for load in loads)
    used_bytes = sum(load.mem_used_bytes for load in loads)
    total_bytes = sum(load.mem_total_bytes for load in loads)
    is_held = moment.job is not None and moment.job.state in HELD_STATES
    idle_names = _idle(moment)
    if moment.now - moment.first_time < _IDLE_AFTER_S:  # what is idle is not known yet
        active = sum(load.active for load in loads)
    else:
        active = max(0, known - len(idle_names))
    if is_held:  # what stands still because Slurm stopped it is not idle
        active = known = 0
    work = "suspended" if is_held else f"{active} of {known} active" if known else "n/a"
    if 0 < known < counted:
        work += f", {counted - known} unknown"
    if given is not None and given > counted:
        work += f", {given - counted} not seen"
    gpus = Line(
        "GPUs", str(max(counted, given or 0)), work,
        brief=f"{active}/{known}" if counted == known >= (given or 0) else "",
        share=active / known if known else None,
        is_amount=False,
        remark=f"{_few(idle_names)} idle" if idle_names and active else "",
        remark_level="attention" if idle_names and active else "",
    )  # fmt: skip
    silent = silent_nodes(moment)
    if given is None:  # else those that are not seen are counted
        gpus = _without(gpus, silent)
    if not mem_known:
        return [gpus, Line("GPU mem", "?", "n/a", role="unknown", is_amount=False)]
    some = f" ({mem_known} of {counted})" if mem_known < counted else ""
    reserved, reserved_bytes = _reserved(moment)
    brief = _of(used_bytes, total_bytes)
    if reserved_bytes:
        alone, _, whole_text = _of(used_bytes - reserved_bytes, total_bytes).partition("/")
        brief = (
            f"{alone} + {_of(reserved_bytes, total_bytes).partition('/')[0]} reserved/{whole_text}"
        )
    memory = Line(
        "GPU mem", bytes_text(total_bytes),
        bytes_text(used_bytes) + some,
        brief=brief + some,
        shorter=_of(used_bytes, total_bytes) + some,
        share=(used_bytes - reserved_bytes) / total_bytes,
        extra_share=reserved_bytes / total_bytes,
        remark=f"preallocated by {FRAMEWORK_NAMES[reserved]}" if reserved else "",
        remark_level="unknown" if reserved else "",
    )  # fmt: skip
    return [gpus, _without(memory, silent)]


def _few(names: list[str]) -> str:
    return devices_named(names) if len(names) <= NAMED else str(len(names))


def _reserved(moment: Moment) -> tuple[str, float]:
    """The first framework that takes memory ahead of need, nobody knows how far, and how much all
    of them hold so; with what others hold that is known not to be in use.
    """
    name, size_bytes = "", 0.0
    for node, facts in moment.facts().items():
        if facts.frameworks:
            name = name or next(iter(facts.frameworks.values()))
            keys = list(facts.frameworks)
            known = node.numbers("device", keys, "mem_used_bytes", moment.now)
            size_bytes += sum(used for used in known if used is not None)
        known = node.numbers("device", list(facts.pools), "mem_used_bytes", moment.now)
        for used, in_use_bytes in zip(known, facts.pools.values()):
            size_bytes += max(0.0, (used or 0.0) - in_use_bytes)
    return name, size_bytes


def _idle(moment: Moment) -> list[str]:
    """Names of the devices that have done nothing for a minute; a shorter pause is no news."""
    idle = [each for each in moment.standing.remarks if each.kind in _IDLE_KINDS]
    labels = dict.fromkeys(each.device for each in idle)
    if len(moment.nodes) > 1:
        return list(labels)
    return [f"GPU {label.removeprefix(f'{node_of(label)}:')}" for label in labels]


def _of(used: float, total: float) -> str:
    return of_bytes_text(used, total).replace(" / ", "/")


def request_rows(moment: Moment, width: int, *, is_low: bool) -> list[Row]:
    """Four rows with bars from 100 columns on, two without below; of a low screen one."""
    lines = request_lines(moment)
    for form in (lines, [line._replace(brief=line.shorter or line.brief) for line in lines]):
        if is_low and (beside := _one_row(form, width, moment.glyphs)):
            return [beside]
    if width < 100:
        return _compact(lines, width, moment.glyphs)
    bar_width = min(36, max(16, (width - 76) // 2))
    used_width = max([26, *(width_of(f"{line.used} {line.extra}") for line in lines)])
    peak_width = max([14, *(width_of(line.peak) for line in lines)]) + 1
    rows = []
    for line in lines:
        row: Row = [(f" {line.name:<8}", "dim"), (fit(line.asked, 11), "")]
        row += _bar_runs(line, bar_width, moment.glyphs)
        used = fit(f"{line.used} {line.extra}", min(used_width, 36))
        row += [(f" {used}", "unknown" if line.role == "unknown" else "")]
        row += [(fit(line.peak, peak_width), "dim"), (" ", "")]
        rows.append([*row, *_remark_runs(line, moment.glyphs)])
    return rows


def _remark_runs(line: Line, glyphs: str) -> Row:
    if not line.remark_level:
        return [(line.remark, "dim")]
    role = line.remark_level
    return [(f"{signs(glyphs)[role]} {line.remark}", role)]


def _bar_runs(line: Line, width: int, glyphs: str) -> Row:
    used, extra, rest = bar(line.share, line.extra_share, width, glyphs)
    return [(used, line.role), (extra, "bar2"), (rest, "track"), (" ", "")]


def _one_row(lines: list[Line], width: int, glyphs: str) -> Row:
    """All resources beside each other: `CPU ━── 0.5/16`; nothing where that is too wide."""
    cells: list[tuple[Row, Row]] = []
    for line in lines:
        role = "unknown" if line.role == "unknown" else line.remark_level
        value = f"{signs(glyphs)[role]} {line.brief or line.used}" if role else ""
        text = line.remark if line.remark_level in ("bad", "unknown") else ""
        beside: Row = [(f" {text}", role)] if text and "preallocated" not in text else []
        tail: Row = [(value or line.brief or line.used, role), *beside]
        cells.append(([(f" {line.name} ", "dim")], tail))
    texts = sum(row_width([*head, *tail]) for head, tail in cells) + 2 * (len(cells) - 1)
    if not cells or texts > width:
        return []
    room = min((width - texts) // len(cells) - 1, _WIDEST_BAR)
    row: Row = []
    for line, (head, tail) in zip(lines, cells):
        bars = _bar_runs(line, room, glyphs) if room >= _LEAST_BAR else []
        row += [*([("  ", "")] if row else []), *head, *bars, *tail]
    return row


def _compact(lines: list[Line], width: int, glyphs: str) -> list[Row]:
    """Two resources in a row: `CPU 5.1 of 64 cores  peak 7.9`."""
    rows: list[Row] = []
    half = width // 2
    for first in range(0, len(lines), 2):
        row: Row = []
        for line in lines[first : first + 2]:
            cell: Row = [(f" {line.name} ", "dim"), (line.used, "")]
            if line.is_amount:
                cell.append((f" of {line.asked}", "dim"))
            if line.shorter and row_width([*row, *cell]) > width:
                cell[1:] = [(line.shorter, "")]
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
