"""Rows of text runs, and the widget that draws them.

Views are functions from what the store says to rows; a row is a list of (text, role) runs. So a
view is tested as text, and one widget knows how rows become strips and which cells changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.tui.theme import style_of

Run = tuple[str, str]  # text, role
Row = list[Run]


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly `width` cells, cut with `…` where it is longer."""
    if width <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, 1)
    return " " * (width - length) + text if right else text + " " * (width - length)


def row_width(row: Row) -> int:
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in row)


def fit_row(row: Row, width: int) -> Row:
    """The row in exactly `width` cells: the run that crosses the edge is cut, blanks are added."""
    fitted: Row = []
    left = width
    for text, role in row:
        length = len(text) if text.isascii() else cell_len(text)
        if length > left:
            if left > 0:
                fitted.append((fit(text, left), role))
            return fitted
        if text:
            fitted.append((text, role))
        left -= length
    if left > 0:
        fitted.append((" " * left, ""))
    return fitted


def spread(left: Row, right: Row, width: int) -> Row:
    """`left` at the left edge and `right` at the right edge; `left` gives way."""
    room = max(0, width - row_width(right) - 1)
    return fit_row([*fit_row(left, room), (" ", ""), *right], width)


def plain(rows: Sequence[Row]) -> str:
    """The rows as text, for tests and export."""
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)


_NEAR = 6  # cells: two changes closer than this go out as one; moving the cursor costs as much


def changed_spans(before: Row, after: Row) -> list[tuple[int, int]]:
    """(first, past-last) cells in which two rows of equal width differ."""
    if before == after:
        return []
    old, new = _cells(before), _cells(after)
    if old is None or new is None or len(old) != len(new):
        return [(0, row_width(after))]
    spans: list[tuple[int, int]] = []
    for x, (one, other) in enumerate(zip(old, new)):
        if one == other:
            continue
        if spans and x - spans[-1][1] < _NEAR:
            spans[-1] = (spans[-1][0], x + 1)
        else:
            spans.append((x, x + 1))
    return spans


def _cells(row: Row) -> list[tuple[str, str]] | None:
    """One (character, role) per cell; None where a character takes two cells or none."""
    cells: list[tuple[str, str]] = []
    for text, role in row:
        if not text.isascii() and cell_len(text) != len(text):
            return None
        cells += [(char, role) for char in text]
    return cells


#: a widget under a dialog is not drawn, and its regions wait: beyond so many, all of it does
_UNDRAWN_REGIONS = 1000


class Lines(Widget):
    """A widget whose content is rows; only cells that changed are drawn again."""

    DEFAULT_CSS = "Lines { width: 1fr; height: 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._strips: dict[int, Strip] = {}
        self.palette = "dark"

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the content; rows are cut or padded to the widget's width."""
        width = self.size.width
        if width <= 0:
            return
        fitted = [fit_row(row, width) for row in rows]
        before, self._rows = self._rows, fitted
        if len(before) != len(fitted):
            self._strips.clear()
            self.refresh()
            return
        changed = []
        for y, (old, new) in enumerate(zip(before, fitted)):
            if old != new:
                self._strips.pop(y, None)
                changed += [Region(a, y, b - a, 1) for a, b in changed_spans(old, new)]
        if len(self._repaint_regions) > _UNDRAWN_REGIONS:
            self.refresh()
        elif changed:
            self.refresh(*changed)
        # Textual empties this only for widgets that render all lines at once: every region that
        # ever changed would stay
        self._dirty_regions.clear()

    def restyle(self, palette: str) -> None:
        """Draw everything again in another palette."""
        self.palette = palette
        self._strips.clear()
        self.refresh()

    def on_resize(self) -> None:
        self._rows = []
        self._strips.clear()

    @property
    def text(self) -> str:
        return plain(self._rows)

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is not None:
            return strip
        base = self.rich_style
        width = self.size.width
        if y >= len(self._rows):
            return Strip.blank(width, base)
        palette = self.palette
        strip = Strip(
            [Segment(text, base + style_of(palette, role)) for text, role in self._rows[y]]
        )
        self._strips[y] = strip = strip.adjust_cell_length(width, base)
        return strip
