"""All devices at once: a plot each where there is room, else a row each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.model.reading import number
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.moment.facts import reserved_since
from gpumon.tui.moment.pools import in_use
from gpumon.tui.parts.device_rows import device_rows
from gpumon.tui.parts.heading import IN_USE, device_title
from gpumon.tui.parts.plots import (
    THROTTLED,
    Kept,
    Layer,
    kept_plot,
    seek_zones,
    side_by_side,
    time_axis,
    with_events,
)
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.selection import Selection

MIN_PLOT_WIDTH, MIN_PLOT_HEIGHT = 44, 6  # cells, the title row included
_MOST_HEIGHT = 36  # of a plot: a higher one shows no more
_SCALE = 3  # cells of it, left of a row of plots
_AXIS = 1  # row: the time below all plots


def device_grid(
    moment: Moment,
    selection: Selection,
    width: int,
    height: int,
    positions: Sequence[int] | None = None,
    *,
    with_processes: bool = True,
) -> View:
    """Devices in `height` rows: all, or those at `positions` of `moment.devices`.

    The selected one is always on screen. `with_processes`: where each has a row, name its process.
    """
    places = range(len(moment.devices)) if positions is None else positions
    if not places or height <= 0:
        return View([])
    columns = _columns(moment, len(places), width, height)
    if columns:
        return _plots(moment, selection, places, width, height, columns)
    table = device_rows(moment, selection, places, width, height, with_processes=with_processes)
    left = height - len(table.rows) - 1
    selected = selection.place(moment)
    if left <= MIN_PLOT_HEIGHT or selected not in places or not moment.plots:
        return table
    plot = _plots(moment, selection, [selected], width, left, 1)  # room below: its plot
    return View([*table.rows, [], *plot.rows], table.zones)


def least_rows(moment: Moment, width: int, height: int) -> int:
    """How many of `height` rows the devices need: of their plots, if those fit, else theirs."""
    count = len(moment.devices)
    columns = _columns(moment, count, width, height)
    return math.ceil(count / columns) * MIN_PLOT_HEIGHT + _AXIS if columns else count + 1


def _columns(moment: Moment, count: int, width: int, height: int) -> int:
    return plot_columns(count, width, height) if moment.plots else 0


def plot_columns(count: int, width: int, height: int) -> int:
    """In how many columns plots of all devices fit, 0 when they do not.

    Of the layouts that fit, the one whose plots come nearest to five times as wide as high (time
    needs room, and 100 % needs four rows) and that leaves the fewest places empty.
    """
    best, best_score = 0, math.inf
    for columns in range(1, count + 1):
        plot_width = width // columns
        plot_height = (height - _AXIS) // math.ceil(count / columns)
        if plot_width < MIN_PLOT_WIDTH or plot_height < MIN_PLOT_HEIGHT:
            continue
        empty = math.ceil(count / columns) * columns - count
        score = abs(math.log(plot_width / plot_height / 5)) + 8 * empty / count
        if score < best_score:
            best, best_score = columns, score
    return best


def _plots(
    moment: Moment,
    selection: Selection,
    places: Sequence[int],
    width: int,
    height: int,
    columns: int,
) -> View:
    """Plots in rows: the scale once for each row, the time once below all."""
    selected = selection.place(moment)
    lines = math.ceil(len(places) / columns)
    plot_height = min((height - _AXIS) // lines, _MOST_HEIGHT)
    plot_width = (width - _SCALE) // columns
    rows: list[Row] = []
    zones: list[Zone] = []
    scale = [[(" " * _SCALE, "")], *([(text, "dim")] for text in _scale(plot_height - 1))]
    axis: Row = [(" " * _SCALE, "")]
    for line in range(lines):
        blocks: list[list[Row]] = [scale]
        for column, place in enumerate(places[line * columns : (line + 1) * columns]):
            x = _SCALE + column * plot_width
            node, device = moment.devices[place]
            kept = _kept(moment, node, device, plot_width - 2, plot_height - 1)
            y = len(rows)
            zones += seek_zones(moment, node, kept.plot, x + 1, y + 1, plot_height - 1, place)
            zones.append(Zone(x, y, plot_width, plot_height, f"pick({place})"))
            now = moment.now - node.clock_offset_s
            if line == 0:
                axis += [(" ", ""), *time_axis(kept, now), (" ", "")]
            title = device_title(moment, node, device, plot_width, selected=place == selected)
            *above, last = kept.rows
            last = with_events(node, kept.plot, last, 0, now, moment.glyphs)
            body: list[Row] = [[(" ", ""), *row, (" ", "")] for row in (*above, last)]
            blocks.append([title, *body])
        rows += side_by_side(blocks)
    return View([*rows, axis], zones)


def _scale(rows: int) -> list[str]:
    """Percent left of plots of so many rows."""
    texts = [" " * _SCALE] * rows
    texts[rows - 1], texts[(rows - 1) // 2], texts[0] = "  0", " 50", "100"
    return texts


def _kept(moment: Moment, node: NodeView, device: DeviceView, columns: int, rows: int) -> Kept:
    layers = device_layers(node, device, moment.now)
    return kept_plot(moment, node, "device", device.key, layers, columns, rows)


def device_layers(node: NodeView, device: DeviceView, now: float) -> list[Layer]:
    """Busy as an area, bright as far as the SMs worked, under memory as a line; all in percent.

    What a framework reserved of the memory is hatched, with a line where a probe tells what is in
    use of it.
    """
    key, total = device.key, number(device.device.facts.get("mem_total_bytes"))

    def known(field: str) -> bool:
        return node.first_time("device", key, field) is not None

    busy, sm = "busy_percent", "sm_active_percent"
    if known(busy) and known(sm):
        layers = [Layer(busy, "hollow", "area"), Layer(sm, "busy", "area", instead=0)]
    else:  # of a MIG instance SM activity alone, where there is GPM
        layers = [Layer(busy if known(busy) else sm, "busy", "area")]
    layers.append(THROTTLED)
    if total:
        memory = Layer("mem_used_bytes", "mem", factor=100 / total)
        layers += memory_layers(node, key, now, memory)
    return layers


def memory_layers(node: NodeView, key: int, now: float, memory: Layer) -> list[Layer]:
    """The memory of a device as a line; what is reserved hatched, what is in use of it a line."""
    pool = in_use(node, key, now)
    since = reserved_since(node, key) if pool is None else pool.since
    layers = [memory]
    if since:
        layers.insert(0, memory._replace(role="hatch", kind="hatch", since=since))
    if pool is not None and pool.pid is not None:
        used = memory._replace(field="used_bytes", role=IN_USE, entity="pool")
        layers.append(used._replace(key=(key, pool.pid)))
    return layers
