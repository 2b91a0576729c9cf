"""One line: sparks and bars."""

from __future__ import annotations

from math import floor, isfinite
from statistics import fmean

from gpumon.chart.canvas import Values, shares

_LEVELS = {"braille": "▁▂▃▄▅▆▇█", "ascii": "_.:-=+*#%@"}


def spark(
    values: Values, width: int, lo: float = 0.0, hi: float = 100.0, glyphs: str = "braille"
) -> str:
    """The last `width` values in one row, filled up at the left; a gap is `·`, in ASCII a blank."""
    levels = _LEVELS[glyphs]
    gap = " " if glyphs == "ascii" else "·"
    if not (hi > lo and isfinite(hi - lo)):
        return gap * width
    top = len(levels) - 1
    shown = shares(values[-width:], lo, hi) if width > 0 else []
    shown[:0] = [None] * (width - len(shown))
    return "".join(gap if share is None else levels[floor(share * top + 0.5)] for share in shown)


def spark_of_all(values: Values, width: int, glyphs: str = "braille") -> str:
    """All values (percentages over equal times) in at most `width` cells, each the mean of what is
    known in its part.
    """
    count = min(width, len(values))
    parts = [
        values[n * len(values) // count : (n + 1) * len(values) // count] for n in range(count)
    ]
    known = [[value for value in part if value is not None] for part in parts]
    return spark([fmean(part) if part else None for part in known], count, glyphs=glyphs)


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
