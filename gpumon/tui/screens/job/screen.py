"""The first screen: requested and used resources, what is wrong, and every device."""

from __future__ import annotations

import math

from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.grid import MIN_PLOT_HEIGHT, device_grid, least_rows
from gpumon.tui.parts.title import time_row
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.job.host import host_rows
from gpumon.tui.screens.job.not_running import connecting_rows, ended_rows, pending_rows
from gpumon.tui.screens.job.notes import note_rows
from gpumon.tui.screens.job.request import request_rows
from gpumon.tui.screens.nodes.screen import NodesPane
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.selection import Selection

_USUAL_FINDINGS = 4  # rows for which the layout leaves room
_PROCESSES_SHARE = 0.3  # of the rows left for devices and processes
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

    def draw(self, moment: Moment, width: int, height: int) -> View:
        """While the job waits, why; else all there is to say of it, then its devices."""
        if moment.job is not None and moment.job.is_pending and moment.player is None:
            return View(pending_rows(moment, moment.job)[:height])
        rows: list[Row] = ended_rows(moment)
        time = time_row(moment, width)
        if time is not None:
            rows.append(time)
        rows += connecting_rows(moment, height - len(rows))
        is_low = height < 44
        few = 4 if len(moment.devices) <= 4 else 2
        most = few if height < 30 else 4 if is_low else 8
        found = note_rows(moment, width, most)
        rows += found
        rows += request_rows(moment, width, is_low=is_low)
        if height >= 30 and rows:
            rows.append([])
        del rows[height:]
        left = height - len(rows)
        if not moment.devices:
            return View(rows + host_rows(moment, width, left, self._processes.busiest))
        if moment.is_folded:
            return self._nodes.table(moment, width, left).below(rows)
        spare = max(0, min(most, _USUAL_FINDINGS) - len(found))
        return self._devices(moment, width, left, spare).below(rows)

    def _devices(self, moment: Moment, width: int, height: int, spare: int) -> View:
        """The devices, and below them their processes where enough rows are left.

        spare: rows that findings may take later; neither they nor a process more or less change
        the layout.
        """
        count = len(moment.devices)
        processes = len(self._processes.below(moment, width, height))
        most = max(_LEAST_PROCESSES, int(height * _PROCESSES_SHARE))
        wanted = min(max(_LEAST_PROCESSES, math.ceil(processes / 3) * 3), most)
        least = least_rows(moment, width, height - spare - wanted - 1)
        room = height - spare - least - 1
        if not moment.plots or (least == count + 1 and room - wanted <= MIN_PLOT_HEIGHT):
            wanted = room  # no plot fits between
        if not processes or min(wanted, room) < _LEAST_PROCESSES:
            return device_grid(moment, self.selection, width, height, spare=spare)
        grid = device_grid(
            moment, self.selection, width, height - wanted - 1, with_processes=False, spare=spare
        )
        below = self._processes.below(moment, width, height - len(grid.rows) - 1)
        return View([*grid.rows, [], *below], grid.zones)

    @property
    def actor(self) -> Pane:
        return self._nodes if self.shell.moment.is_folded else self
