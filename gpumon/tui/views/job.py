"""The first screen: asked against used, what is wrong, and every device."""

from __future__ import annotations

from gpumon.tui.lines import Row
from gpumon.tui.state import View, ViewState
from gpumon.tui.views.grid import device_grid
from gpumon.tui.views.host import host_rows
from gpumon.tui.views.notes import note_rows
from gpumon.tui.views.request import request_rows
from gpumon.tui.views.title import time_row


def job_view(state: ViewState, width: int, height: int) -> View:
    rows: list[Row] = []
    time = time_row(state, width, state.glyphs)
    if time is not None:
        rows.append(time)
    rows += request_rows(state, width)
    rows += note_rows(state, width, most=2 if height < 30 else 4)
    if height >= 30 and rows:
        rows.append([])
    del rows[height:]
    if not state.devices:
        return View(rows + host_rows(state, width, height - len(rows)))
    grid = device_grid(state, width, height - len(rows))
    below = len(rows)
    return View(rows + grid.rows, [zone._replace(y=zone.y + below) for zone in grid.zones])
