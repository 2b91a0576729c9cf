"""Nodes as rows of a heat map: a cell for each device, the host beside it, the worst first."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.units import bytes_text, plural
from gpumon.tui.lines import Row, add_run, fit, fit_row, row_width
from gpumon.tui.moment import Moment
from gpumon.tui.moment.summaries import Cell, Host, Metric, Summary
from gpumon.tui.parts.phrasing import cursor, signs
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.screens.nodes.together import Together, together
from gpumon.tui.theme import HEATS

_SHADES = {"ascii": ".-=*#"}
_BLOCKS = "·░▒▓█"
_TROUBLES = {"lost": ("×", "x"), "hung": ("!", "!")}
_NUMBER_CELLS = 4  # cells of the screen for a device, where its number fits; else one glyph
_NAME = "node"
_REMARK_CELLS = 25  # room that is kept for what stands out
_ORDERS = {"worst": "worst first", "cells": "{metric}", "cpu": "CPU"}  # else as they are named


class _Layout(NamedTuple):
    """Widths in cells; `each` is that of one device, `most` how many devices have room."""

    name: int
    each: int
    most: int
    host: tuple[tuple[str, int], ...]  # heading, width
    together: Together | None = None  # where there is room

    @property
    def heat(self) -> int:
        return max(self.each * self.most, 7) + 1


def node_table(
    found: list[Summary],
    selected: int,
    top: int,
    metric: Metric,
    order: str,
    reverse: bool,
    filter_text: str,
    moment: Moment,
    width: int,
    height: int,
) -> View:
    """A line on what the cells mean, headings, and the rows from `top` on.

    order: one of the orders of nodes, `reverse`d or not.
    """
    layout, glyphs = _layout(found, moment, width), moment.glyphs
    last = min(len(found), top + room_for_nodes(height))
    legend, zones = _legend(found, layout, range(top, last), metric, order, reverse, glyphs, width)
    if filter_text:
        legend = fit_row([*legend, (f"   filter: {filter_text}", "key")], width)
    rows: list[Row] = [legend, _headings(layout, metric, glyphs)]
    for place in range(top, last):
        zones.append(Zone(0, len(rows), width, 1, f"pick_node({place})"))
        row = _row(layout, found[place], metric, glyphs, width, selected=place == selected)
        rows.append(row)
    return View(rows, zones)


def room_for_nodes(height: int) -> int:
    """How many nodes a table of so many rows shows."""
    return max(1, height - 2)


def _layout(found: list[Summary], moment: Moment, width: int) -> _Layout:
    name = min(20, max([len(_NAME), *(len(s.node.name) for s in found)])) + 2
    host: tuple[tuple[str, int], ...] = (
        ("node CPU", 9), ("node mem", 9), ("net ↓", 6), ("↑ B/s", 6),
    )  # fmt: skip
    if width >= 110:
        host += (("disk", 14),)
    fixed = name + sum(cells for _, cells in host) + 1
    count = max((s.devices for s in found), default=0)
    each = next(
        (each for each in (_NUMBER_CELLS, 2) if fixed + each * count + _REMARK_CELLS <= width), 1
    )
    most = min(count, max(8, (width - fixed - 12) // each))
    layout = _Layout(name, each, most, host)
    used = 1 + name + layout.heat + sum(cells for _, cells in host)
    return layout._replace(together=together(moment, width - used))


def _legend(
    found: list[Summary],
    layout: _Layout,
    shown: range,
    metric: Metric,
    order: str,
    reverse: bool,
    glyphs: str,
    width: int,
) -> tuple[Row, list[Zone]]:
    """What the cells show and how they are ordered; both take clicks."""
    devices = sum(summary.devices for summary in found)
    left = sum(summary.node.is_left for summary in found)
    where = f" {plural(len(found) - left, 'node')}"
    if len(found) > len(shown):
        where = f" nodes {shown.start + 1}-{shown.stop} of {len(found)}"
    if width >= 100:
        where += f", {devices} GPUs"
    where += f" (+{left} former)" if left else ""
    row: Row = [(where, ""), ("   ", "")]
    x = row_width(row)
    row += [("c ", "key"), (metric.heading, "title"), ("  ", "")]
    zones = [Zone(x, 0, 2 + len(metric.heading), 1, "metric(1)")]
    row += _scale(layout, metric, glyphs)
    row.append(("   ", ""))
    words = _ORDERS.get(order, order).format(metric=metric.heading)
    x = row_width(row)
    row += [("s ", "key"), (words + (", reversed" if reverse else ""), "title")]
    zones.append(Zone(x, 0, 2 + len(words), 1, "sort(1)"))
    return row, [zone for zone in zones if zone.x + zone.width <= width]


def _scale(layout: _Layout, metric: Metric, glyphs: str) -> Row:
    """`0 · ░ 25 ▒ 50 ▓ 75 █` for glyphs; numbers speak for themselves."""
    cross = _TROUBLES["lost"][glyphs == "ascii"]
    if layout.each == _NUMBER_CELLS:
        return [(f"{cross} lost  ? unknown", "dim")]
    shades = _shades(glyphs)
    bounds = ("25", "50", "75")
    if glyphs != "ascii" and metric.name not in ("busy", "mem"):
        bounds = ("¼", "½", "¾")
    low, middle, high = bounds
    text = f"0 {shades[0]}{shades[1]} {low} {shades[2]} {middle} {shades[3]} {high} {shades[4]}"
    return [(text, metric.role), (f"  {cross} lost", "dim")]


def _headings(layout: _Layout, metric: Metric, glyphs: str) -> Row:
    text = " " + fit(_NAME, layout.name) + fit(metric.heading, layout.heat)
    for heading, cells in layout.host:
        if glyphs == "ascii":
            heading = heading.replace("↓", "rx").replace("↑", "tx")
        text += fit(heading, cells, right=True)
    if layout.together is not None:
        text += layout.together.heading
    return [(text, "dim")]


def _row(
    layout: _Layout, summary: Summary, metric: Metric, glyphs: str, width: int, *, selected: bool
) -> Row:
    load = summary.load
    row: Row = [
        (cursor(glyphs) if selected else " ", "key"),
        (fit(summary.node.name, layout.name), "title" if selected else ""),
        *_cell_runs(layout, load.cells, metric, glyphs),
        (_host_text(layout, load.host), "" if summary.level != "unknown" else "dim"),
    ]
    if layout.together is not None:
        row += layout.together.row(summary.node)
    if summary.remark:
        sign = signs(glyphs)[summary.level or "note"]
        row.append((f"  {sign} {summary.remark}", summary.level or "dim"))
    return fit_row(row, width)


def _cell_runs(layout: _Layout, cells: tuple[Cell, ...], metric: Metric, glyphs: str) -> Row:
    shown = cells[: layout.most]
    runs: Row = []
    for cell in shown:
        add_run(runs, *cell_run(cell, metric, layout.each, glyphs))
    more = "+" if len(cells) > len(shown) else ""
    runs.append((fit(more, layout.heat - layout.each * len(shown)), "dim"))
    return runs


def cell_run(cell: Cell, metric: Metric, each: int, glyphs: str) -> tuple[str, str]:
    """One device in `each` cells: its number on a shade, or one glyph; trouble has its own."""
    if cell.trouble:
        sign = _TROUBLES[cell.trouble][glyphs == "ascii"]
        text = cell.trouble if each == _NUMBER_CELLS else sign * min(each, 2)
        return text.ljust(each), "bad"
    if cell.value is None:
        return ("?" if each < _NUMBER_CELLS else "  ? ").ljust(each), "unknown"
    heat = _heat(cell)
    if each == _NUMBER_CELLS:
        return fit(f"{cell.value:.0f}", each - 1, right=True) + " ", f"heat{heat}"
    return _shades(glyphs)[heat] * each, metric.role if heat else "dim"


def _heat(cell: Cell) -> int:
    """0 for nothing at all, then a step for each quarter of the scale."""
    share = cell.share
    if share is None or cell.value is None or share < 0.01:
        return 0
    return min(HEATS - 1, 1 + int(share * (HEATS - 1)))


def _shades(glyphs: str) -> str:
    return _SHADES.get(glyphs, _BLOCKS)


def _host_text(layout: _Layout, host: Host) -> str:
    texts = {
        "node CPU": "?" if host.cpu_percent is None else f"{host.cpu_percent:.0f} %",
        "node mem": "?" if host.mem_used_bytes is None else bytes_text(host.mem_used_bytes),
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
