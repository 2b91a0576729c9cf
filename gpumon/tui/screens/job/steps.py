"""The job's steps now: how many a second, how long one takes, and where the ranks wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.units import age_text, step_text
from gpumon.tui.lines import Row, fit_row, row_width
from gpumon.tui.moment import Moment
from gpumon.tui.parts.phrasing import signs
from gpumon.tui.picture import width_of

if TYPE_CHECKING:
    from gpumon.analysis.steps import StepsNow

#: s without a step, and times as long as a usual one, from which on that is what the row says
_STILL_S, _TIMES = 60.0, 5.0
_MUCH_PERCENT = 30.0
_LEAST_PLACE = 16  # cells


def step_rows(moment: Moment, width: int) -> list[Row]:
    """One row, where the probe reports on the job's processes."""
    now = None if moment.evaluation is None else moment.evaluation.steps
    if now is None:
        return []
    from gpumon.analysis.rules.stands import where_text

    row: Row = [(" steps ", "dim")]
    where = where_text(now.programs)
    if now.still_s >= max(_STILL_S, _TIMES * (now.step_s or 0.0)):
        sign = signs(moment.glyphs)["attention"]
        row.append((f"{sign} none for {age_text(now.still_s)}; {where}", "attention"))
        return [fit_row(row, width)]
    for n, (text, role) in enumerate(_parts(now)):
        more: Row = [("  " if n else "", ""), (text, role)]
        if row_width(row) + row_width(more) <= width:
            row += more
    if row_width(row) + _LEAST_PLACE + 2 <= width:
        room = width - row_width(row) - 2
        if width_of(where) > room and len(now.programs) > 1:
            where = where_text(now.programs[:1])
        row += [("  ", ""), (where, "dim")]
    return [fit_row(row, width)]


def _parts(now: StepsNow) -> list[tuple[str, str]]:
    parts = []
    if now.per_s is not None:
        parts.append((f"{now.per_s:.3g} per s", ""))
    if now.step_s is not None:
        parts.append((f"{step_text(1e6 * now.step_s)} each", "dim"))
    if now.data_wait_percent is not None:
        role = "attention" if now.data_wait_percent >= _MUCH_PERCENT else "dim"
        parts.append((f"waiting for data {now.data_wait_percent:.0f} %", role))
    return parts
