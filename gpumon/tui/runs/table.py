"""The rows of the table of runs, and what there is to say of the selected one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.report.render.runs import cells, gpus_text, short_path
from gpumon.tui.columns import Column
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.lists import Order, list_table
from gpumon.tui.parts.view import View

if TYPE_CHECKING:
    from gpumon.recording.runs import Run

#: in the order of gpumon.report.render.runs.HEAD
COLUMNS = (
    Column("ID", most=40),
    Column("what", 1, most=60, least=12),
    Column("where", 3, most=30, least=8),
    Column("start"),
    Column("length", 2, right=True),
    Column("size", 4, right=True),
    Column("state", 5),
)
SORTS = ("start", "length", "size", "what")
_STATE = len(COLUMNS) - 1
_STATES = {"recording": "good", "torn": "attention"}


def ordered(runs: Sequence[Run], order: Order) -> list[Run]:
    """Those that hold all words of the filter: the newest, longest or largest first, or by name."""
    words = order.filter_text.lower().split()
    found = [run for run in runs if all(word in _text(run) for word in words)]
    if order.sort == "what":
        return sorted(found, key=lambda run: cells(run)[1].lower(), reverse=order.is_reversed)
    return sorted(found, key=lambda run: _size(run, order.sort), reverse=not order.is_reversed)


def _text(run: Run) -> str:
    return " ".join(cells(run)).lower()


def _size(run: Run, sort: str) -> float:
    return {"length": run.end - run.start, "size": run.size_bytes}.get(sort, run.start)


def table(
    runs: Sequence[Run], order: Order, marked: Collection[str], place: tuple[int, int],
    size: tuple[int, int], glyphs: str,
) -> View:  # fmt: skip
    """As many rows as fit, the titles first. `place`: the first run shown, and the selected one."""

    def role(at: int, column: int, here: bool) -> str:
        if column == _STATE:
            return _STATES.get(runs[at].state, "dim")
        return "title" if here else ""

    return list_table(
        COLUMNS, [cells(run) for run in runs], order.sort, SORTS, place, size, size[0] - 4, glyphs,
        role, 3, lambda at: "* " if runs[at].id in marked else "  ",
    )  # fmt: skip


def details(run: Run, width: int) -> list[Row]:
    """What the row has no room for, in three lines."""
    files = f" and {len(run.paths) - 1} more" if len(run.paths) > 1 else ""
    nodes = ", ".join(clean(node, 60) for node in run.nodes)
    job = f"job {clean(run.job, 40)} {clean(run.name, 60)}".rstrip() if run.job else "no job"
    about: Row = [(f" {job}  ", "title"), (gpus_text(run), ""), (f"  {nodes}", "dim")]
    where: Row = [(f"   {short_path(clean(run.paths[0], 400))}{files}", "dim")]
    lacks: Row = [(f"   {clean(why, 200)}", "attention") for why in run.unread[:1]]
    return [fit_row(row, width) for row in (about, where, lacks)]
