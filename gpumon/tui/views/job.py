"""The first screen: asked against used, what is wrong, and every device."""

from __future__ import annotations

from gpumon.tui.lines import Row
from gpumon.tui.state import View, ViewState
from gpumon.tui.views.grid import device_grid
from gpumon.tui.views.host import host_rows
from gpumon.tui.views.jobstate import connecting_rows, ended_rows, pending_rows
from gpumon.tui.views.nodes import node_table
from gpumon.tui.views.notes import note_rows
from gpumon.tui.views.request import request_rows
from gpumon.tui.views.title import time_row


def job_view(state: ViewState, width: int, height: int) -> View:
    """While the job waits, why; else devices as plots, as rows, or folded to a row a node."""
    if state.job is not None and state.job.is_pending and state.player is None:
        return View(pending_rows(state, state.job)[:height])
    rows: list[Row] = ended_rows(state)
    time = time_row(state, width, state.glyphs)
    if time is not None:
        rows.append(time)
    rows += connecting_rows(state, height - len(rows))
    rows += request_rows(state, width)
    rows += note_rows(state, width, most=2 if height < 30 else 4)
    if height >= 30 and rows:
        rows.append([])
    del rows[height:]
    if not state.devices:
        return View(rows + host_rows(state, width, height - len(rows)))
    draw = node_table if state.is_folded else device_grid
    grid = draw(state, width, height - len(rows))
    below = len(rows)
    return View(rows + grid.rows, [zone._replace(y=zone.y + below) for zone in grid.zones])
