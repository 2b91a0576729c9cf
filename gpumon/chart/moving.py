"""A plot that moves: its columns are kept, and only those that are new are painted.

It moves on by an eighth of its width at once, a short one by 20 s. Between two such moves nothing
stands elsewhere than before, so that only the newest cells go to the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from gpumon.chart.canvas import GLYPHS, Values, joined, shares
from gpumon.chart.filled import Drawn, blank, fill
from gpumon.chart.painter import BUCKETS

_MOVES, _MOVE_S = 8, 20.0  # so often the whole width; but no more often than that
#: s between two ticks of the axis: the longest of which at least two fit
_TICKS_S = (5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 14400, 21600, 43200, 86400, 172800)


class MovingPlot:
    """Layers of values over time; a bucket is `step_s` long and has its number since the epoch.

    `rows` and `columns` are those of the picture, without axes. A cell is two buckets wide.
    """

    def __init__(
        self,
        drawn: Sequence[Drawn],
        columns: int,
        rows: int,
        span_s: float,
        high: float,
        glyphs: str,
    ) -> None:
        self.buckets = columns * BUCKETS
        self.step_s = span_s / self.buckets
        jump = max(self.buckets / _MOVES, _MOVE_S / self.step_s) // BUCKETS * BUCKETS
        self._jump = int(min(max(jump, BUCKETS), self.buckets))
        self.known = 0  # buckets before this number will not change any more
        self.high = high
        self._drawn, self._rows = drawn, rows
        self._glyphs = GLYPHS[glyphs]
        self._newest = 0
        self._end = 0  # number of the bucket right of the plot
        self._shares: list[list[float | None]] = [[None] * self.buckets for _ in drawn]
        self._columns = [blank(rows, self._glyphs) for _ in range(columns)]

    @property
    def begin(self) -> int:
        """Number of the first bucket."""
        return self._end - self.buckets

    def move(self, newest: int) -> None:
        """Have bucket `newest` in the plot, near its right edge."""
        end = (newest // self._jump + 1) * self._jump
        by = end - self._end
        if newest < self._newest or by >= self.buckets:  # another time: nothing of it stays
            self.known, by = 0, self.buckets
        if by:
            self._shares = [[*kept[by:], *[None] * by] for kept in self._shares]
            new = (blank(self._rows, self._glyphs) for _ in range(by // BUCKETS))
            self._columns = [*self._columns[by // BUCKETS :], *new]
        self._newest, self._end = newest, end

    def put(self, first: int, layers: Sequence[Values]) -> None:
        """Set the buckets from number `first` on; those right of the given ones become gaps."""
        at = first - self.begin
        for kept, values in zip(self._shares, layers):
            new = shares(values, 0.0, self.high)
            kept[at:] = [*new, *[None] * (self.buckets - at - len(new))]
        drawn = list(zip(self._drawn, self._shares))
        newest = at + max(map(len, layers), default=0)
        for column in range(at // BUCKETS, min(newest // BUCKETS + 1, len(self._columns))):
            self._columns[column] = fill(drawn, column, self._rows, self._glyphs)

    def rows(self) -> list[list[tuple[str, str]]]:
        """The picture: runs of text and their looks, see `filled.Column`."""
        return [
            list(
                joined(
                    [each.cells[row] for each in self._columns],
                    [each.looks[row] for each in self._columns],
                )
            )
            for row in range(self._rows)
        ]

    def column_of(self, time: float) -> int:
        """Where a moment lies; it may be outside."""
        return (floor(time / self.step_s) - self.begin) // BUCKETS


def tick_s(span_s: float) -> int:
    """How far apart the ticks of a time axis are."""
    return max((each for each in _TICKS_S if each * 2.2 <= span_s), default=_TICKS_S[0])
