"""One process on a screen of its own."""

from __future__ import annotations

from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.processes.one import process_view
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.selection import Selection


class ProcessPane(Pane):
    """The process under the cursor of the table."""

    name = "process"

    def __init__(self, shell: Shell, selection: Selection, processes: ProcessesPane) -> None:
        super().__init__(shell, selection)
        self._processes = processes

    def draw(self, moment: Moment, width: int, height: int) -> View:
        entry = self._processes.selected(moment)
        if entry is None:
            return View([[(" This process has ended.", "dim")]])
        return process_view(entry, moment, width, height)

    def choose(self, moment: Moment) -> None:
        self._processes.choose(moment)

    def action_move(self, step: int) -> None:
        """The next or previous process of the table."""
        self._processes.action_move(step)

    def action_signal(self) -> None:
        self._processes.signal_selected()

    def action_leave(self) -> None:
        self.shell.show(self._processes.name)
