"""One device over the whole screen: what it is, its readings over time, its processes."""

from __future__ import annotations

from gpumon.model.units import plural
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.device_rows import lists_processes
from gpumon.tui.parts.lanes import lanes_view, least_height
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.device.courses import courses
from gpumon.tui.screens.device.facts import fact_rows
from gpumon.tui.screens.processes.entries import Entry, Order, entries_on, in_order
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.screens.processes.table import process_table
from gpumon.tui.selection import Selection

_ORDER = Order("mem")


class DevicePane(Pane):
    """The device under the cursor."""

    name = "device"

    def __init__(self, shell: Shell, selection: Selection, processes: ProcessesPane) -> None:
        super().__init__(shell, selection)
        self._processes = processes
        self._opened_from = "job"

    def draw(self, moment: Moment, width: int, height: int) -> View:
        current = self.selection.current(moment)
        if current is None:
            return View([[(" No GPU is visible here.", "dim")]])
        node, device = current
        position = f"{self.selection.device + 1} of {len(moment.devices)}  ←→"
        processes = _processes(moment, node, device, width, most=max(1, height // 6))
        lanes, room = courses(node, device, moment.now), height - len(processes)
        most = room - least_height(len(lanes), width)
        rows = fact_rows(moment, node, device, width, position, most)
        plots = lanes_view(moment, node, lanes, width, room - len(rows)).below(rows)
        return View([*plots.rows[:room], *processes], plots.zones)

    def entered(self, before: str) -> None:
        is_back = before == "process" and self._processes.opened_from == self.name
        if before != self.name and not is_back:
            self._opened_from = before

    def action_device(self) -> None:
        """The device that is selected on whatever screen is shown."""
        self.shell.pane.actor.choose(self.shell.moment)
        self.shell.show(self.name)

    def action_open(self) -> None:
        """Enter: the process that is first in the table below."""
        current = self.selection.current(self.shell.moment)
        here = _entries(self.shell.moment, *current) if current is not None else []
        if here:
            is_first = self._opened_from != "process"  # else Esc would go to and fro
            self._processes.open(here[0], self.name if is_first else self._processes.name)
        else:
            self.shell.say("no process on this GPU to open")

    def action_leave(self) -> None:
        self.shell.show(self._opened_from)


def _entries(moment: Moment, node: NodeView, device: DeviceView) -> list[Entry]:
    return in_order(entries_on(node, device.key, moment.now), _ORDER)


def _processes(
    moment: Moment, node: NodeView, device: DeviceView, width: int, most: int
) -> list[Row]:
    here = _entries(moment, node, device)
    if not here:
        listed = lists_processes(moment, node, device)
        text = "no process on this GPU" if listed else "processes not measured"
        return [[(f" {text}", "dim")]]
    rows = process_table(here[:most], _ORDER, moment, width).rows
    if len(here) > most:
        more = plural(len(here) - most, "more process", "es")
        rows.append([(f" {more}: press 3 for all", "dim")])
    return rows
