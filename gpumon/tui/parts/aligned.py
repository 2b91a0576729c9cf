"""Labels and values in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from gpumon.tui.lines import Row, Run, fit
from gpumon.tui.picture import width_of

_BETWEEN = "   "

Fact = tuple[str, Run]  # label, value


def aligned(facts: Sequence[Fact], width: int) -> list[Row]:
    """Labels and values in as many aligned columns as fit, about as long as each other."""
    for rows in range(1, len(facts) + 1):
        count = ceil(len(facts) / rows)
        columns = [facts[column::count] for column in range(count)]
        cells = [
            (max(width_of(label) for label, _ in column), max(width_of(v[0]) for _, v in column))
            for column in columns
        ]
        used = sum(label + 1 + value for label, value in cells) + len(_BETWEEN) * (count - 1) + 1
        if used <= width or count == 1:
            starts = range(0, len(facts), count)
            return [_aligned_row(facts[start : start + count], cells) for start in starts]
    return []


def _aligned_row(facts: Sequence[Fact], cells: Sequence[tuple[int, int]]) -> Row:
    row: Row = [(" ", "")]
    for (label, (text, role)), (label_cells, value_cells) in zip(facts, cells):
        row += [(fit(label, label_cells) + " ", "dim"), (fit(text, value_cells), role)]
        row.append((_BETWEEN, ""))
    return row[:-1]
