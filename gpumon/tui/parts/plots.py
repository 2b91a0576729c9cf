"""One plot of readings over time, with what happened on its time axis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import floor
from typing import NamedTuple

from gpumon.analysis.rules.instant import is_throttled
from gpumon.chart.canvas import Values, tick_labels
from gpumon.chart.filled import Drawn, Kind
from gpumon.chart.moving import MovingPlot, tick_s
from gpumon.chart.painter import BUCKETS
from gpumon.model.rollup import Bucket
from gpumon.model.sample import Key
from gpumon.model.units import span_text
from gpumon.store import NodeView
from gpumon.tui.lines import Row, add_run, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import Zone

EVENT_KINDS = ("mark", "xid")
_BURST_SHARE = 0.15  # of the axis: a maximum so far above the mean is shown beside it
#: a plot is drawn again when a column of cells is full, but neither more often nor more seldom than
#: that; its numbers follow every sample
_SHORTEST_S, _LONGEST_S = 5.0, 10.0
_CLOCK_CELLS, _DAY_S = 16, 86_400  # cells between ticks from which they have the time of day
_BESIDE = (" ", "")  # a blank column between plots
_LATE_INTERVALS = 3  # what is older than so many does not change any more


class Layer(NamedTuple):
    """One reading in a plot, times `factor`, in the colour of `role`.

    instead: number of an earlier layer whose value counts where this one's is not known.
    since: epoch s by the node's clock; before it the layer is not drawn.
    """

    field: str
    role: str
    kind: Kind = "line"
    factor: float = 1.0
    instead: int | None = None
    since: float = 0.0
    #: where it is read, if not from what the plot is about
    entity: str = ""
    key: Key = ""

    def place(self, entity: str, key: Key) -> tuple[str, Key]:
        return (self.entity, self.key) if self.entity else (entity, key)


#: areas get another colour while the clocks were lowered
THROTTLED = Layer("throttle_mask", "slowed", "tint")


class Kept(NamedTuple):
    """A plot as it was drawn last."""

    look: object  # what another plot is needed for
    at: int  # when, in periods
    plot: MovingPlot
    rows: list[Row]

    def ticks(self, now: float) -> list[tuple[int, str]]:
        """Now, by the node's clock, and whole steps before it, each in its column; where there is
        room, with the time of day.
        """
        plot = self.plot
        every_s = tick_s(plot.step_s * plot.buckets)
        has_room = every_s / (plot.step_s * BUCKETS) >= _CLOCK_CELLS and every_s < _DAY_S
        form = "" if not has_room else " %H:%M" if every_s >= 60 else " %H:%M:%S"
        ticks = [(min(plot.column_of(now), plot.buckets // BUCKETS - 1), "now")]
        while (column := plot.column_of(at := now - len(ticks) * every_s)) >= 0:
            clock = time.strftime(form, time.localtime(at))
            ticks.append((column, f"-{span_text(len(ticks) * every_s)}{clock}"))
        return ticks


def kept_plot(
    moment: Moment, node: NodeView, entity: str, key: Key, layers: Sequence[Layer], columns: int,
    rows: int, high: float = 100.0,
) -> Kept:  # fmt: skip
    """The plot without axes, in exactly so many cells; what is new is painted."""
    since = tuple(
        node.first_time(*layer.place(entity, key), layer.field, past=True) for layer in layers
    )
    look = (moment.span_s, columns, rows, high, moment.glyphs, tuple(layers), since)
    now = moment.now - node.clock_offset_s
    at = period_of(now, moment.span_s / columns)
    name = (node.name, entity, key, layers[0].field)
    kept: Kept | None = moment.kept.plots.get(name)
    if kept is None or kept.look != look:
        drawn: list[Drawn] = []
        for layer in layers:
            drawn.append(Drawn(layer.kind, layer.role))
            drawn += [Drawn("dots", layer.role)] if _has_bursts(layer) else []
        plot = MovingPlot(drawn, columns, rows, moment.span_s, high, moment.glyphs)
        kept = Kept(look, at - 1, plot, [])
    if kept.at != at:
        first = min((time for time in since if time is not None), default=now)
        _draw(kept.plot, node, entity, key, layers, now, first)
        moment.kept.plots[name] = kept = Kept(look, at, kept.plot, kept.plot.rows())
    return kept


def period_of(now: float, column_s: float) -> int:
    """The time in which what is drawn with columns of so many seconds stays as it is."""
    return floor(now / min(max(column_s, _SHORTEST_S), _LONGEST_S))


def seek_zones(
    moment: Moment,
    node: NodeView,
    plot: MovingPlot | None,
    x: int,
    y: int,
    rows: int,
    place: int | None = None,
) -> list[Zone]:
    """In a replay: the cells of a plot take clicks, which go to the time under them.

    place: of the device that a click selects as well.
    """
    if moment.player is None or plot is None:
        return []
    begin, cell_s = plot.begin * plot.step_s + node.clock_offset_s, plot.step_s * BUCKETS
    what = "seek_at(" if place is None else f"pick_at({place}, "
    return [Zone(x, y, plot.buckets // BUCKETS, rows, f"{what}{begin!r}, {cell_s!r}, {{x}})")]


def _has_bursts(layer: Layer) -> bool:
    return layer.kind in ("area", "line")


def _draw(
    plot: MovingPlot,
    node: NodeView,
    entity: str,
    key: Key,
    layers: Sequence[Layer],
    now: float,
    first_time: float,
) -> None:
    step_s = plot.step_s
    newest = floor(now / step_s)
    if step_s * BUCKETS <= _LONGEST_S:  # full columns; of a longer one what there is
        newest -= newest % BUCKETS + 1
    plot.move(newest)
    far = plot.high * _BURST_SHARE
    begun = floor(first_time / step_s)
    first = max(plot.known, plot.begin, begun - begun % BUCKETS)
    count = newest - first + 1
    if count <= 0:
        return
    end, span_s = (newest + 0.5) * step_s, count * step_s
    values: list[Values] = []
    for layer in layers:
        buckets = node.window(*layer.place(entity, key), layer.field, end, span_s, count)
        if layer.since:
            unseen = min(max(floor(layer.since / step_s) - first, 0), count)
            buckets = [*[None] * unseen, *buckets[unseen:]]
        if layer.kind == "tint":
            values.append([each and float(is_throttled(each.high)) for each in buckets])
            continue
        means, bursts = _course(buckets, layer.factor, far)
        if layer.instead is not None:
            other = values[_place(layers, layer.instead)]
            means = [own if own is not None else its for own, its in zip(means, other)]
        values += [means, bursts] if _has_bursts(layer) else [means]
    plot.put(first, values)
    if node.last_time is not None:  # samples come late, and hold until the next is overdue
        late_s = _LATE_INTERVALS * node.interval_s
        plot.known = floor((min(node.last_time, now) - late_s) / step_s)


def _place(layers: Sequence[Layer], number: int) -> int:
    """Where the means of a layer stand among all values."""
    return sum(2 if _has_bursts(layer) else 1 for layer in layers[:number])


def _course(
    buckets: Sequence[Bucket | None], factor: float, far: float
) -> tuple[list[float | None], list[float | None]]:
    """Means, and the maxima of buckets that held `far` more for a moment."""
    means = [None if each is None else each.mean * factor for each in buckets]
    bursts = [
        each.high * factor if each is not None and (each.high - each.mean) * factor > far else None
        for each in buckets
    ]
    return means, bursts


def time_axis(kept: Kept, now: float) -> Row:
    """The labels below plots of the same time: now, by the node's clock, and steps before it."""
    return [(tick_labels(kept.ticks(now), kept.plot.buckets // BUCKETS), "dim")]


def block(title: Row, body: list[Row], width: int, height: int) -> list[Row]:
    """A plot under its title, in exactly so many cells and rows; it is a cell narrower."""
    rows = [fit_row(title, width), *([*row, _BESIDE] for row in body)]
    return rows + [[(" " * width, "")]] * (height - len(rows))


def side_by_side(blocks: list[list[Row]]) -> list[Row]:
    """Blocks of equal height as one."""
    return [[run for row in rows for run in row] for rows in zip(*blocks)]


def with_events(
    node: NodeView, plot: MovingPlot, row: Row, left: int, now: float, glyphs: str
) -> Row:
    """Marks and Xid errors in a row of the plot, each at its moment; it begins `left` before it."""
    begin = plot.begin * plot.step_s
    moments = [event.time for event in node.events(begin) if event.kind in EVENT_KINDS]
    if not moments:
        return row
    sign = "^" if glyphs == "ascii" else "▲"
    places = {left + plot.column_of(at) for at in moments if at <= now}
    marked: Row = []
    cells = ((char, role) for text, role in row for char in text)
    for x, (char, role) in enumerate(cells):
        if x in places:  # on an area, if there is one
            area = role.partition("/")[0]
            char, role = sign, f"attention/{area}" if "." in area else "attention"
        add_run(marked, char, role)
    return marked
