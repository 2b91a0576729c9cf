"""One process: its whole command, where it comes from, and what it used over time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from gpumon.frames.places import Place
from gpumon.model.reading import Missing, number
from gpumon.model.units import age_text, bytes_text, plural, rate_text, step_text
from gpumon.model.view import ProcessView
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.aligned import Fact, aligned
from gpumon.tui.parts.lanes import Lane, lane_of, lanes_view, least_height, short_bytes
from gpumon.tui.parts.phrasing import names_text
from gpumon.tui.parts.view import View
from gpumon.tui.screens.processes.entries import Entry, framework_name
from gpumon.tui.screens.processes.table import state_name
from gpumon.tui.values import Format, percent, shown

_MOST_PARENTS = 6
_DAY_S = 86_400.0
_MEMORY_ROOM = 1.25  # between its peak and the end of the scale, which has no other limit


def process_view(
    entry: Entry, moment: Moment, width: int, height: int, stack: Sequence[Row] = ()
) -> View:
    """As much as fits: who it is, its command, facts and parents, and its use over time.

    `stack`: rows that say where it is.
    """
    lanes = list(_courses(entry, moment.now))
    room = height - least_height(len(lanes), width) if lanes else height
    rows = [_title(entry, moment.now), *_command(entry, width)]
    rows += aligned(list(_facts(entry, moment)), width)
    rows += [*_place(entry, moment.now, width), *stack]
    rows += _parents(entry, moment, width)[: max(0, room - len(rows))]
    del rows[max(1, room) :]
    plots = lanes_view(moment, entry.node, lanes, width, height - len(rows)).below(rows)
    return plots if lanes else View(rows)


def _title(entry: Entry, now: float) -> Row:
    facts, ended = entry.process.facts, entry.process.ended
    row: Row = [(f" {facts.pid}", "title"), (f"  {facts.name or '?'}", "")]
    if name := framework_name(entry):
        row.append((f"  {name}", "third"))
    if ended is not None:
        row.append((f"  ended {age_text(now - ended)} ago", "attention"))
    elif state := state_name(entry):
        row.append((f"  {state}", "attention"))
    return row


def _command(entry: Entry, width: int) -> list[Row]:
    """All of it, over as many rows as it takes."""
    facts = entry.process.facts
    words = (facts.command or facts.name or "?").split()
    rows: list[Row] = []
    line = " "
    for word in words:
        if len(line) > 1 and len(line) + len(word) >= width:
            rows.append([(line, "")])
            line = "   "
        line += word + " "
    rows.append([(line, "")])
    if facts.note:
        rows.append([(f" {facts.note}", "dim")])
    return [fit_row(row, width) for row in rows]


def _facts(entry: Entry, moment: Moment) -> Iterator[Fact]:
    facts = entry.process.facts
    yield "user", (facts.user or "?", "")
    if len(moment.nodes) > 1:
        yield "node", (entry.node.name, "")
    if entry.devices:
        yield ("GPU" if len(entry.devices) == 1 else "GPUs"), (", ".join(entry.devices), "")
    if facts.start:
        is_recent = moment.now - facts.start < _DAY_S
        clock = "%H:%M:%S" if is_recent else "%b %d %H:%M"
        yield "started", (time.strftime(clock, time.localtime(facts.start)), "")
        yield "age", (age_text(moment.now - facts.start), "")
    for label, field, form in _READINGS:
        latest = entry.node.latest("process", facts.pid, field, moment.now)
        has_course = entry.node.first_time("process", facts.pid, field) is not None
        if not has_course and not isinstance(latest.reading, Missing):
            yield label, shown(latest, form)
    yield from _probed(entry, moment.now)
    if facts.job:
        yield "job", (facts.job, "")


def _probed(entry: Entry, now: float) -> Iterator[Fact]:
    """What the probe tells of it, where it has one."""
    for label, field, form in _STEPS:
        latest = entry.node.latest("program", entry.process.facts.pid, field, now)
        if not isinstance(latest.reading, Missing):
            yield label, shown(latest, form)


def _place(entry: Entry, now: float, width: int) -> list[Row]:
    """The line of its program that it is at: too long for a column."""
    latest = entry.node.latest("program", entry.process.facts.pid, "place", now)
    if isinstance(latest.reading, Missing):
        return []
    waits = entry.node.latest("program", entry.process.facts.pid, "waits_for", now).reading
    text, role = shown(latest, str)
    row: Row = [(" at ", "dim"), (Place(text).shown, role)]
    if waits in _WAITS:
        row.append((f"  {_WAITS[str(waits)]}", "dim"))
    return [fit_row(row, width)]


_WAITS = {"data": "waits for data", "ranks": "waits for other ranks", "work": "waits for work"}


_STEPS: tuple[tuple[str, str, Format], ...] = (
    ("rank", "rank", lambda value: f"{value:.0f}"),
    ("steps", "steps", lambda value: f"{value:,.0f}"),
    ("a step", "step_us", step_text),
    ("95 % of steps under", "step_p95_us", step_text),
    ("waiting for data", "data_wait_percent", percent),
)


#: of these, only what has no course
_READINGS: tuple[tuple[str, str, Format], ...] = (
    ("CPU", "cpu_percent", percent),
    ("memory", "rss_bytes", bytes_text),
    ("threads", "threads", lambda value: f"{value:.0f}"),
    ("CPU time", "cpu_s", age_text),
    ("reads", "read_bytes_per_s", rate_text),
    ("writes", "write_bytes_per_s", rate_text),
)


def _parents(entry: Entry, moment: Moment, width: int) -> list[Row]:
    """Its parents as far as they are known, the nearest first, and how many children it has."""
    every = {each.facts.pid: each for each in entry.node.processes(None)}
    rows: list[Row] = []
    seen = {entry.process.facts.pid}
    pid = entry.process.facts.ppid
    while pid and pid not in seen and len(rows) < _MOST_PARENTS:
        seen.add(pid)
        parent: ProcessView | None = every.get(pid)
        label = " parent " if not rows else "        "
        command = parent.facts.command or parent.facts.name if parent is not None else ""
        row: Row = [
            (label, "dim"),
            (f"{pid}", ""),
            (f"  {command or 'not part of the job'}", "dim"),
        ]
        rows.append(fit_row(row, width))
        pid = parent.facts.ppid if parent is not None else 0
    children = [each.facts.pid for each in every.values() if each.facts.ppid == entry.identity[1]]
    if children:
        text = f" {plural(len(children), 'child', 'ren')} {names_text([str(c) for c in children])}"
        rows.append([(text, "dim")])
    return rows


# -- over time ------------------------------------------------------------------------------------


def _courses(entry: Entry, now: float) -> Iterator[Lane]:
    """GPU memory and SM on each GPU, CPU and memory; only processes on GPUs have a course."""
    node, pid = entry.node, entry.process.facts.pid
    several = len(entry.process.usage) > 1
    for device in node.devices():
        if device.key not in entry.process.usage:
            continue
        key, of = (device.key, pid), f" {device.device.label}" if several else ""
        if node.first_time("usage", key, "mem_bytes") is not None:
            total = number(device.device.facts.get("mem_total_bytes"))
            high = total or node.peak("usage", key, "mem_bytes") or 1.0
            yield lane_of(
                node, "usage", key, "mem_bytes", f"GPU memory{of}", "mem", bytes_text, high,
                short_bytes(high), now,
            )  # fmt: skip
            if node.first_time("pool", key, "used_bytes") is not None:
                yield lane_of(
                    node, "pool", key, "used_bytes", f"of it in use{of}", "mem", bytes_text,
                    high, short_bytes(high), now,
                )  # fmt: skip
        if node.first_time("usage", key, "sm_percent") is not None:
            yield lane_of(
                node, "usage", key, "sm_percent", f"SM{of}", "busy", percent, 100.0, "100", now
            )
    for field, label, role, form, least in _OWN:
        if node.first_time("process", pid, field) is None:
            continue
        high = max(least, node.peak("process", pid, field) or 0.0)
        top = f"{high:.0f}"
        if field == "rss_bytes":
            high *= _MEMORY_ROOM
            top = short_bytes(high)
        yield lane_of(node, "process", pid, field, label, role, form, high, top, now)


#: with the least end of the scale: a core, a MiB
_OWN: tuple[tuple[str, str, str, Format, float], ...] = (
    ("cpu_percent", "CPU", "third", percent, 100.0),
    ("rss_bytes", "memory", "fourth", bytes_text, 1 << 20),
)
