"""One plot of readings over time, with what happened on its time axis."""

from __future__ import annotations

from math import floor

from gpumon.chart import Canvas, Line, dot_columns, draw
from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.state import ViewState

EVENT_KINDS = ("mark", "xid")
_REBUILD_S = 2.0  # a plot is drawn again at most so often; its numbers follow every sample
_BURST_SHARE = 0.15  # of the axis: a maximum so far above the mean is shown beside it


def chart_rows(
    state: ViewState,
    node: NodeView,
    entity: str,
    key: int | str,
    series: list[tuple[str, float, str]],
    width: int,
    height: int,
    high: float,
    y_labels: tuple[str, str, str],
) -> list[Row]:
    """One plot of several series, each (field, factor, role); built again when a bucket is full."""
    if width < 12 or height < 3:
        return []
    span = state.span_s
    n = dot_columns(width, y_labels)
    end = state.end - node.clock_offset_s
    name = (node.name, entity, key, tuple(field for field, _, _ in series))
    bucket = floor((state.now - node.clock_offset_s) / max(span / n, _REBUILD_S))
    signature = (bucket, end > state.now, span, width, height, high, state.glyphs)
    cached = state.charts.get(name)
    if cached is None or cached[0] != signature:
        lines: list[Line] = []
        for field, factor, _ in series:
            buckets = node.window(entity, key, field, end, span, n) if factor else [None] * n
            # the mean as a line; where a bucket held much more for a moment, a dot says so
            far = high * _BURST_SHARE
            lines.append(Line([None if b is None else b.mean * factor for b in buckets]))
            peaks = [
                b.high * factor if b is not None and (b.high - b.mean) * factor > far else None
                for b in buckets
            ]
            lines.append(Line(peaks, joined=False))
        canvas = draw(lines, width, height, 0.0, high, y_labels, state.time_labels, state.glyphs)
        state.charts[name] = cached = (signature, canvas)
    rows = canvas_rows(cached[1], [role for _, _, role in series for _ in range(2)])
    return _with_events(state, node, rows, end, max(map(len, y_labels)) + 1)


def canvas_rows(canvas: Canvas | None, roles: list[str]) -> list[Row]:
    if canvas is None:
        return []
    return [
        [(text, "dim" if index is None else roles[index]) for text, index in row]
        for row in canvas.rows
    ]


def _with_events(
    state: ViewState, node: NodeView, rows: list[Row], end: float, left: int
) -> list[Row]:
    """Marks and Xid errors on the time axis, each at its moment."""
    begin = end - state.span_s
    moments = [event.time for event in node.events(begin) if event.kind in EVENT_KINDS]
    if not moments or len(rows) < 3:
        return rows
    axis = "".join(text for text, _ in rows[-2])
    sign = "^" if state.glyphs == "ascii" else "▲"
    places = {
        left + floor((at - begin) / state.span_s * (len(axis) - left))
        for at in moments
        if at <= min(end, state.now)
    }
    marked: Row = []
    for x, char in enumerate(axis):
        text, role = (sign, "attention") if x in places else (char, "dim")
        if marked and marked[-1][1] == role:
            marked[-1] = (marked[-1][0] + text, role)
        else:
            marked.append((text, role))
    return [*rows[:-2], marked, rows[-1]]
