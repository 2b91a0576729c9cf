"""The steps of the processes that the probe reports on, for all forms that people read."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.steps import Rank
from gpumon.model.text import clean
from gpumon.model.units import step_text
from gpumon.report.model import Report
from gpumon.report.render.layout import NOT_KNOWN, Row, columns, percent, wrapped
from gpumon.report.render.used import Table

MOST = 8
_WIDTHS = (10, 8, 8, 9, 10)


def rank_table(ranks: Sequence[Rank]) -> Table:
    """A row for each, the last cell where it stands most."""
    return Table(
        ("steps by", "steps", "per s", "mean", "p95", "data wait", "stands most in"),
        [_cells(each) for each in ranks],
    )


def _cells(rank: Rank) -> tuple[str, ...]:
    return (
        f"{rank.name} {clean(', '.join(rank.devices), 40)}".strip(),
        NOT_KNOWN if rank.steps is None else f"{rank.steps:,.0f}",
        NOT_KNOWN if rank.steps_per_s is None else f"{rank.steps_per_s:.3g}",
        _time(rank.step_mean_s),
        _time(rank.step_p95_s),
        NOT_KNOWN if rank.data_wait_percent is None else f"{percent(rank.data_wait_percent)} %",
        _place(rank),
    )


def _time(seconds: float | None) -> str:
    return NOT_KNOWN if seconds is None else step_text(1e6 * seconds)


def _place(rank: Rank) -> str:
    """`train.py:88 → next 72 %, workers data.py:31 → open 90 %`."""
    words = [
        f"{name}{clean(places[0][0].shown, 80)} {places[0][1]:.0f} %"
        for name, places in (("", rank.places), ("workers ", rank.worker_places))
        if places
    ]
    return ", ".join(words) or NOT_KNOWN


def listed(ranks: Sequence[Rank], most: int = MOST) -> tuple[Sequence[Rank], str]:
    """Those that a page has room for, and a word about the others."""
    more = len(ranks) - most
    return ranks[:most], f"and {more} more; --format json lists all" if more > 0 else ""


def step_rows(report: Report, width: int, most: int = MOST) -> list[Row]:
    """A line for each, and one below it with where it stands."""
    ranks, more = listed(report.ranks, most)
    if not ranks:
        return []
    table = rank_table(ranks)
    first = max(8, *(len(row[0]) for row in table.rows))
    rows: list[Row] = [[(columns(table.head, first, _WIDTHS, "  "), "title")]]
    for cells in table.rows:
        rows.append([(columns(cells, first, _WIDTHS, "  "), "")])
        rows += wrapped("", f"in {cells[-1]}", width, "dim", "dim")
    return rows + ([[(more, "dim")]] if more else [])
