"""All devices at once: a plot each where there is room, else a row each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.chart import spark
from gpumon.model.reading import Missing, number
from gpumon.model.sample import Process
from gpumon.model.units import age_text, bytes_text, of_bytes_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.facts import reserving_framework
from gpumon.tui.lines import Row, Run, fit, fit_row
from gpumon.tui.state import View, ViewState, Zone
from gpumon.tui.summaries import status_words
from gpumon.tui.values import brief, celsius, lost_detail, percent, shown, value_of, watts
from gpumon.tui.views.plots import chart_rows
from gpumon.tui.views.request import FRAMEWORK_NAMES

MIN_PLOT_WIDTH, MIN_PLOT_HEIGHT = 44, 6  # cells, the title row included
_Y_LABELS = ("  0", " 50", "100")


def device_grid(
    state: ViewState, width: int, height: int, positions: Sequence[int] | None = None
) -> View:
    """Devices in `height` rows: all, or those at `positions` of `state.devices`.

    The selected one is always on screen.
    """
    places = range(len(state.devices)) if positions is None else positions
    if not places or height <= 0:
        return View([])
    columns = plot_columns(len(places), width, height)
    if columns:
        return _plots(state, places, width, height, columns)
    return _table(state, places, width, height)


def plot_columns(count: int, width: int, height: int) -> int:
    """In how many columns plots of all devices fit, 0 when they do not.

    Of the layouts that fit, the one whose plots come nearest to five times as wide as high (time
    needs room, and 100 % needs four rows) and that leaves the fewest places empty.
    """
    best, best_score = 0, math.inf
    for columns in range(1, count + 1):
        plot_width = width // columns
        plot_height = height // math.ceil(count / columns)
        if plot_width < MIN_PLOT_WIDTH or plot_height < MIN_PLOT_HEIGHT:
            continue
        empty = math.ceil(count / columns) * columns - count
        score = abs(math.log(plot_width / plot_height / 5)) + 2 * empty / count
        if score < best_score:
            best, best_score = columns, score
    return best


# -- plots ------------------------------------------------------------------------------------


def _plots(state: ViewState, places: Sequence[int], width: int, height: int, columns: int) -> View:
    lines = math.ceil(len(places) / columns)
    plot_height = min(height // lines, 24)
    plot_width = width // columns
    rows: list[Row] = []
    zones: list[Zone] = []
    for line in range(lines):
        cells = []
        for column, position in enumerate(places[line * columns : (line + 1) * columns]):
            zones.append(
                Zone(column * plot_width, len(rows), plot_width, plot_height, f"pick({position})")
            )
            cells.append(_plot(state, position, plot_width, plot_height))
        for y in range(plot_height):
            rows.append([run for cell in cells for run in cell[y]])
    return View(rows, zones)


def _plot(state: ViewState, position: int, width: int, height: int) -> list[Row]:
    node, device = state.devices[position]
    title = device_title(state, node, device, width - 1, selected=position == state.selected)
    inner = width - 1  # one blank column between plots
    rows = [fit_row(title, width)]
    body = device_chart(state, node, device, inner, height - 1)
    rows += [fit_row(row, width) for row in body]
    rows += [[(" " * width, "")] for _ in range(height - len(rows))]
    return rows


def device_title(
    state: ViewState, node: NodeView, device: DeviceView, width: int, *, selected: bool
) -> Row:
    """`GPU 0  busy 94 %  mem 98 %*  312 W  61 °C`, or the reason why there are no numbers."""
    mark = ">" if state.glyphs == "ascii" else "▶"
    head: Row = [
        (mark if selected else " ", "key"),
        (_name(state, node, device), "title+selected" if selected else "title"),
        (" ", ""),
    ]
    trouble = trouble_run(device, state.now)
    if trouble is not None:
        return [*head, (" ", ""), trouble]
    return fit_row([*head, *_readings(state, node, device, width)], width)


def trouble_run(device: DeviceView, now: float) -> Run | None:
    """Why this device has no numbers: lost, or no answer since when."""
    state = device.state
    if device.gone:
        return "gone: the driver no longer lists it", "bad"
    if state is None or state.state == "error":
        return None
    ago = age_text(now - state.since)
    if state.state == "lost":
        return f"lost {lost_detail(state)} · {ago} ago".replace("  ", " "), "bad"
    return f"no answer for {ago}", "bad"


def _name(state: ViewState, node: NodeView, device: DeviceView) -> str:
    label = device.device.label
    if len(state.nodes) > 1:
        return f"{node.name}:{label}"
    text = f"GPU {label}"
    cuda = device.device.cuda_index
    if cuda is not None and device.device.mig is None and cuda != device.device.index:
        text += f" (CUDA {cuda})"
    if device.device.mig is not None:
        text += f" {device.device.mig.profile}"
    return text


def mem_percent(node: NodeView, device: DeviceView, now: float) -> float | None:
    """Device memory in use, of its total; None when either is not known now."""
    used = value_of(node.latest("device", device.key, "mem_used_bytes", now))
    total = number(device.device.facts.get("mem_total_bytes"))
    return used / total * 100 if used is not None and total else None


def mem_text(state: ViewState, node: NodeView, device: DeviceView) -> str:
    """`mem 98 %`; a star where a framework has reserved it."""
    share = mem_percent(node, device, state.now)
    if share is None:
        reading = node.latest("device", device.key, "mem_used_bytes", state.now).reading
        return brief(reading, bytes_text)
    star = "*" if reserving_framework(node, device.key) else ""
    return f"{share:.0f} %{star}"


def _readings(state: ViewState, node: NodeView, device: DeviceView, width: int) -> Row:
    key, now = device.key, state.now
    row: Row = [
        (" busy ", "dim"),
        shown(node.latest("device", key, "busy_percent", now), percent, "busy"),
    ]
    sm = node.latest("device", key, "sm_active_percent", now)
    if not isinstance(sm.reading, Missing):
        row += [("  sm ", "dim"), shown(sm, percent, "third")]
    row += [("  mem ", "dim"), (mem_text(state, node, device), "mem")]
    if device.device.mig is None:
        for field, form in (("power_w", watts), ("temperature_c", celsius)):
            latest = node.latest("device", key, field, now)
            if not isinstance(latest.reading, Missing):
                row += [("  ", ""), shown(latest, form)]
    return row


def device_chart(
    state: ViewState, node: NodeView, device: DeviceView, width: int, height: int
) -> list[Row]:
    """Busy and memory, both in percent, on one axis."""
    total = number(device.device.facts.get("mem_total_bytes"))
    field = "busy_percent"
    if isinstance(node.latest("device", device.key, field, state.now).reading, Missing):
        field = "sm_active_percent"  # MIG: no busy, but SM activity where there is GPM
    # later lines lie over earlier ones
    series = [("mem_used_bytes", 100 / total if total else 0.0, "mem"), (field, 1.0, "busy")]
    return chart_rows(state, node, "device", device.key, series, width, height, 100.0, _Y_LABELS)


# -- one row per device -------------------------------------------------------------------------


def _table(state: ViewState, places: Sequence[int], width: int, height: int) -> View:
    """A header, then a row per device, scrolled so that the selected one is seen."""
    shown_count = max(1, height - 1)
    selected = places.index(state.selected) if state.selected in places else 0
    top = state.device_top = scrolled(state.device_top, selected, shown_count, len(places))
    names = [_name(state, *state.devices[position]) for position in places]
    name_width = max(8, min(24, max(map(len, names)) + 2))
    spark_width = min(60, max(10, width - name_width - 52))
    more = len(places) - top - shown_count
    device = "device"
    if more > 0 or top:
        device += f" {top + 1}-{top + shown_count} of {len(places)}  "
    head = (
        f" {fit(f'{device:<{name_width}}busy {state.span_text}', name_width + spark_width)}"
        f"{'now':>7} {'mem':>7} {'W':>6} {'°C':>5}  processes"
    )
    rows: list[Row] = [[(head, "dim")]]
    zones = []
    for position in places[top : top + shown_count]:
        zones.append(Zone(0, len(rows), width, 1, f"pick({position})"))
        rows.append(_device_row(state, position, name_width, spark_width, width))
    left = height - len(rows)
    if left > MIN_PLOT_HEIGHT and state.selected in places:  # room below: its plot
        rows += [[], *_plot(state, state.selected, width, left - 1)]
    return View(rows, zones)


def scrolled(top: int, selected: int, room: int, count: int) -> int:
    """The first of `count` rows to show in `room`, moved as little as keeps the selected one."""
    top = min(top, max(0, count - room))
    return min(max(top, selected - room + 1), selected)


def _device_row(
    state: ViewState, position: int, name_width: int, spark_width: int, width: int
) -> Row:
    node, device = state.devices[position]
    selected = position == state.selected
    mark = ">" if state.glyphs == "ascii" else "▶"
    row: Row = [
        (mark if selected else " ", "key"),
        (fit(_name(state, node, device), name_width), "title" if selected else ""),
    ]
    trouble = trouble_run(device, state.now)
    if trouble is not None:
        return [*row, trouble]
    key, now = device.key, state.now
    field = "busy_percent"
    busy = node.latest("device", key, field, now)
    if isinstance(busy.reading, Missing):
        sm = node.latest("device", key, "sm_active_percent", now)
        if not isinstance(sm.reading, Missing):
            field, busy = "sm_active_percent", sm
    end = state.end - node.clock_offset_s
    buckets = node.window("device", key, field, end, state.span_s, spark_width)
    values = [None if bucket is None else bucket.mean for bucket in buckets]
    row += _spark_runs(spark(values, spark_width, 0.0, 100.0, state.glyphs), values)
    status = node.status(now)
    if status.state in ("stale", "lost"):  # numbers of then are not numbers of now
        level, words = status_words(status, now)
        return fit_row([*row, (f"  {words}", level)], width)
    row.append((fit(brief(busy.reading, percent), 7, right=True), "busy" if busy.fresh else "dim"))
    row.append((fit(mem_text(state, node, device), 8, right=True), "mem"))
    for name, cells in (("power_w", 7), ("temperature_c", 6)):
        reading = node.latest("device", key, name, now).reading
        row.append((fit(brief(reading, lambda value: f"{value:.0f}"), cells, right=True), ""))
    row.append(("  ", ""))
    row.append((_process_text(state, node, device), "dim"))
    return fit_row(row, width)


def _spark_runs(text: str, values: list[float | None]) -> Row:
    """The spark with its gaps in the background's colour."""
    runs: Row = []
    for char, value in zip(text, values):
        role = "track" if value is None else "busy"
        if runs and runs[-1][1] == role:
            runs[-1] = (runs[-1][0] + char, role)
        else:
            runs.append((char, role))
    return runs


def _process_text(state: ViewState, node: NodeView, device: DeviceView) -> str:
    """`ada train.py`, `3: ada train.py …`, or that there is none."""
    here = [p for p in state.processes(node) if device.key in p.usage and p.ended is None]
    if not here:
        return "no process"
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


def memory_line(node: NodeView, device: DeviceView, now: float) -> str:
    """`38.2 / 80 GiB (+0.9 GiB reserved by the driver)`."""
    used = node.latest("device", device.key, "mem_used_bytes", now).reading
    total = number(device.device.facts.get("mem_total_bytes"))
    if isinstance(used, Missing):
        return str(used)
    value = number(used) or 0.0
    text = of_bytes_text(value, total) if total else bytes_text(value)
    reserved = number(node.latest("device", device.key, "mem_reserved_bytes", now).reading)
    return text + (f" (+{bytes_text(reserved)} driver's own)" if reserved else "")
