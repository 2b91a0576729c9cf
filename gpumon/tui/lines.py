"""Rows of text runs, and the widget that draws them.

Views are functions from what the store says to rows; a row is a list of (text, role) runs. So a
view is tested as text, and one widget knows how rows look.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, zip_longest

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.tui.picture import width_of
from gpumon.tui.theme import style_of

Run = tuple[str, str]  # text, role
Row = list[Run]


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly `width` cells, cut with `…` where it is longer."""
    if width <= 0:
        return ""
    length = width_of(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, 1)
    return " " * (width - length) + text if right else text + " " * (width - length)


def add_run(row: Row, text: str, role: str) -> None:
    """One run more, or more of the last one where that has the same role."""
    if row and row[-1][1] == role:
        row[-1] = (row[-1][0] + text, role)
    else:
        row.append((text, role))


def row_width(row: Row) -> int:
    return sum(width_of(text) for text, _ in row)


def fit_row(row: Row, width: int) -> Row:
    """The row in exactly `width` cells: the run that crosses the edge is cut, blanks are added."""
    fitted: Row = []
    left = width
    for text, role in row:
        length = width_of(text)
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
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)


class Lines(Widget):
    """A widget whose content is rows.

    `show` says which of them changed, for `ViewApp.paint`; Textual draws them all where more than
    cells is new.
    """

    DEFAULT_CSS = "Lines { width: 1fr; height: 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._styles: dict[str, Style] = {}  # by role, on this widget
        self.palette = "dark"

    def show(self, rows: Sequence[Row]) -> list[int]:
        """Replace the content; rows are cut or padded to the widget's width.

        Returns the numbers of those on the screen that changed, which are not drawn yet.
        """
        before, self._rows = self._rows, list(rows)
        both = islice(zip_longest(before, self._rows), self.size.height)
        return [y for y, (old, new) in enumerate(both) if old != new]

    def restyle(self, palette: str) -> None:
        self.palette = palette
        self._styles.clear()
        self.refresh()

    @property
    def text(self) -> str:
        return plain([fit_row(row, self.size.width) for row in self._rows])

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()

    def runs(self, y: int) -> list[tuple[str, Style]]:
        """A row as the terminal gets it."""
        row = fit_row(self._rows[y] if y < len(self._rows) else [], self.size.width)
        return [(text, self._style(role)) for text, role in row]

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            strip = Strip([Segment(" ", self.rich_style + style_of(self.palette, role))])
            for each in self.get_line_filters():
                strip = strip.apply_filter(each, self.background_colors[1])
            style = self._styles[role] = next(iter(strip)).style or Style.null()
        return style

    def render_lines(self, crop: Region) -> list[Strip]:
        """Without Textual's steps for borders, padding and links: there are none here."""
        strips = [Strip(map(Segment, *zip(*self.runs(y)))) for y in crop.line_range]
        left, right = crop.column_span
        if (left, right) == (0, self.size.width):
            return strips
        return [strip.crop(left, right) for strip in strips]
