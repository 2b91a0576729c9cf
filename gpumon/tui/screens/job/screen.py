"""The first screen: requested and used resources, what is wrong, and every device."""

from __future__ import annotations

import math
from collections.abc import Callable

from gpumon.tui.lines import Row, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.aligned import aligned
from gpumon.tui.parts.grid import MIN_PLOT_HEIGHT, device_grid, least_rows
from gpumon.tui.parts.host import core_rows, host_facts, host_lanes
from gpumon.tui.parts.lanes import lanes_view
from gpumon.tui.parts.title import time_row
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.job.not_running import connecting_rows, ended_rows, pending_rows
from gpumon.tui.screens.job.notes import box_rows, note_rows
from gpumon.tui.screens.job.request import request_rows
from gpumon.tui.screens.job.steps import step_rows
from gpumon.tui.screens.nodes.screen import NodesPane
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.screens.report import copy
from gpumon.tui.selection import Selection

_NOTE_ROOMS = (0, 2, 4, 8)  # rows for what is wrong; in steps, so that one more moves no plot
_LOW, _HIGH = 30, 44  # rows from which there is room for more
_BESIDE = 240  # columns from which resources stand beside what is wrong, in so many
_REQUEST_WIDTH = 116
_FEW_DEVICES = 4
_FEW_SHARE, _MANY_SHARE = 0.3, 0.5  # of the rows for devices and processes that these take
_LEAST_HOST, _LANES_SHARE = 6, 0.6  # rows of a node without a GPU, and the share of its lanes
_LEAST_PROCESSES = 6  # rows of the table of processes, its heading included


class JobPane(Pane):
    """Devices as plots or as rows; very many are folded to a row a node, and keys act on those."""

    name = "job"

    def __init__(
        self, shell: Shell, selection: Selection, nodes: NodesPane, processes: ProcessesPane
    ) -> None:
        super().__init__(shell, selection)
        self._nodes = nodes
        self._processes = processes
        self._lines: list[str] = []  # of what to do, as it was drawn last

    def draw(self, moment: Moment, width: int, height: int) -> View:
        """While the job waits, why; else all there is to say of it, then its devices."""
        self._lines = []
        if moment.job is not None and moment.job.is_pending and moment.player is None:
            return View(pending_rows(moment, moment.job)[:height])
        rows: list[Row] = ended_rows(moment)
        time = time_row(moment, width)
        if time is not None:
            rows.append(time)
        rows += connecting_rows(moment, height - len(rows))
        standing, self._lines = _standing(moment, width, height)
        rows += standing
        if height >= _LOW and rows:
            rows.append([])
        if len(rows) > height:
            self._lines = []
        del rows[height:]
        left = height - len(rows)
        if not moment.devices:
            return View(rows + _host_rows(moment, width, left, self._processes.busiest))
        if moment.is_folded:
            return self._nodes.draw(moment, width, left).below(rows)
        return self._devices(moment, width, left).below(rows)

    def _devices(self, moment: Moment, width: int, height: int) -> View:
        """The devices, and below them their processes where enough rows are left; a process more or
        less does not change the layout.

        Where devices have a row each, processes come before the plot of the selected one.
        """
        count = len(moment.devices)
        processes = len(self._processes.below(moment, width, height))
        share = _FEW_SHARE if count <= _FEW_DEVICES else _MANY_SHARE
        most = max(_LEAST_PROCESSES, int(height * share))
        wanted = max(_LEAST_PROCESSES, math.ceil(processes / 3) * 3)
        least = least_rows(moment, width, height - min(wanted, most) - 1)
        room = height - least - 1
        if least > count + 1:
            wanted = min(wanted, most)
        elif not moment.plots or room - wanted <= MIN_PLOT_HEIGHT:
            wanted = room  # no plot fits between
        if not processes or min(wanted, room) < _LEAST_PROCESSES:
            return device_grid(moment, self.selection, width, height)
        grid = device_grid(moment, self.selection, width, height - wanted - 1, with_processes=False)
        below = self._processes.below(moment, width, height - len(grid.rows) - 1)
        return View([*grid.rows, [], *below], grid.zones)

    def action_copy_all(self) -> None:
        """What to do, as far as it is in sight."""
        copy(self.shell, self._lines)

    @property
    def actor(self) -> Pane:
        return self._nodes if self.shell.moment.is_folded else self


def _host_rows(
    moment: Moment, width: int, height: int, busiest: Callable[[Moment, int, int], list[Row]]
) -> list[Row]:
    """Of nodes without a GPU: what the first one does over time, and below that who uses it."""
    if not moment.nodes or moment.nodes[0].header is None or height < _LEAST_HOST:
        return []
    node = moment.nodes[0]
    rows = aligned(list(host_facts(moment, node)), width) + core_rows(moment, node, width)
    room = int(height * _LANES_SHARE) - len(rows)
    rows += lanes_view(moment, node, host_lanes(moment, node), width, room).rows
    return [*rows, [], *busiest(moment, width, max(0, height - len(rows) - 1))][:height]


def _standing(moment: Moment, width: int, height: int) -> tuple[list[Row], list[str]]:
    """Resources requested and used, what to do (and the lines of it), and what is wrong; the rows
    are as many with a note more.
    """
    few = 4 if len(moment.devices) <= _FEW_DEVICES else 2
    most = few if height < _LOW else 4 if height < _HIGH else 8
    is_wide = width >= _BESIDE
    notes_width = width - _REQUEST_WIDTH if is_wide else width
    notes, lines = box_rows(moment, notes_width, most // 2)
    notes += note_rows(moment, notes_width, most - len(notes))
    requests = request_rows(
        moment, _REQUEST_WIDTH if is_wide else width, is_low=height < _HIGH and not is_wide
    )
    requests += step_rows(moment, _REQUEST_WIDTH if is_wide else width)
    in_job = any(moment.job_of(node) for node in moment.nodes)
    usual = few if in_job and (few > 2 or height >= _LOW) else 0  # that a job mostly has
    room = next(rows for rows in _NOTE_ROOMS if rows >= len(notes) and rows >= usual)
    if not is_wide:
        return [*requests, *notes, *[[]] * (room - len(notes))], lines
    beside = [*requests, *[[]] * (room - len(requests))]
    notes += [[]] * (len(beside) - len(notes))
    rows = [[*fit_row(note, notes_width), *request] for note, request in zip(notes, beside)]
    return rows, lines
