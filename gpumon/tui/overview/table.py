"""The rows of the table of jobs, and what there is to say of the selected one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.report.jobs import JobLine
from gpumon.report.render.jobs import HEAD, cells
from gpumon.report.usage import Figures, Use, size_text
from gpumon.report.verdict import NOT_JUDGED
from gpumon.slurm.groups import JobGroup
from gpumon.tui.columns import Column
from gpumon.tui.jobs import reason_text, resources_text
from gpumon.tui.jobs import state_text as whole_state
from gpumon.tui.lines import Row
from gpumon.tui.lists import Order, list_table
from gpumon.tui.parts.phrasing import signs
from gpumon.tui.parts.view import View

#: in the order of HEAD
COLUMNS = (
    Column("job", most=16),
    Column("name", most=32, least=12),
    Column("state", most=34, least=10),
    Column("partition", 10, most=16),
    Column("nodes×GPUs", 6, right=True),
    Column("elapsed / limit", 7, right=True),
    Column("left", 2, right=True),
    Column("GPUs busy", 1, most=24, least=12),
    Column("GPU memory", 5, right=True),
    Column("memory", 8, right=True),
    Column("waste", 3, right=True),
    Column("what to do", 4, most=100, least=12),
)
#: from so many cells on, what to do is worth more than the columns of a high rank
_WIDE, _WORDS = 120, 36
_STATE, _BUSY, _WASTE, _TO_DO = (
    HEAD.index(n) for n in ("state", "GPUs busy", "waste", "what to do")
)
_DIM = tuple(HEAD.index(name) for name in ("partition", "elapsed / limit", "nodes × GPUs"))
SORTS = ("state", "waste", "GPUs busy", "left", "elapsed", "name")
#: GPU-hours from which waste is coloured; the table rounds to a tenth
_WASTE_SEEN = 0.05
_LEVELS = {"critical": "bad", "warning": "attention", "info": "note"}
#: states in which a job ended otherwise than its user wanted
_BAD = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
_IDLE_PERCENT = 10.0


def ordered(lines: Sequence[JobLine], order: Order, now: float) -> list[JobLine]:
    """Those that hold all words of the filter, sorted; what has no value for that comes last."""
    words = order.filter_text.lower().split()
    found = [line for line in lines if _holds(line, words, now)] if words else list(lines)
    if order.sort == "state":  # as they came
        return found[::-1] if order.is_reversed else found
    known = [(key, line) for line in found if (key := _key(line, order.sort, now)) is not None]
    known.sort(key=lambda each: each[0], reverse=order.is_reversed)
    rest = [line for line in found if _key(line, order.sort, now) is None]
    return [line for _, line in known] + rest


def _holds(line: JobLine, words: Sequence[str], now: float) -> bool:
    text = " ".join(cells(line, now)).lower()
    return all(word in text for word in words)


def _key(line: JobLine, sort: str, now: float) -> float | str | None:
    """The greatest waste first, the least busy, the least time left, the longest, by name."""
    group, busy, waste = line.group, line.figures.busy.used, line.verdict.waste_gpu_hours
    if sort == "waste":
        return None if waste is None else -waste
    if sort == "GPUs busy":
        return busy
    if sort == "left":
        return group.left_s(now)
    if sort == "elapsed":
        elapsed_s = group.elapsed_s(now)
        return None if elapsed_s is None else -elapsed_s
    return group.name.lower()


# -- the table -----------------------------------------------------------------------------------


def columns(width: int) -> list[Column]:
    """The columns as they behave on a screen of this width."""
    *others, to_do = COLUMNS
    return [*others, to_do._replace(least=_WORDS) if width >= _WIDE else to_do]


def table(
    lines: Sequence[JobLine], order: Order, top: int, selected: int, size: tuple[int, int],
    now: float, glyphs: str,
) -> View:  # fmt: skip
    """As many rows as fit from `top` on. The columns fit all of the lines, so that they stay."""

    def role(at: int, column: int, here: bool) -> str:
        found = _role(lines[at], column)
        return "title" if here and found in ("", "dim") else found

    every = [cells(line, now) for line in lines]
    shown = columns(size[0])
    place, room = (top, selected), size[0] - 1
    return list_table(shown, every, order.sort, SORTS, place, size, room, glyphs, role)


def _role(line: JobLine, column: int) -> str:
    group, figures, verdict = line.group, line.figures, line.verdict
    if column == _STATE:
        return state_role(group)
    if column == _BUSY:
        if figures.busy.used is None:
            return "dim"
        is_idle = figures.busy.used < _IDLE_PERCENT
        return "dim" if group.has_ended and not is_idle else "attention" if is_idle else "busy"
    if column == _WASTE:
        return "attention" if (verdict.waste_gpu_hours or 0.0) >= _WASTE_SEEN else "dim"
    if column == _TO_DO:
        return {"critical": "bad", "warning": "attention"}.get(verdict.level, "dim")
    return "dim" if column in _DIM or not group.is_running else ""


def state_role(group: JobGroup) -> str:
    if group.is_running:
        return "attention" if group.is_held else "good"
    if group.is_pending:
        return ""
    return "bad" if group.state in _BAD else "dim"


# -- the selected one ----------------------------------------------------------------------------


def details(line: JobLine, now: float, glyphs: str) -> list[Row]:
    """What the row has no room for, in five lines."""
    group, verdict = line.group, line.verdict
    first = group.shown[0]
    about = [
        clean(first.partition, 40),
        resources_text(first.allocated if not group.is_pending else first.requested.resources),
        _times(group, now),
    ]
    rows: list[Row] = [
        [
            (f" {clean(group.id, 40)} ", "title"),
            (f"{clean(group.name, 120)}  ", ""),
            (_state(group), state_role(group)),
            (f"  {clean(first.node_list, 100)}", "dim"),
        ],
        [("   " + " · ".join(part for part in about if part), "dim")],
        _measured(line),
    ]
    if verdict.title:
        level = _LEVELS.get(verdict.level, "note")
        role = "dim" if level == "note" else level
        rows.append([(f" {signs(glyphs)[level]} ", role), (clean(verdict.title, 200), role)])
        rows.append([(f"   {clean(verdict.advice, 200)}", "")])
    elif group.is_pending:
        rows.append([(f"   {reason_text(first.reason)}", "")])
    elif verdict.told is not None and verdict.told.answer == NOT_JUDGED:
        why = clean("; ".join(verdict.told.because), 200)
        rows.append([(f" {signs(glyphs)['unknown']} Not judged: {why}", "unknown")])
    return rows


def _state(group: JobGroup) -> str:
    """With its exit code; of an array every state."""
    counts = (f"{count} {clean(state.lower(), 20)}" for state, count in group.tasks.items())
    return ", ".join(counts) or whole_state(group.shown[0])


def _times(group: JobGroup, now: float) -> str:
    first = group.shown[0]
    if group.is_pending:
        at = first.expected_start
        return "no expected start yet" if at is None else f"expected to start {_when(at)}"
    parts = []
    if first.start is not None:
        parts.append(f"started {_when(first.start)}")
    if group.has_ended and first.end is not None:
        parts.append(f"ended {_when(first.end)}")
    elif (left_s := group.left_s(now)) is not None:
        parts.append(f"{age_text(left_s)} left")
    return ", ".join(parts)


def _when(at: float) -> str:
    """`12:31` of today, `Sat 21 Nov 12:31`."""
    local, today = time.localtime(at), time.localtime()
    is_today = local[:3] == today[:3]
    return time.strftime("%H:%M" if is_today else "%a %d %b %H:%M", local)


def _measured(line: JobLine) -> Row:
    """The figures with their names and what they are of, or why there are none."""
    figures, waste = line.figures, line.verdict.waste_gpu_hours
    known = [part for part in (_gpus(figures), _gpu_memory(figures),
             _amount("memory", figures.mem)) if part]  # fmt: skip
    why = clean(figures.busy.why, 160)
    if waste is not None:
        known.append(f"{waste:.1f} GPU-hours wasted")
    row: Row = []
    if known:
        of = "last minute" if figures.is_now else "whole run"
        row = [(f"   {of}: ", "dim"), (" · ".join(known), "")]
    if why and not line.group.is_pending:
        row.append((f"   GPUs: {why}", "unknown"))
    return row


def _gpus(figures: Figures) -> str:
    if figures.busy.used is None or figures.gpus.peak is None:
        return ""
    text = f"{figures.gpus.peak:.0f} of {figures.gpus.given:.0f} GPUs active"
    return f"{text}, {figures.busy.used:.0f} % busy"


def _gpu_memory(figures: Figures) -> str:
    text = _amount("GPU memory", figures.gpu_mem)
    return text and text + ("" if figures.is_need else " (some is reserved)")


def _amount(name: str, use: Use) -> str:
    if use.used is None:
        return ""
    return f"{name} {size_text(use.used, use.given)}"
