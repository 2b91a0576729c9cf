"""A row per device: two bars, readings, and the time that plots show as one line."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.chart.bars import bar, spark
from gpumon.model.reading import Missing, number
from gpumon.model.sample import Process
from gpumon.model.units import bytes_text, span_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row, add_run, fit, fit_row
from gpumon.tui.moment import Moment, states
from gpumon.tui.moment.facts import reserving_framework
from gpumon.tui.parts.heading import in_use_percent, mem_percent, mem_text, name_of, state_of
from gpumon.tui.parts.phrasing import FRAMEWORK_NAMES, cursor, signs
from gpumon.tui.parts.plots import period_of
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.selection import Selection
from gpumon.tui.values import brief, percent

_READINGS = 32  # cells of the numbers in a row
_MEM = 7  # of them, of the memory
_LEAST_SPARK, _LEAST_WHO = 8, 12
#: of width, from which memory is also in GiB and power has its limit beside it, in so many cells
_WIDE, _GIB, _LIMIT = 110, 9, 4


class _Widths:
    """Cells of the parts of a row; what is left of it is the line over time."""

    def __init__(
        self, width: int, names: list[str], states: list[str], who: list[str], mem: list[str]
    ) -> None:
        self.name = max(7, min(24, max(map(len, names)) + 1))
        self.bar = min(24, max(6, (width - self.name - _READINGS) // 5))
        self.state = max(map(len, states)) + 2 if any(states) else 0
        self.gib, self.limit = (_GIB, _LIMIT) if width >= _WIDE else (0, 0)
        self.mem = max(_MEM, 1 + max(map(len, mem), default=0))
        readings = _READINGS + self.mem - _MEM
        rest = width - self.name - 2 * self.bar - readings - self.state - self.gib - self.limit
        room = rest - _LEAST_SPARK
        wanted = max(map(len, who), default=0) + 2 if who else 0
        self.who = min(wanted, room) if room >= _LEAST_WHO else 0
        self.spark = max(0, rest - self.who)


def device_rows(
    moment: Moment,
    selection: Selection,
    places: Sequence[int],
    width: int,
    height: int,
    *,
    with_processes: bool,
) -> View:
    """A header, then a row per device, scrolled so that the selected one is seen."""
    room = max(1, height - 1)
    selected = selection.place(moment)
    here = places.index(selected) if selected in places else 0
    top = selection.top = scrolled(selection.top, here, room, len(places))
    seen = places[top : top + room]
    states_now = {place: _state(moment, *moment.devices[place]) for place in seen}
    widths = _Widths(
        width,
        [name_of(moment, *moment.devices[place]) for place in places],
        [text for text, _ in states_now.values()],
        [_process_text(moment, *moment.devices[place]) for place in seen] if with_processes else [],
        [mem_text(moment, *moment.devices[place]) for place in seen],
    )
    part = f"{top + 1}-{top + room} of {len(places)}" if room < len(places) else ""
    rows: list[Row] = [[(_header(moment, widths, part), "dim")]]
    zones = []
    for place in seen:
        zones.append(Zone(0, len(rows), width, 1, f"pick({place})"))
        row = _row(moment, place, widths, states_now[place], selected=place == selected)
        rows.append(fit_row(row, width))
    return View(rows[:height], zones[: max(0, height - 1)])


def scrolled(top: int, selected: int, room: int, count: int) -> int:
    """The first of `count` rows to show in `room`, moved as little as keeps the selected one."""
    top = min(top, max(0, count - room))
    return min(max(top, selected - room + 1), selected)


def _header(moment: Moment, widths: _Widths, part: str) -> str:
    name, cells = widths.name, widths.bar
    over = f"busy over {span_text(moment.span_s)}"
    busy = f"{fit(part, name)}busy" if len(part) < name else f"{part} busy"
    text = f" {fit(busy, name + cells + 7)}{fit('memory', cells + 1 + widths.mem + widths.gib)}"
    power = fit("W/limit" if widths.limit else "W", 4 + widths.limit, right=True)
    return f"{text}{power}{'°C':>5}  {fit(over, widths.spark + widths.state)}"


def _state(moment: Moment, node: NodeView, device: DeviceView) -> tuple[str, str]:
    """What stands at the row's end; lost devices and streams have it in the place of numbers."""
    if states.title(device, moment.now) is not None:
        return "", ""
    return state_of(moment, node, device) or ("", "")


def _row(
    moment: Moment, place: int, widths: _Widths, state: tuple[str, str], *, selected: bool
) -> Row:
    node, device = moment.devices[place]
    row: Row = [
        (cursor(moment.glyphs) if selected else " ", "key"),
        (fit(name_of(moment, node, device), widths.name), "title" if selected else ""),
    ]
    trouble = states.title(device, moment.now)
    if trouble is not None:
        words, level = trouble
        return [*row, (f"{signs(moment.glyphs).get(level, ' ')} {words}", level)]
    key, now = device.key, moment.now
    field = "busy_percent"
    busy = node.latest("device", key, field, now)
    sm = node.latest("device", key, "sm_active_percent", now)
    if isinstance(busy.reading, Missing) and not isinstance(sm.reading, Missing):
        field, busy = "sm_active_percent", sm  # of a MIG instance
    status = node.status(now)
    line = _over_time(moment, node, device, field, widths.spark)
    if status.state in ("stale", "lost"):  # numbers of then are not numbers of now
        level, words = states.stream(status, now)
        return [*row, *line, (f"  {words}", level)]
    worked, together = number(sm.reading), number(busy.reading)
    if together is not None:
        worked = together if worked is None else min(worked, together)
        row += _bar(worked, together - worked, ("busy", "hollow"), widths.bar, moment.glyphs)
    else:
        row += _bar(None, 0, ("busy", "hollow"), widths.bar, moment.glyphs)
    row.append((fit(brief(busy.reading, percent), 6, right=True), "busy" if busy.fresh else "dim"))
    row.append((" ", ""))
    used = mem_percent(node, device, now)
    needed = in_use_percent(node, device, now)
    reserved = used or 0.0 if reserving_framework(node, key) else 0.0
    if used is not None and needed is not None:
        reserved = max(0.0, used - needed)
    row += _bar(
        None if used is None else used - reserved, reserved, ("mem", "bar2"), widths.bar,
        moment.glyphs,
    )  # fmt: skip
    row.append((fit(mem_text(moment, node, device), widths.mem, right=True), "mem"))
    if widths.gib:
        reading = node.latest("device", key, "mem_used_bytes", now).reading
        row.append((fit(brief(reading, bytes_text), widths.gib, right=True), ""))
    power, limit, heat = (
        brief(node.latest("device", key, name, now).reading, lambda value: f"{value:.0f}")
        for name in ("power_w", "power_limit_w", "temperature_c")
    )
    if widths.limit and limit.isdecimal():
        power += f"/{limit}"
    row += [(fit(power, 5 + widths.limit, right=True), ""), (fit(heat, 5, right=True), "")]
    row += [("  ", ""), *line]
    if widths.state:
        row += [("  ", ""), (fit(state[0], widths.state - 2), state[1])]
    if widths.who:
        row += [("  ", ""), (_process_text(moment, node, device), "dim")]
    return row


def _bar(share: float | None, extra: float, roles: tuple[str, str], width: int, glyphs: str) -> Row:
    """Shares in percent; the second part is solid where its colour alone identifies it."""
    used, behind, rest = bar(None if share is None else share / 100, extra / 100, width, glyphs)
    if roles[1] == "hollow" and glyphs != "ascii":
        behind = "━" * len(behind)
    return [(used, roles[0]), (behind, roles[1]), (rest, "track")]


def _over_time(moment: Moment, node: NodeView, device: DeviceView, field: str, width: int) -> Row:
    """Busy over the plots' time; a full cell is not quite full, so that rows stay apart."""
    end, key, kept = moment.now - node.clock_offset_s, device.key, moment.kept.plots
    since = node.first_time("device", key, field, past=True)
    period = period_of(end, moment.span_s / max(width, 1))
    look = (moment.span_s, width, moment.glyphs, since, period)
    name = ("row", node.name, key, field)
    before = kept.get(name)
    if before is None or before[0] != look:
        before = kept[name] = look, _drawn(moment, node, device, field, width, end)
    line: Row = before[1]
    return line


def _drawn(
    moment: Moment, node: NodeView, device: DeviceView, field: str, width: int, end: float
) -> Row:
    buckets = node.window("device", device.key, field, end, moment.span_s, width)
    values = [None if bucket is None else bucket.mean for bucket in buckets]
    text = spark(values, width, glyphs=moment.glyphs)
    return spark_runs(text.replace("█", "▇"), values)


def spark_runs(text: str, values: list[float | None], colour: str = "busy") -> Row:
    """The spark with its gaps in the background's colour."""
    runs: Row = []
    for char, value in zip(text, values):
        add_run(runs, char, "track" if value is None else colour)
    return runs


def lists_processes(moment: Moment, node: NodeView, device: DeviceView) -> bool:
    """Whether the node's stream tells of processes: scrapes of Prometheus do not."""
    count = node.latest("device", device.key, "processes", moment.now).reading
    return not isinstance(count, Missing) or bool(moment.processes(node))


def _process_text(moment: Moment, node: NodeView, device: DeviceView) -> str:
    """`ada train.py`, `3: ada train.py …`, or that there is none."""
    here = [p for p in moment.processes(node) if device.key in p.usage and p.ended is None]
    if not here:
        return "no process" if lists_processes(moment, node, device) else ""
    first = here[0].facts
    name = FRAMEWORK_NAMES.get(first.framework, "") if first.framework != "cuda-other" else ""
    text = " ".join(part for part in (first.user, name, program(first)) if part)
    return f"{len(here)}: {text}" if len(here) > 1 else text


def program(facts: Process) -> str:
    """What a process runs, in one word: of an interpreter, the script or module."""
    words = facts.command.split()
    if len(words) > 1 and words[0].rsplit("/", 1)[-1].startswith(("python", "bash", "sh")):
        named = words[2:] if words[1] == "-m" else words[1:]
        script = next((word for word in named if not word.startswith("-")), "")
        if script:
            return script.rsplit("/", 1)[-1]
    return facts.name or str(facts.pid)
