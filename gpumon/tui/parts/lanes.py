"""Lanes: readings over one time axis, each in a strip of its own beside its name and value.

Where there is little room a lane is a row high, like a spark; with more it has a scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from gpumon.chart.bars import spark
from gpumon.chart.canvas import GLYPHS, MIN_WIDTH, x_axis
from gpumon.chart.painter import BUCKETS
from gpumon.model.sample import Key
from gpumon.model.units import bytes_text
from gpumon.store import NodeView
from gpumon.tui.lines import Row, Run, fit, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.device_rows import spark_runs
from gpumon.tui.parts.plots import Kept, Layer, kept_plot, seek_zones, side_by_side, with_events
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.picture import width_of
from gpumon.tui.values import Format, shown

_TWO_COLUMNS, _THREE_COLUMNS = 110, 220  # cells of width from which lanes are side by side
_LABEL_CELLS, _VALUE_CELLS, _SCALE_CELLS = 12, 10, 5
_MOST_ROWS = 36  # of one lane
_BLANK = (" ", "")
_AXIS_ROWS = 2
_PLAIN = str.maketrans({"↓": "in", "↑": "out"})
_SPARK_HEADROOM = 8 / 7  # a full spark is a level lower than its cell


class Lane(NamedTuple):
    """One reading, or several in one strip; `top` is how `high`, the end of its scale, is written.

    note: what stands under the value, where there is room.
    """

    label: str
    value: Run
    entity: str
    key: Key
    layers: Sequence[Layer]
    high: float
    top: str
    note: str = ""


def lane_of(
    node: NodeView, entity: str, key: Key, field: str, label: str, role: str, form: Format,
    high: float, top: str, now: float,
) -> Lane:  # fmt: skip
    """A lane of one reading, with its value now and its peak since attached."""
    value = shown(node.latest(entity, key, field, now), form, role)
    peak = node.peak(entity, key, field)
    note = f"peak {form(peak)}" if peak is not None else ""
    return Lane(label, value, entity, key, [Layer(field, role, "area")], high, top, note)


def short_bytes(size_bytes: float) -> str:
    """The end of a scale: `79.6G`."""
    return bytes_text(size_bytes).replace(" ", "").removesuffix("iB").removesuffix("B")


def lanes_view(
    moment: Moment, node: NodeView, lanes: Sequence[Lane], width: int, height: int
) -> View:
    """As many lanes as fit, in columns of equal height, each filled above its time axis."""
    room = height - _AXIS_ROWS
    if room < 1 or not lanes:
        return View([])
    count = _columns(width)
    lines = min(ceil(len(lanes) / count), room)
    lanes = lanes[: lines * count]
    count = min(count, len(lanes))  # without an empty one
    is_narrow = room // lines == 1
    fewest, longer = divmod(len(lanes), count)
    room = min(room, _MOST_ROWS * fewest)  # the time axes are beside each other
    blocks: list[list[Row]] = []
    zones: list[Zone] = []
    column_width = width // count
    first = 0
    for column in range(count):
        mine = lanes[first : first + fewest + (column < longer)]
        first += len(mine)
        each, more = divmod(room, len(mine))
        heights = [1 if is_narrow else each + (line < more) for line in range(len(mine))]
        block = _column(moment, node, mine, heights, column_width)
        blocks.append(block.rows)
        zones += [zone._replace(x=zone.x + column * column_width) for zone in block.zones]
    tallest = max(map(len, blocks))
    empty = fit_row([], column_width)
    return View(side_by_side([[*b, *[empty] * (tallest - len(b))] for b in blocks]), zones)


def least_height(count: int, width: int) -> int:
    """Rows in which so many lanes fit, each a row high."""
    return ceil(count / _columns(width)) + _AXIS_ROWS


def _columns(width: int) -> int:
    return 3 if width >= _THREE_COLUMNS else 2 if width >= _TWO_COLUMNS else 1


def _column(
    moment: Moment, node: NodeView, lanes: Sequence[Lane], heights: Sequence[int], width: int
) -> View:
    """Lanes over each other."""
    is_narrow = heights[0] == 1
    left = _LABEL_CELLS + (_VALUE_CELLS + 2 if is_narrow else _SCALE_CELLS + 1)
    columns = width - left - 2
    if columns < MIN_WIDTH:
        return View([fit_row([], width)] * (sum(heights) + _AXIS_ROWS))
    line: Run = (GLYPHS[moment.glyphs].axis[0], "dim")
    rows: list[Row] = []
    zones: list[Zone] = []
    kept: Kept | None = None
    for lane, height in zip(lanes, heights):
        high = lane.high * _headroom(moment.glyphs, height)
        kept = kept_plot(moment, node, lane.entity, lane.key, lane.layers, columns, height, high)
        zones += seek_zones(moment, node, kept.plot, left + 1, len(rows), height)
        if moment.glyphs == "ascii":
            lane = lane._replace(label=lane.label.translate(_PLAIN))
        if is_narrow:
            row = [*_narrow(lane), line, *_spark(moment, node, lane, kept)]
            rows.append(fit_row(row, width))
            continue
        for label, cells in zip(_labels(lane, height), kept.rows):
            rows.append([*label, line, *cells, _BLANK])
    rows += _axis(moment, node, kept, left + 1, columns, width)
    below = [fit_row([], width)] * (sum(heights) + _AXIS_ROWS - len(rows))
    return View([*rows, *below], zones)


def _axis(
    moment: Moment, node: NodeView, kept: Kept | None, left: int, columns: int, width: int
) -> list[Row]:
    """The time below lanes of the same width, with what happened; `left` cells before them."""
    if kept is None:
        return [fit_row([], width)] * _AXIS_ROWS
    now = moment.now - node.clock_offset_s
    drawn = x_axis(kept.ticks(now), left, columns, GLYPHS[moment.glyphs])
    ruler, times = ([(text, "dim") for text, _ in row] for row in drawn)
    marked = with_events(node, kept.plot, ruler, left, now, moment.glyphs)
    return [fit_row(marked, width), fit_row(times, width)]


def _spark(moment: Moment, node: NodeView, lane: Lane, kept: Kept) -> Row:
    """The same times in one row, which has more levels in blocks than in dots; made as often as
    the plot is drawn.
    """
    layer = lane.layers[0]
    name, made_for = ("spark", node.name, lane.entity, lane.key, layer.field), (kept.at, kept.look)
    before = moment.kept.plots.get(name)
    if before is not None and before[0] == made_for:
        row: Row = before[1]
        return row
    plot = kept.plot
    step_s, columns = plot.step_s * BUCKETS, plot.buckets // BUCKETS
    end = (plot.begin // BUCKETS + columns - 0.5) * step_s
    place = layer.place(lane.entity, lane.key)
    buckets = node.window(*place, layer.field, end, columns * step_s, columns)
    values = [None if each is None else each.mean * layer.factor for each in buckets]
    text = spark(values, columns, 0.0, lane.high * _SPARK_HEADROOM, moment.glyphs)
    known = plot.column_of(moment.now - node.clock_offset_s) + 1  # what is to come is blank
    row = spark_runs(text[:known], values, layer.role)
    moment.kept.plots[name] = made_for, row
    return row


def _headroom(glyphs: str, rows: int) -> float:
    """How much longer the scale is than its end, so that full lanes do not touch each other."""
    dots = rows * GLYPHS[glyphs].dot_rows
    return dots / (dots - 1)


def _narrow(lane: Lane) -> Row:
    text, role = lane.value
    label = fit(lane.label, _LABEL_CELLS)
    return [(f" {label}", "dim"), (fit(text, _VALUE_CELLS, right=True) + " ", role)]


def _labels(lane: Lane, height: int) -> list[Row]:
    """Name, value and note from above, and the ends of the scale beside the plot."""
    texts: list[Run] = [(lane.label, "dim"), lane.value, (lane.note, "dim")][:height]
    texts += [("", "")] * (height - len(texts))
    scale = [lane.top, *[""] * (height - 2), "0"]
    width = _LABEL_CELLS + _SCALE_CELLS
    return [
        [(f" {fit(text, width - width_of(end))}", role), (end, "dim")]
        for (text, role), end in zip(texts, scale)
    ]
