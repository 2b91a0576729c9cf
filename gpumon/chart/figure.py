"""Figures that are drawn seldom: in reports, of a finding, of two runs beside each other.

plotext draws the lines; this is its only import, and it comes late: at the first figure. Its
kernel ends the whole process, without an exception, on a NaN or on a point far outside the window.
So it only ever gets finite values, clamped to the limits and counted in buckets, one run between
two gaps at a time. Where it cannot be imported, and for ASCII, `paint` draws the same figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from math import floor, isfinite
from typing import Any, NamedTuple

from gpumon.chart.canvas import (
    GLYPHS,
    MIN_HEIGHT,
    MIN_WIDTH,
    Canvas,
    Glyphs,
    Run,
    Values,
    dot_row,
    joined,
    printable,
    shares,
    spread,
    x_axis,
    y_axis,
)
from gpumon.chart.painter import Kind, Levels, paint


class Line(NamedTuple):
    """One line: a value per bucket, None for a gap. Not `joined`: dots, as for extremes."""

    values: Values
    joined: bool = True


def dot_columns(width: int, y_labels: Sequence[str]) -> int:
    """How many buckets a chart of `width` cells shows: one for each column of dots.

    Two columns a cell beside the widest label and the axis, less one at either end.
    """
    return max(2 * (width - max(map(len, y_labels), default=0) - 1) - 2, 2)


def stretched(values: Values, count: int) -> list[float | None]:
    """The course in exactly `count` values; none of none."""
    return [values[n * len(values) // count] for n in range(count)] if values else []


def draw(
    lines: Sequence[Line],
    width: int,
    height: int,
    lo: float,
    hi: float,
    y_labels: Sequence[str] = ("0", "50", "100"),
    x_labels: Sequence[str] = (),
    glyphs: str = "braille",
) -> Canvas | None:
    """One chart of width × height cells, or None where it is too small or a range is empty.

    Each line should have `dot_columns(width, y_labels)` values; of more, the last ones are shown,
    fewer are drawn at the right. Values outside lo … hi lie on the edge. Labels are spread evenly
    from `lo` to `hi` and from the first bucket to the last, one cell a character; without
    `x_labels` there is no axis below. `glyphs`: `braille` or `ascii`. Later lines
    lie over earlier ones.
    """
    sound = isfinite(lo) and isfinite(hi) and hi > lo and isfinite(hi - lo)
    widest = max(map(len, y_labels), default=0)
    if width < max(MIN_WIDTH, widest + 6) or height < MIN_HEIGHT or not sound:
        return None
    n = dot_columns(width, y_labels)
    frame = _Frame(width, height, n, printable(y_labels), printable(x_labels), GLYPHS[glyphs])
    fitted = [Line(_fitted(line.values, n, lo, hi), line.joined) for line in lines]
    plotext = None if glyphs == "ascii" else _plotext()
    rows = _own_rows(frame, fitted) if plotext is None else _plotext_rows(plotext, frame, fitted)
    return Canvas(width, height, tuple(rows))


class _Frame(NamedTuple):
    """What lies around the lines: sizes in cells, `n` buckets, labels."""

    width: int
    height: int
    n: int
    y_labels: tuple[str, ...]
    x_labels: tuple[str, ...]
    glyphs: Glyphs


def _fitted(values: Values, n: int, lo: float, hi: float) -> list[float | None]:
    """`n` values, as parts of the range."""
    shown = shares(values[-n:], lo, hi)
    return [None] * (n - len(shown)) + shown


def _stretches(values: Values) -> Iterator[tuple[list[int], list[float]]]:
    """Buckets and values from one gap to the next; a gap is never crossed by a line."""
    places: list[int] = []
    heights: list[float] = []
    for place, share in enumerate(values):
        if share is not None:
            places.append(place)
            heights.append(share)
        elif places:
            yield places, heights
            places, heights = [], []
    if places:
        yield places, heights


# -- with plotext ----------------------------------------------------------------------------------

#: plotext resets and then sets absolute colours before every run; ours tell the number of the line
_TOKEN = re.compile(r"\x1b\[(?:38;2;0;0;(\d+)|[0-9;]*)m|([^\x1b]+)")


@cache
def _plotext() -> Any:
    """Plotext (0.15 s to import), or None: its kernel does not load, another major version."""
    try:
        import plotext

        module: Any = plotext
        module.terminal.limit(False, False)  # else sizes are cut to the terminal
        module.figure.clear()
        module.marker("braille", (0, 0, 1))
    except Exception:
        return None
    return module


def _plotext_rows(plotext: Any, frame: _Frame, lines: Sequence[Line]) -> list[tuple[Run, ...]]:
    figure = plotext.figure
    _set_frame(figure, frame)
    for number, line in enumerate(lines):
        marker = plotext.marker("braille", (0, 0, number + 1))
        for places, heights in _stretches(line.values):
            points = figure.signal(places, heights, marker=marker)
            figure.draw(points.lines() if line.joined else points)
    text = figure.build().string()
    return [_runs(row) for row in text.rstrip("\n").split("\n")]


def _set_frame(figure: Any, frame: _Frame) -> None:
    figure.clear()
    figure.plot_size(frame.width, frame.height)
    figure.theme("colorless")  # else a blue line on a white canvas
    for axis, last, labels in (("x", frame.n - 1, frame.x_labels), ("y", 1, frame.y_labels)):
        ticks = [place for place in spread(last, labels) if place[1]]  # it fails on blanks
        figure.ruler(axis).lim(0, last)
        figure.ruler(axis).ticks([at for at, _ in ticks], [label for _, label in ticks])
    figure.axes(False, axis=0, side=1)  # no line above, none to the right
    figure.axes(False, axis=1, side=1)
    if not frame.x_labels:
        figure.axes(False, axis=0, side=0)


def _runs(row: str) -> tuple[Run, ...]:
    runs: list[Run] = []
    number: int | None = None
    for token in _TOKEN.finditer(row):
        code, text = token.groups()
        if text is None:
            number = int(code) - 1 if code else None
        else:
            runs.append((text, number))
    return tuple(runs)


# -- in plain Python -------------------------------------------------------------------------------


def _own_rows(frame: _Frame, lines: Sequence[Line]) -> list[tuple[Run, ...]]:
    glyphs = frame.glyphs
    left = max(map(len, frame.y_labels), default=0) + 1
    columns = frame.width - left
    rows = frame.height - (2 if frame.x_labels else 0)
    last_dot = rows * glyphs.dot_rows - 1
    layers: list[tuple[Kind, Levels]] = [
        (
            "line" if line.joined else "dots",
            [
                None if share is None else dot_row(share, last_dot, glyphs.inset)
                for share in (None, *line.values, None)
            ],
        )
        for line in lines
    ]
    painted = [paint(layers, at, rows, glyphs) for at in range(columns)]
    labels = y_axis(frame.y_labels, rows, glyphs)
    drawn = [
        ((label, None), *joined([each.cells[row] for each in painted],
                                [each.owners[row] for each in painted]))
        for row, label in enumerate(labels)
    ]  # fmt: skip
    if not frame.x_labels:
        return drawn
    ticks = [(floor(at + 0.5), label) for at, label in spread(columns - 1, frame.x_labels)]
    return [*drawn, *x_axis(ticks, left, columns, glyphs)]
