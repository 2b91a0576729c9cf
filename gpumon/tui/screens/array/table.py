"""The rows of an array's tasks as a table: with little room the columns that matter most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from gpumon.chart.bars import spark
from gpumon.model.text import clean
from gpumon.model.units import age_text, of_bytes_text, plural
from gpumon.report.usage import Figures, Use
from gpumon.slurm.states import ENDED_STATES
from gpumon.tui.jobs import elapsed_s
from gpumon.tui.lines import Row, Run, fit, fit_row
from gpumon.tui.parts.phrasing import cursor, signs
from gpumon.tui.screens.array.rows import TaskRow, trend
from gpumon.tui.values import percent

_WORDS_CELLS = 16  # at least, for what is to be said of a task
_WIDE = 150


class _Context(NamedTuple):
    now: float
    glyphs: str
    width: int  # of the cell
    is_wide: bool  # of the screen: amounts instead of percentages


class _Column(NamedTuple):
    """`rank`: with little room, those with the highest are left out. `of`: who has it: all rows,
    single tasks, those that are measured, those of them with GPUs.
    """

    heading: str
    width: int
    rank: int
    of: Literal["all", "single", "measured", "gpus"]
    cell: Callable[[TaskRow, _Context], Run]
    right: bool = True

    def is_for(self, row: TaskRow) -> bool:
        """Whether the row has a cell; otherwise what there is to say of it takes the room."""
        if self.of == "all" or not row.is_single:
            return self.of == "all"
        return self.of == "single" or row.measured is not None


def table_rows(
    found: Sequence[TaskRow], first: int, last: int, selected: int, now: float, glyphs: str,
    width: int,
) -> list[Row]:  # fmt: skip
    """Headings, and the rows from `first` to before `last`."""
    columns = _columns(found, width)
    heading = "".join(fit(each.heading, each.width, right=each.right) + "  " for each in columns)
    rows: list[Row] = [[(f"  {heading}", "dim")]]
    for place in range(first, last):
        row = found[place]
        mark = cursor(glyphs) if place == selected else " "
        cells = [
            _cell(row, each, _Context(now, glyphs, each.width, width >= _WIDE))
            for each in columns
            if each.is_for(row)
        ]
        if place == selected:
            cells[0] = (cells[0][0], "title+selected")
        rows.append(fit_row([(mark, "key"), (" ", ""), *cells, *_words(row, glyphs)], width))
    return rows


def _columns(found: Sequence[TaskRow], width: int) -> list[_Column]:
    task = min(14, max([4, *(len(row.task) for row in found)]))
    node = min(16, max([4, *(len(row.job.node_list) for row in found)]))
    amount = width >= _WIDE
    has_gpus = any(row.job.gpus or (row.moment and row.moment.devices) for row in found)
    every = [
        _Column("task", task, 0, "all", _task, right=False),
        _Column("state", 9, 1, "all", _state, right=False),
        _Column("node", node, 9, "single", _node, right=False),
        _Column("elapsed", 10 if amount else 8, 3, "single", _elapsed),
        _Column("left", 11, 7, "single", _left),
        _Column("GPUs", 5, 8, "gpus", _gpus),
        _Column("", 24 if amount else 8, 6, "gpus", _trend, right=False),
        _Column("busy", 5, 2, "gpus", _busy),
        _Column("GPU memory" if amount else "GPU mem", 16 if amount else 7, 5, "gpus", _gpu_mem),
        _Column("cores", 9 if amount else 7, 4, "measured", _cores),
        _Column("memory" if amount else "mem", 15 if amount else 5, 4, "measured", _mem),
    ]
    room = width - 2 - _WORDS_CELLS
    kept = []
    every = [each for each in every if has_gpus or each.of != "gpus"]
    for each in sorted(every, key=lambda each: each.rank):
        room -= each.width + 2
        if room < 0:
            break
        kept.append(each)
    return [each for each in every if each in kept]


def _cell(row: TaskRow, column: _Column, context: _Context) -> Run:
    text, role = column.cell(row, context)
    return fit(text, column.width, right=column.right) + "  ", role


def _words(row: TaskRow, glyphs: str) -> Row:
    sign = f"{signs(glyphs)[row.level or 'note']} " if row.level else ""
    count = f"{plural(row.size, 'task')}  " if not row.is_single else ""
    return [(count, ""), (f"{sign}{row.remark}", row.level if row.level != "note" else "dim")]


def _task(row: TaskRow, _: _Context) -> Run:
    return clean(row.task, 80), "title"


def _state(row: TaskRow, _: _Context) -> Run:
    return row.state, state_role(row.state)


def state_role(state: str) -> str:
    roles = {"RUNNING": "good", "COMPLETED": "", "PENDING": "dim", "CANCELLED": "dim"}
    return roles.get(state, "bad" if state in ENDED_STATES else "attention")


def _node(row: TaskRow, _: _Context) -> Run:
    return clean(row.job.node_list, 80), "dim"


def _elapsed(row: TaskRow, context: _Context) -> Run:
    seconds = elapsed_s(row.job, context.now)
    return ("" if seconds is None else age_text(seconds)), ""


def left_s(row: TaskRow, now: float) -> float | None:
    """Until the time limit, of one that runs."""
    seconds, limit_s = elapsed_s(row.job, now), row.job.time_limit_s
    if seconds is None or limit_s is None or not row.job.is_running:
        return None
    return max(0.0, limit_s - seconds)


def _left(row: TaskRow, context: _Context) -> Run:
    seconds = left_s(row, context.now)
    if seconds is None:
        return "", ""
    return age_text(seconds), "bad" if seconds < 300 else "attention" if seconds < 1800 else "dim"


def _of(row: TaskRow) -> Figures:
    assert row.measured is not None
    return row.measured


def _known(use: Use, text: str, role: str = "") -> Run:
    return ("?", "unknown") if use.used is None else (text, role)


def _gpus(row: TaskRow, _: _Context) -> Run:
    gpus = _of(row).gpus
    return "/".join(
        "?" if each is None else f"{each:.0f}" for each in (gpus.peak, gpus.given)
    ), "dim"


def _trend(row: TaskRow, context: _Context) -> Run:
    assert row.moment is not None
    return spark(trend(row.moment, context.width), context.width, glyphs=context.glyphs), "busy"


def _busy(row: TaskRow, _: _Context) -> Run:
    busy = _of(row).busy
    return _known(busy, percent(busy.used or 0.0), "busy")


def _gpu_mem(row: TaskRow, context: _Context) -> Run:
    figures = _of(row)
    return _share(figures.gpu_mem, context, "" if figures.is_need else "*", "mem")


def _cores(row: TaskRow, _: _Context) -> Run:
    cores = _of(row).cores
    return _known(cores, f"{cores.used or 0.0:.1f}/{cores.given or '?'}")


def _mem(row: TaskRow, context: _Context) -> Run:
    return _share(_of(row).mem, context)


def _share(use: Use, context: _Context, star: str = "", role: str = "") -> Run:
    if use.share is None:
        return "?", "unknown"
    amount = of_bytes_text(use.used or 0.0, use.given or 0.0)
    return (amount if context.is_wide else percent(use.share * 100)) + star, role
