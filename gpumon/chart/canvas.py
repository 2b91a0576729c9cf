"""What every plot is made of: rows of cells, patterns of dots, axes with their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, isfinite
from typing import NamedTuple, Optional, TypeVar

MIN_WIDTH, MIN_HEIGHT = 12, 3

#: cells of one row that look alike: their text, and the number of the line (None: axis, blank)
Run = tuple[str, Optional[int]]
Values = Sequence[Optional[float]]
Look = TypeVar("Look")


class Canvas(NamedTuple):
    """A drawn plot: `height` rows of runs, each row exactly `width` cells."""

    width: int
    height: int
    rows: tuple[tuple[Run, ...], ...]

    def text(self) -> str:
        """Without colour, for reports, tests and monochrome terminals."""
        return "\n".join("".join(text for text, _ in row) for row in self.rows)


class Glyphs(NamedTuple):
    """A set of characters: how many dots a cell has, the character of each pattern of dots.

    Bit `column * dot_rows + row` of a pattern stands for a dot, from the top left.
    """

    dot_columns: int
    dot_rows: int
    inset: int  # dot rows between a limit and the edge: half a cell, as plotext draws it
    patterns: str
    axis: str  # vertical, tick on it, corner, tick below, horizontal
    hatch: str

    def column(self, x: int, top: int, bottom: int) -> int:
        """The pattern of the dots of one column from `top` to `bottom`, both within the cell."""
        return (1 << bottom + 1) - (1 << top) << x * self.dot_rows


def _braille() -> str:
    bits = (0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80)
    codes = (sum(bit for n, bit in enumerate(bits) if dots >> n & 1) for dots in range(256))
    return " " + "".join(map(chr, (0x2800 + code for code in codes)))[1:]


GLYPHS = {
    "braille": Glyphs(2, 4, 2, _braille(), "│┤└┬─", "╱"),
    "ascii": Glyphs(1, 2, 0, " '.:", "|+++-", "/"),
}


def printable(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple("".join(c if c.isprintable() else "?" for c in label) for label in labels)


def shares(values: Values, lo: float, hi: float) -> list[float | None]:
    """As parts 0 … 1 of the range, the edge for what lies outside; None for no finite number."""
    scale = hi - lo
    return [
        min(max((value - lo) / scale, 0.0), 1.0) if value is not None and isfinite(value) else None
        for value in values
    ]


def dot_row(share: float, last_dot: int, inset: int) -> int:
    """From the top: in which row of dots a share lies."""
    at = inset + floor((1 - share) * (last_dot + 1 - 2 * inset))
    return min(at, max(last_dot - inset, inset))


def spread(last: float, labels: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Places from 0 to `last`, evenly, one for each label."""
    for n, label in enumerate(labels):
        yield last * n / max(len(labels) - 1, 1), label


def joined(cells: Sequence[str], looks: Sequence[Look]) -> Iterator[tuple[str, Look]]:
    """A row's cells as runs that look alike."""
    start = 0
    for end in range(1, len(looks) + 1):
        if end == len(looks) or looks[end] != looks[start]:
            yield "".join(cells[start:end]), looks[start]
            start = end


def y_axis(labels: Sequence[str], rows: int, glyphs: Glyphs) -> list[str]:
    """Labels and line left of each row; of labels for the same row the lower one is shown."""
    width = max(map(len, labels), default=0)
    texts = [" " * width + glyphs.axis[0]] * rows
    last_dot = rows * glyphs.dot_rows - 1
    for share, label in reversed(list(spread(1, labels))):
        row = dot_row(share, last_dot, glyphs.inset) // glyphs.dot_rows
        if label:
            texts[row] = label.rjust(width) + glyphs.axis[1]
    return texts


def x_axis(
    ticks: Sequence[tuple[int, str]], left: int, columns: int, glyphs: Glyphs
) -> Iterator[tuple[Run, ...]]:
    """Two rows below a plot: the line with its ticks, (column, label) each, and the labels.

    The plot's first column is `left`.
    """
    corner, tick, line = glyphs.axis[2], glyphs.axis[3], glyphs.axis[4]
    ruler = [line] * columns
    for column, _ in ticks:
        ruler[column] = tick
    yield ((" " * (left - 1) + corner + "".join(ruler), None),)
    yield ((" " * left + tick_labels(ticks, columns), None),)


def tick_labels(ticks: Sequence[tuple[int, str]], columns: int) -> str:
    """The labels, each around its column; one without room is left out."""
    texts = [" "] * columns
    for column, label in ticks:
        start = max(min(column - len(label) // 2, columns - len(label)), 0)
        around = texts[max(start - 1, 0) : start + len(label) + 1]
        if len(label) <= columns and all(text == " " for text in around):
            texts[start : start + len(label)] = label
    return "".join(texts)
