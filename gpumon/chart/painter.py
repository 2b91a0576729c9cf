"""Lines and dots, one column of cells at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Optional

from gpumon.chart.canvas import Glyphs

#: joined from value to value; single dots, as for extremes
Kind = Literal["line", "dots"]
#: two dot columns to a cell, whatever the glyphs have: so many buckets a plot shows
BUCKETS = 2
Levels = Sequence[Optional[int]]  # a dot row from the top for each bucket; None: a gap


class Column(NamedTuple):
    """The cells of one column from the top, and whose each is."""

    cells: list[str]
    owners: list[int | None]


def paint(layers: Sequence[tuple[Kind, Levels]], at: int, rows: int, glyphs: Glyphs) -> Column:
    """Column `at` of cells. Lines share a cell; it has the colour of the last of them."""
    patterns = [0] * rows
    owners: list[int | None] = [None] * rows
    for number, (kind, levels) in enumerate(layers):
        for bucket in range(at * BUCKETS, (at + 1) * BUCKETS):
            x = bucket % BUCKETS * glyphs.dot_columns // BUCKETS
            for row, pattern in stroke(kind, levels, bucket, x, rows, glyphs):
                patterns[row] |= pattern
                owners[row] = number
    return Column([glyphs.patterns[dots] for dots in patterns], owners)


def stroke(
    kind: Kind, levels: Levels, bucket: int, x: int, rows: int, glyphs: Glyphs
) -> Iterator[tuple[int, int]]:
    """Rows and patterns of one bucket; the strokes of a line touch each other."""
    level = levels[bucket]
    if level is None:
        return
    top = bottom = level
    if kind == "line" and bucket and (before := levels[bucket - 1]) is not None:
        top, bottom = min(level, before + 1), max(level, before - 1)
    last = glyphs.dot_rows - 1
    for row in range(top // glyphs.dot_rows, bottom // glyphs.dot_rows + 1):
        above = row * glyphs.dot_rows
        yield row, glyphs.column(x, max(top - above, 0), min(bottom - above, last))
