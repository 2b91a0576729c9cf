"""One process on a screen of its own."""

from __future__ import annotations

import time

from gpumon.pipeline.stacks import Stacks
from gpumon.tui.keys import Key, grouped
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.processes.entries import Entry
from gpumon.tui.screens.processes.one import process_view
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.screens.processes.stack import stack_rows
from gpumon.tui.selection import Selection


class ProcessPane(Pane):
    """The process under the cursor of the table."""

    name = "process"
    keys = grouped(
        "Lists", Key("w", "stack", "w", "Stack", "read where the process opened is", ("process",))
    )

    def __init__(
        self,
        shell: Shell,
        selection: Selection,
        processes: ProcessesPane,
        stacks: Stacks | None = None,
    ) -> None:
        """`stacks`: None where what is shown does not happen now."""
        super().__init__(shell, selection)
        self._processes = processes
        self._stacks = stacks

    def draw(self, moment: Moment, width: int, height: int) -> View:
        entry = self._processes.selected(moment)
        if entry is None:
            return View([[(" This process has ended.", "dim")]])
        return process_view(entry, moment, width, height, self._rows(entry, width, height))

    def _rows(self, entry: Entry, width: int, height: int) -> list[Row]:
        """Of a process that lives: where it is."""
        if self._stacks is None or entry.process.ended is not None:
            return []
        return stack_rows(self._stacks, *entry.identity, time.monotonic(), width, height)

    def action_stack(self) -> None:
        """Read the stack of the process now."""
        entry = self._processes.selected(self.shell.moment)
        if self._stacks is None:
            self.shell.say("stacks can only be read live")
        elif self.shell.pane is not self:
            self.shell.say("open a process first: 3, then Enter")
        elif entry is not None and entry.process.ended is None:
            self._stacks.ask(*entry.identity)

    def choose(self, moment: Moment) -> None:
        self._processes.choose(moment)

    def action_move(self, step: int) -> None:
        """The next or previous process of the table."""
        self._processes.action_move(step)

    def action_signal(self) -> None:
        self._processes.signal_selected()

    def action_leave(self) -> None:
        self.shell.show(self._processes.opened_from)
