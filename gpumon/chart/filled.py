"""The columns of a moving plot: filled areas, lines over them, dots; two colours to a cell.

An area is made of blocks and not of dots: with the cell's second colour it lies on another one, and
a line lies on it, without a gap between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpumon.chart.canvas import Glyphs, Values, dot_row
from gpumon.chart.painter import BUCKETS, stroke

#: filled from the bottom; joined from value to value; single dots, as for extremes; strokes across
#: up to a value; not drawn, but areas get another colour where its value is not 0
Kind = Literal["area", "line", "dots", "hatch", "tint"]
#: how many shades an area has, from the bottom to the top
SHADES = 10
NOT_YET = "track"  # the look of what was not measured yet
_EIGHTHS = 8


class Drawn(NamedTuple):
    """How one course of values is drawn; `name`: of its colour."""

    kind: Kind
    name: str


class Column(NamedTuple):
    """The cells of one column from the top, and the look of each.

    A look is a name, `NAME.SHADE` of an area, or two of them: `mem/busy.2`, mem on busy.
    """

    cells: list[str]
    looks: list[str]


def _block(left: int, right: int) -> str:
    """One cell of an area, filled to so many eighths in either half."""
    if left == right or (abs(left - right) < _EIGHTHS // 2 and min(left, right) > 0):
        return " ▁▂▃▄▅▆▇█"[(left + right) // 2]
    return " ▗▐▖▄▟▌▙█"[(left + 2) // 4 * 3 + (right + 2) // 4]


_BLOCKS = [[_block(left, right) for right in range(9)] for left in range(9)]
#: a level line, by its row of dots in a cell
_LEVEL = {4: "▔━━▁", 2: "--"}


def blank(rows: int, glyphs: Glyphs) -> Column:
    """A column of which nothing is known yet, before the first sample or after the newest."""
    dot = "." if glyphs.dot_columns == 1 else "·"
    return Column([" "] * (rows - 1) + [dot], [""] * (rows - 1) + [NOT_YET])


def fill(layers: Sequence[tuple[Drawn, Values]], at: int, rows: int, glyphs: Glyphs) -> Column:
    """Column `at` of cells; values are parts of the range. Areas come first, the widest first."""
    column = Column([" "] * rows, [""] * rows)
    buckets = slice(at * BUCKETS, (at + 1) * BUCKETS)
    tints = [
        drawn.name for drawn, values in layers if drawn.kind == "tint" and any(values[buckets])
    ]
    areas = []
    for drawn, values in layers:
        if drawn.kind == "area":
            heights = _heights(values[buckets], rows)
            if heights:  # else it is not known here
                areas.append(("-".join([drawn.name, *tints]), heights))
    if any(any(heights) for _, heights in areas):
        _areas(column, areas, rows, glyphs)
    for drawn, values in layers:
        if drawn.kind == "hatch":
            _hatch(column, drawn.name, values[buckets], rows, glyphs)
        elif drawn.kind == "line":
            _line(column, drawn.name, values, at, rows, glyphs)
        elif drawn.kind == "dots":
            for row, pattern in _strokes("dots", values, at, rows, glyphs).items():
                if column.cells[row] == " ":
                    column.cells[row], column.looks[row] = glyphs.patterns[pattern], drawn.name
    return column


def _heights(values: Values, rows: int) -> list[int]:
    """In eighths of a cell. 0 is a thin line, as nothing looks like no value; where one of two is
    not known, the cell is the other's.
    """
    known = [max(1, round(share * rows * _EIGHTHS)) for share in values if share is not None]
    return known if len(known) == BUCKETS else known * BUCKETS


def _areas(column: Column, areas: list[tuple[str, list[int]]], rows: int, glyphs: Glyphs) -> None:
    for up in range(rows):
        base = up * _EIGHTHS
        found = [
            (name, left, right)
            for name, heights in areas
            for left, right in [[min(max(each - base, 0), _EIGHTHS) for each in heights]]
            if left or right
        ]
        if not found:
            return
        shade = up * SHADES // rows
        name, left, right = found[-1]
        look = f"{name}.{shade}"
        if len(found) > 1 and left + right < 2 * _EIGHTHS:
            below, wide_left, wide_right = found[-2]
            if wide_left + wide_right >= 12:  # so nearly full that it is the ground
                look += f"/{below}.{shade}"
            else:  # three colours do not fit: the outer shape, in the colour of most of it
                if 2 * (left + right) < wide_left + wide_right:
                    look = f"{below}.{shade}"
                left, right = wide_left, wide_right
        row = rows - 1 - up
        column.looks[row] = look
        column.cells[row] = _cell(left, right, glyphs, hollow=len(areas) > 1 and len(found) == 1)


def _cell(left: int, right: int, glyphs: Glyphs, *, hollow: bool) -> str:
    if glyphs.dot_columns > 1:
        return _BLOCKS[left][right]
    return " " if left + right < 2 else "." if left + right < _EIGHTHS else ":" if hollow else "#"


def _hatch(column: Column, name: str, values: Values, rows: int, glyphs: Glyphs) -> None:
    """Where no area is, up to the lower of the values."""
    known = [share for share in values if share is not None]
    for up in range(round(min(known) * rows) if known else 0):
        row = rows - 1 - up
        if column.cells[row] == " ":
            column.cells[row], column.looks[row] = glyphs.hatch, name


def _line(column: Column, name: str, values: Values, at: int, rows: int, glyphs: Glyphs) -> None:
    """Level as a stroke, else as dots; on the area that fills most of the cell."""
    for row, pattern in _strokes("line", values, at, rows, glyphs).items():
        char = glyphs.patterns[pattern]
        for dot in range(glyphs.dot_rows):
            level = sum(glyphs.column(x, dot, dot) for x in range(glyphs.dot_columns))
            if pattern | level == level:
                char = _LEVEL[glyphs.dot_rows][dot]
        over, _, under = column.looks[row].partition("/")
        ground = over if column.cells[row] in "▄▅▆▇█▙▟" else under
        is_on_area = ground and glyphs.dot_columns > 1
        column.cells[row], column.looks[row] = char, f"{name}/{ground}" if is_on_area else name


def _strokes(
    kind: Literal["line", "dots"], values: Values, at: int, rows: int, glyphs: Glyphs
) -> dict[int, int]:
    """Rows and patterns of dots."""
    last_dot = rows * glyphs.dot_rows - 1
    first = max(at * BUCKETS - 1, 0)
    levels = [
        None if share is None else dot_row(share, last_dot, 0)
        for share in values[first : (at + 1) * BUCKETS]
    ]
    found: dict[int, int] = {}
    for bucket in range(at * BUCKETS, (at + 1) * BUCKETS):
        x = bucket % BUCKETS * glyphs.dot_columns // BUCKETS
        for row, pattern in stroke(kind, levels, bucket - first, x, rows, glyphs):
            found[row] = found.get(row, 0) | pattern
    return found
