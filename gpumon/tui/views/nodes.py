"""Nodes as rows of a heat map: a cell for each device, the host beside it, the worst first."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.units import bytes_text
from gpumon.tui.lines import Row, fit, fit_row, row_width
from gpumon.tui.state import View, ViewState, Zone
from gpumon.tui.summaries import Cell, Metric, Summary
from gpumon.tui.theme import HEATS, NATIVE
from gpumon.tui.views.grid import MIN_PLOT_HEIGHT, device_grid, scrolled
from gpumon.tui.views.request import ASCII_SIGNS, SIGNS

_SHADES = {"ascii": ".-=*#"}
_BLOCKS = "·░▒▓█"
_TROUBLES = {"lost": ("×", "x"), "hung": ("!", "!")}
_NUMBER_CELLS = 4  # cells of the screen for a device, where its number fits; else one glyph
_NAME = "node"
_REMARK_CELLS = 28  # room that is kept for what stands out
_ORDERS = {
    "worst": "worst first", "name": "name", "cells": "{metric}", "cpu": "CPU", "memory": "memory",
    "network": "network",
}  # fmt: skip


class _Layout(NamedTuple):
    """Widths in cells; `each` is that of one device, `most` how many devices have room."""

    name: int
    each: int
    most: int
    host: tuple[tuple[str, int], ...]  # heading, width

    @property
    def heat(self) -> int:
        return max(self.each * self.most, 7) + 1


def nodes_view(state: ViewState, width: int, height: int) -> View:
    """The table of nodes; below it, where there is room, the devices of the selected one."""
    if not state.nodes:
        return View([[(" no node has been heard of yet", "dim")]])
    count = len(state.nodes)
    rest = height - count - 3
    if rest < MIN_PLOT_HEIGHT:
        return node_table(state, width, height)
    table = node_table(state, width, count + 2)
    below = len(table.rows) + 1
    grid = device_grid(state, width, rest, state.positions_of(state.node_name))
    zones = [zone._replace(y=zone.y + below) for zone in grid.zones]
    return View([*table.rows, [], *grid.rows], [*table.zones, *zones])


def node_table(state: ViewState, width: int, height: int) -> View:
    """A line on what the cells mean, headings, and rows around the selected node."""
    found = state.summaries()
    names = [summary.node.name for summary in found]
    if state.node_name not in names and names:
        state.node_name = names[0]
    selected = names.index(state.node_name) if names else 0
    layout = _layout(found, width)
    room = max(1, height - 2)
    top = state.node_top = scrolled(state.node_top, selected, room, len(found))
    legend, zones = _legend(state, layout, found, top, room, width)
    rows: list[Row] = [legend, _headings(state, layout)]
    for place in range(top, min(len(found), top + room)):
        zones.append(Zone(0, len(rows), width, 1, f"pick_node({place})"))
        rows.append(_row(state, layout, found[place], width, selected=place == selected))
    return View(rows, zones)


def _layout(found: list[Summary], width: int) -> _Layout:
    name = min(20, max([len(_NAME), *(len(s.node.name) for s in found)])) + 2
    host: tuple[tuple[str, int], ...] = (("CPU", 6), ("memory", 9), ("net ↓", 7), ("↑ B/s", 7))
    if width >= 110:
        host += (("disk", 15),)
    fixed = name + sum(cells for _, cells in host) + 1
    count = max((s.devices for s in found), default=0)
    each = next(
        (each for each in (_NUMBER_CELLS, 2) if fixed + each * count + _REMARK_CELLS <= width), 1
    )
    most = min(count, max(8, (width - fixed - 12) // each))
    return _Layout(name, each, most, host)


def _legend(
    state: ViewState, layout: _Layout, found: list[Summary], top: int, room: int, width: int
) -> tuple[Row, list[Zone]]:
    """What the cells show and how they are ordered; both take clicks."""
    devices = sum(summary.devices for summary in found)
    where = f" {len(found)} node{'s' if len(found) != 1 else ''}"
    if len(found) > room:
        where = f" nodes {top + 1}-{min(len(found), top + room)} of {len(found)}"
    if width >= 100:
        where += f", {devices} GPUs"
    metric = state.metric
    row: Row = [(where, ""), ("   ", "")]
    x = row_width(row)
    row += [("c ", "key"), (metric.heading, "title"), ("  ", "")]
    zones = [Zone(x, 0, 2 + len(metric.heading), 1, "metric(1)")]
    row += _scale(state, layout)
    row.append(("   ", ""))
    order = _ORDERS[state.node_sort].format(metric=metric.heading)
    x = row_width(row)
    row += [("s ", "key"), (order + (", reversed" if state.node_reverse else ""), "title")]
    zones.append(Zone(x, 0, 2 + len(order), 1, "sort(1)"))
    return row, [zone for zone in zones if zone.x + zone.width <= width]


def _scale(state: ViewState, layout: _Layout) -> Row:
    """`0 · ░ 25 ▒ 50 ▓ 75 █` for glyphs; numbers speak for themselves."""
    if layout.each == _NUMBER_CELLS:
        return [("× lost  ? unknown" if state.glyphs != "ascii" else "x lost  ? unknown", "dim")]
    shades = _shades(state)
    bounds = {"busy": "25 50 75", "mem": "25 50 75"}.get(state.metric.name, "¼ ½ ¾")
    if state.glyphs == "ascii":
        bounds = "25 50 75"
    low, middle, high = bounds.split()
    text = f"0 {shades[0]}{shades[1]} {low} {shades[2]} {middle} {shades[3]} {high} {shades[4]}"
    return [
        (text, state.metric.role),
        ("  × lost" if state.glyphs != "ascii" else "  x lost", "dim"),
    ]


def _headings(state: ViewState, layout: _Layout) -> Row:
    text = " " + fit(_NAME, layout.name) + fit(state.metric.heading, layout.heat)
    for heading, cells in layout.host:
        if state.glyphs == "ascii":
            heading = heading.replace("↓", "rx").replace("↑", "tx")
        text += fit(heading, cells, right=True)
    return [(text, "dim")]


def _row(state: ViewState, layout: _Layout, summary: Summary, width: int, *, selected: bool) -> Row:
    mark = ">" if state.glyphs == "ascii" else "▶"
    row: Row = [
        (mark if selected else " ", "key"),
        (fit(summary.node.name, layout.name), "title" if selected else ""),
        *_cell_runs(state, layout, summary.cells),
    ]
    row.append((_host_text(layout, summary), "" if summary.level != "unknown" else "dim"))
    if summary.remark:
        signs = ASCII_SIGNS if state.glyphs == "ascii" else SIGNS
        role = summary.level or "dim"
        row.append((f"  {signs[summary.level or 'note']} {summary.remark}", role))
    return fit_row(row, width)


def _cell_runs(state: ViewState, layout: _Layout, cells: tuple[Cell, ...]) -> Row:
    shown = cells[: layout.most]
    runs: Row = []
    for cell in shown:
        text, role = cell_run(state, cell, state.metric, layout.each)
        if runs and runs[-1][1] == role:
            runs[-1] = (runs[-1][0] + text, role)
        else:
            runs.append((text, role))
    more = "+" if len(cells) > len(shown) else ""
    runs.append((fit(more, layout.heat - layout.each * len(shown)), "dim"))
    return runs


def cell_run(state: ViewState, cell: Cell, metric: Metric, each: int) -> tuple[str, str]:
    """One device in `each` cells: its number on a shade, or one glyph; trouble has its own."""
    if cell.trouble:
        sign = _TROUBLES[cell.trouble][state.glyphs == "ascii"]
        text = cell.trouble if each == _NUMBER_CELLS else sign * min(each, 2)
        return text.ljust(each), "bad"
    if cell.value is None:
        return ("?" if each < _NUMBER_CELLS else "  ? ").ljust(each), "unknown"
    heat = _heat(cell)
    if each == _NUMBER_CELLS:
        return fit(f"{cell.value:.0f}", each - 1, right=True) + " ", f"heat{heat}"
    if state.palette in NATIVE and heat == 0:
        return _shades(state)[0] * each, "dim"
    return _shades(state)[heat] * each, metric.role if heat else "dim"


def _heat(cell: Cell) -> int:
    """0 for nothing at all, then a step for each quarter of the scale."""
    share = cell.share
    if share is None or cell.value is None or share < 0.01:
        return 0
    return min(HEATS - 1, 1 + int(share * (HEATS - 1)))


def _shades(state: ViewState) -> str:
    return _SHADES.get(state.glyphs, _BLOCKS)


def _host_text(layout: _Layout, summary: Summary) -> str:
    host = summary.host
    texts = {
        "CPU": "?" if host.cpu_percent is None else f"{host.cpu_percent:.0f} %",
        "memory": "?" if host.mem_used_bytes is None else bytes_text(host.mem_used_bytes),
        "net ↓": _rate(host.rx_bytes_per_s),
        "↑ B/s": _rate(host.tx_bytes_per_s),
        "disk": "?" if host.disk_percent is None else f"{host.disk[:8]} {host.disk_percent:.0f} %",
    }
    return "".join(fit(texts[heading], cells, right=True) for heading, cells in layout.host)


def _rate(bytes_per_s: float | None) -> str:
    """`9.8G`, under a heading that has the unit."""
    if bytes_per_s is None:
        return "?"
    return bytes_text(bytes_per_s).replace(" ", "").removesuffix("iB").removesuffix("B")
