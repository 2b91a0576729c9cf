"""Charts, sparks and bars as rows of cells: free of any screen library.

plotext draws the lines; this is its only import, and it comes late: at the first chart, or
earlier in the background through `load`. Its kernel ends the whole process, without an exception,
on a NaN or on a point far outside the window. So it only ever gets finite values, clamped to the
limits and counted in buckets, one run between two gaps at a time. Where it cannot be imported, and
for ASCII, `_own_rows` draws the same chart in plain Python.

A canvas says which line each cell belongs to, not which colour it has: a change of theme needs no
new chart, and monochrome is the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import floor, isfinite
from threading import Lock
from typing import Any, NamedTuple, Optional

MIN_WIDTH, MIN_HEIGHT = 12, 3

#: cells of one row that look alike: their text, and the number of the line (None: axis, blank)
Run = tuple[str, Optional[int]]
Values = Sequence[Optional[float]]


class Line(NamedTuple):
    """One line: a value per bucket, None for a gap. Not `joined`: dots, as for extremes."""

    values: Values
    joined: bool = True


class Canvas(NamedTuple):
    """A drawn chart: `height` rows of runs, each row exactly `width` cells."""

    width: int
    height: int
    rows: tuple[tuple[Run, ...], ...]

    def text(self) -> str:
        """Without colour, for reports, tests and monochrome terminals."""
        return "\n".join("".join(text for text, _ in row) for row in self.rows)


class _Glyphs(NamedTuple):
    """A set of characters: how many dots a cell has, the character of each pattern of dots.

    Bit `column * dot_rows + row` of a pattern stands for a dot, from the top left.
    """

    dot_columns: int
    dot_rows: int
    inset: int  # dot rows between a limit and the edge: half a cell, as plotext draws it
    patterns: str
    axis: str  # vertical, tick on it, corner, tick below, horizontal
    marker: str  # plotext's name; "": it has none


def _braille() -> str:
    bits = (0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80)
    codes = (sum(bit for n, bit in enumerate(bits) if dots >> n & 1) for dots in range(256))
    return " " + "".join(map(chr, (0x2800 + code for code in codes)))[1:]


_GLYPHS = {
    "braille": _Glyphs(2, 4, 2, _braille(), "│┤└┬─", "braille"),
    "block": _Glyphs(2, 2, 1, " ▘▖▌▝▀▞▛▗▚▄▙▐▜▟█", "│┤└┬─", "hd"),
    "ascii": _Glyphs(1, 2, 0, " '.:", "|+++-", ""),
}


def dot_columns(width: int, y_labels: Sequence[str]) -> int:
    """How many buckets a chart of `width` cells shows: one for each column of dots.

    Two columns a cell beside the widest label and the axis, less one at either end.
    """
    return max(2 * (width - max(map(len, y_labels), default=0) - 1) - 2, 2)


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
    `x_labels` there is no axis below. `glyphs`: `braille`, `block` (2 × 2) or `ascii`. Later lines
    lie over earlier ones.
    """
    sound = isfinite(lo) and isfinite(hi) and hi > lo and isfinite(hi - lo)
    widest = max(map(len, y_labels), default=0)
    if width < max(MIN_WIDTH, widest + 6) or height < MIN_HEIGHT or not sound:
        return None
    n = dot_columns(width, y_labels)
    frame = _Frame(width, height, n, _printable(y_labels), _printable(x_labels), _GLYPHS[glyphs])
    fitted = [Line(_fitted(line.values, n, lo, hi), line.joined) for line in lines]
    plotext = _plotext() if frame.glyphs.marker else None
    rows = _own_rows(frame, fitted) if plotext is None else _plotext_rows(plotext, frame, fitted)
    return Canvas(width, height, tuple(rows))


class _Frame(NamedTuple):
    """What lies around the lines: sizes in cells, `n` buckets, labels."""

    width: int
    height: int
    n: int
    y_labels: tuple[str, ...]
    x_labels: tuple[str, ...]
    glyphs: _Glyphs


def _printable(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple("".join(c if c.isprintable() else "?" for c in label) for label in labels)


def _fitted(values: Values, n: int, lo: float, hi: float) -> list[float | None]:
    """`n` values as shares 0 … 1 of the range; None for whatever is no finite number."""
    scale = hi - lo
    shown = [
        min(max((value - lo) / scale, 0.0), 1.0) if value is not None and isfinite(value) else None
        for value in values[-n:]
    ]
    return [None] * (n - len(shown)) + shown


def _stretches(values: Values) -> Iterator[tuple[list[int], list[float]]]:
    """Buckets and values from one gap to the next; a gap is never crossed by a line."""
    places: list[int] = []
    shares: list[float] = []
    for place, share in enumerate(values):
        if share is not None:
            places.append(place)
            shares.append(share)
        elif places:
            yield places, shares
            places, shares = [], []
    if places:
        yield places, shares


# -- with plotext ----------------------------------------------------------------------------------

_plotext_lock = Lock()  # its figure is one global; and a chart must not wait for the import
_plotext_module: Any = None
_plotext_tried = False
_plotext_frame: _Frame | None = None  # what the figure is set to

#: plotext resets and then sets absolute colours before every run; ours tell the number of the line
_TOKEN = re.compile(r"\x1b\[(?:38;2;0;0;(\d+)|[0-9;]*)m|([^\x1b]+)")


def load() -> bool:
    """Import plotext (about 0.15 s), in the background if wished; whether it works."""
    global _plotext_module, _plotext_tried
    with _plotext_lock:
        if not _plotext_tried:
            try:
                import plotext

                module: Any = plotext
                module.terminal.limit(False, False)  # else sizes are cut to the terminal
                module.figure.clear()
                module.marker("braille", (0, 0, 1))
                _plotext_module = module
            except Exception:  # a kernel that does not load, another major version: draw ourselves
                _plotext_module = None
            _plotext_tried = True
        return _plotext_module is not None


def loaded() -> bool:
    """Whether plotext was imported, or found to be unusable."""
    return _plotext_tried


def _plotext() -> Any:
    """plotext, or None: it cannot be used, or another thread is just importing it."""
    if not _plotext_tried and not _plotext_lock.locked():
        load()
    return _plotext_module


def _plotext_rows(plotext: Any, frame: _Frame, lines: Sequence[Line]) -> list[tuple[Run, ...]]:
    figure = plotext.figure
    with _plotext_lock:
        _set_frame(figure, frame)
        for number, line in enumerate(lines):
            marker = plotext.marker(frame.glyphs.marker, (0, 0, number + 1))
            for places, shares in _stretches(line.values):
                points = figure.signal(places, shares, marker=marker)
                figure.draw(points.lines() if line.joined else points)
        text = figure.build().string()
    return [_runs(row) for row in text.rstrip("\n").split("\n")]


def _set_frame(figure: Any, frame: _Frame) -> None:
    """Empty the figure; of plots that are alike the frame is set once, a third of the cost."""
    global _plotext_frame
    if frame == _plotext_frame:
        figure.clear.data()
        return
    _plotext_frame = None  # while it is being set
    figure.clear()
    figure.plot_size(frame.width, frame.height)
    figure.theme("colorless")  # else a blue line on a white canvas
    for axis, last, labels in (("x", frame.n - 1, frame.x_labels), ("y", 1, frame.y_labels)):
        ticks = [place for place in _spread(last, labels) if place[1]]  # it fails on blanks
        figure.ruler(axis).lim(0, last)
        figure.ruler(axis).ticks([at for at, _ in ticks], [label for _, label in ticks])
    figure.axes(False, axis=0, side=1)  # no line above, none to the right
    figure.axes(False, axis=1, side=1)
    if not frame.x_labels:
        figure.axes(False, axis=0, side=0)
    _plotext_frame = frame


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


def _spread(last: float, labels: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Places from 0 to `last`, evenly, one for each label."""
    for n, label in enumerate(labels):
        yield last * n / max(len(labels) - 1, 1), label


# -- in plain Python -------------------------------------------------------------------------------


def _own_rows(frame: _Frame, lines: Sequence[Line]) -> list[tuple[Run, ...]]:
    glyphs = frame.glyphs
    left = max(map(len, frame.y_labels), default=0) + 1
    columns = frame.width - left
    rows = frame.height - (2 if frame.x_labels else 0)
    patterns = [[0] * columns for _ in range(rows)]
    owners: list[list[int | None]] = [[None] * columns for _ in range(rows)]
    last_dot = rows * glyphs.dot_rows - 1
    for number, line in enumerate(lines):
        for column, top, bottom in _dots(frame, line, last_dot):
            for dot in range(top, bottom + 1):
                row, y = divmod(dot, glyphs.dot_rows)
                cell, x = divmod(column * glyphs.dot_columns // 2, glyphs.dot_columns)
                patterns[row][cell] |= 1 << x * glyphs.dot_rows + y
                owners[row][cell] = number
    labels = _y_axis(frame, rows, last_dot)
    drawn = [
        ((labels[row], None), *_joined(patterns[row], owners[row], glyphs.patterns))
        for row in range(rows)
    ]
    return [*drawn, *_x_axis(frame, left, columns)] if frame.x_labels else drawn


def _dots(frame: _Frame, line: Line, last_dot: int) -> Iterator[tuple[int, int, int]]:
    """Dot column, uppermost and lowest dot of each stroke; strokes of a line touch each other."""
    for places, shares in _stretches(line.values):
        before = None
        for place, share in zip(places, shares):
            top = bottom = at = _dot_row(share, last_dot, frame.glyphs.inset)
            if line.joined and before is not None:
                top, bottom = min(at, before + 1), max(at, before - 1)
            yield place + 1, top, bottom
            before = at


def _dot_row(share: float, last_dot: int, inset: int) -> int:
    at = inset + floor((1 - share) * (last_dot + 1 - 2 * inset))
    return min(at, max(last_dot - inset, inset))


def _joined(
    patterns: Sequence[int], owners: Sequence[int | None], characters: str
) -> Iterator[Run]:
    start = 0
    for end in range(1, len(owners) + 1):
        if end == len(owners) or owners[end] != owners[start]:
            yield "".join(characters[dots] for dots in patterns[start:end]), owners[start]
            start = end


def _y_axis(frame: _Frame, rows: int, last_dot: int) -> list[str]:
    """Labels and line left of each row; of labels for the same row the lower one is shown."""
    glyphs = frame.glyphs
    width = max(map(len, frame.y_labels), default=0)
    texts = [" " * width + glyphs.axis[0]] * rows
    for share, label in reversed(list(_spread(1, frame.y_labels))):
        row = _dot_row(share, last_dot, glyphs.inset) // glyphs.dot_rows
        if label:
            texts[row] = label.rjust(width) + glyphs.axis[1]
    return texts


def _x_axis(frame: _Frame, left: int, columns: int) -> Iterator[tuple[Run, ...]]:
    corner, tick, line = frame.glyphs.axis[2], frame.glyphs.axis[3], frame.glyphs.axis[4]
    ruler = [line] * columns
    texts = [" "] * frame.width
    for at, label in _spread(columns - 1, frame.x_labels):
        column = floor(at + 0.5)
        ruler[column] = tick
        start = min(max(left + column - len(label) // 2, left), frame.width - len(label))
        if start < left or any(
            text != " " for text in texts[max(start - 1, 0) : start + len(label)]
        ):
            continue  # no room for it
        texts[start : start + len(label)] = label
    yield ((" " * (left - 1) + corner + "".join(ruler), None),)
    yield (("".join(texts), None),)


# -- one line --------------------------------------------------------------------------------------

_LEVELS = {"braille": "▁▂▃▄▅▆▇█", "block": "▁▂▃▄▅▆▇█", "ascii": "_.:-=+*#%@"}


def spark(
    values: Values, width: int, lo: float = 0.0, hi: float = 100.0, glyphs: str = "braille"
) -> str:
    """The last `width` values in one row, filled up at the left; a gap is `·`, in ASCII a blank."""
    levels = _LEVELS[glyphs]
    gap = " " if glyphs == "ascii" else "·"
    if not (hi > lo and isfinite(hi - lo)):
        return gap * width
    top = len(levels) - 1
    shares = _fitted(values, width, lo, hi) if width > 0 else []
    return "".join(gap if share is None else levels[floor(share * top + 0.5)] for share in shares)


def bar(
    share: float | None, extra: float, width: int, glyphs: str = "braille"
) -> tuple[str, str, str]:
    """A thin horizontal bar of `width` cells in three parts: used, `extra`, and the rest.

    Shares are 0 … 1 of the whole; `extra` lies behind the use and is drawn in another pattern: page
    cache, a reservation. Anything above 0 shows, and nothing below 1 looks full. Of an unknown
    share (None) there is only blank.
    """
    if width < 1 or share is None or not isfinite(share) or not isfinite(extra):
        return "", "", " " * max(width, 0)
    full, pattern, rest = ("#", "%", "-") if glyphs == "ascii" else ("━", "╍", "─")
    used = _cells_of(share, width)
    behind = min(_cells_of(extra, width), width - used)
    if 0 < max(share, 0) + max(extra, 0) < 1 and used + behind == width > 1:
        used, behind = (used, behind - 1) if behind else (used - 1, behind)
    return full * used, pattern * behind, rest * (width - used - behind)


def _cells_of(share: float, width: int) -> int:
    cells = floor(min(max(share, 0.0), 1.0) * width + 0.5)
    return max(cells, 1) if share > 0 else cells
