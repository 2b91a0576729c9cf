"""Tables that fit: columns as wide as their cells; on a narrow screen the important ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from gpumon.tui.lines import fit

GAP = "  "


class Column(NamedTuple):
    """How a column behaves; of those that do not fit the one with the highest rank goes first."""

    title: str
    rank: int = 0  # 0: always there
    right: bool = False
    most: int = 40  # cells; what is longer is cut
    least: int = 0  # cells to which it may shrink before another one goes; 0: it does not


class Placed(NamedTuple):
    """A column that is shown: its number among all, and its width in cells."""

    number: int
    width: int


def placed(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Placed]:
    """The columns that fit into `width` cells, in their order. Never wider than that."""
    wanted = [
        min(column.most, max([cell_len(column.title), *(cell_len(row[n]) for row in rows)]))
        for n, column in enumerate(columns)
    ]
    least = [
        min(each, column.least) if column.least else each for each, column in zip(wanted, columns)
    ]
    shown = list(range(len(columns)))
    while len(shown) > 1 and _sum(least, shown) > width:
        last = max(shown, key=lambda n: (columns[n].rank, n))
        shown.remove(last)
    widths = {n: least[n] for n in shown}
    spare = max(0, width - _sum(least, shown))
    for n in sorted(shown, key=lambda n: wanted[n] - least[n]):  # those that lack the least first
        more = min(wanted[n] - least[n], spare)
        widths[n] += more
        spare -= more
    return [Placed(n, max(1, min(widths[n], width))) for n in shown]


def _sum(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + len(GAP) * (len(shown) - 1)


def cells(columns: Sequence[Column], shown: Sequence[Placed], row: Sequence[str]) -> list[str]:
    """The cells of a row that are shown, each as wide as its column."""
    return [fit(row[each.number], each.width, right=columns[each.number].right) for each in shown]


def titles(columns: Sequence[Column], shown: Sequence[Placed]) -> list[str]:
    """The same of the heading."""
    return cells(columns, shown, [column.title for column in columns])
