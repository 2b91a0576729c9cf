"""The keys that move the cursor, and those that open what is under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.tui.summaries import SORTS as NODE_SORTS
from gpumon.tui.views.processes import SORTS, entries

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.state import ViewState

    class _Host(App[None]):
        state: ViewState

        def draw(self) -> None: ...
        def open_finding(self) -> None: ...
        def move_in_report(self, step: int) -> None: ...
else:
    _Host = object


class SelectActions(_Host):
    """The app's part of choosing a screen, a node, a device, a process, and an order."""

    def action_view(self, name: str) -> None:
        self.state.view = name
        self.draw()

    def action_device(self) -> None:
        """The selected device: of the selected node or process, where those are listed."""
        state = self.state
        if state.selects_nodes:
            state.select_node(state.node_name)
        if state.view == "processes":
            found = entries(state)
            devices = found[state.cursor].process.usage if found else {}
            for position, (_, device) in enumerate(state.devices):
                if device.key in devices:
                    state.selected = position
                    break
        if state.view != "device":
            state.opened_from = state.view
        self.action_view("device")

    def action_open(self) -> None:
        """Enter: the selected node's devices where nodes are listed, else the device."""
        if self.state.view == "report":
            self.open_finding()
        elif self.state.selects_nodes:
            self.state.select_node(self.state.node_name)
            self.action_view("node")
        else:
            self.action_device()

    def action_leave(self) -> None:
        """Esc: clears the filter; of a device, back to where it was opened; else one up."""
        state = self.state
        if state.filter_text and state.view == "processes":
            state.filter_text = ""
            self.draw()
        elif state.view == "node":
            self.action_view("job" if state.is_folded else "nodes")
        elif state.view == "device":
            self.action_view(state.opened_from)
        elif state.view == "finding":
            self.action_view("report")
        else:
            self.action_view("job")

    def action_move(self, step: int) -> None:
        state = self.state
        if state.view in ("report", "finding"):
            self.move_in_report(step)
            return
        if state.view == "output":
            state.output.back = max(0, state.output.back - step)
        elif state.view == "processes":
            found = entries(state)
            state.cursor = min(max(state.cursor + step, 0), max(0, len(found) - 1))
            state.cursor_pid = found[state.cursor].identity if found else None
        elif state.selects_nodes:
            names = [summary.node.name for summary in state.summaries()]
            if names:
                place = names.index(state.node_name) if state.node_name in names else 0
                state.select_node(names[min(max(place + step, 0), len(names) - 1)])
        else:
            self.action_pick(min(max(state.selected + step, 0), max(0, len(state.devices) - 1)))
            return
        self.draw()

    def action_pick(self, position: int) -> None:
        """A device; the node screen then shows the node that it is on."""
        self.state.selected = position
        if self.state.current is not None:
            self.state.node_name = self.state.current[0].name
        self.draw()

    def action_pick_node(self, place: int) -> None:
        found = self.state.summaries()
        if place < len(found):
            self.state.select_node(found[place].node.name)
        self.draw()

    def action_point(self, position: int) -> None:
        self.state.cursor = position
        self.state.cursor_pid = None
        self.draw()

    def action_sort(self, step: int) -> None:
        """The next order: of the nodes where they are listed, else of the processes."""
        state = self.state
        if state.selects_nodes:
            place = NODE_SORTS.index(state.node_sort) + step
            state.node_sort, state.node_reverse = NODE_SORTS[place % len(NODE_SORTS)], False
            self.draw()
        else:
            self.action_sort_by(SORTS[(SORTS.index(state.sort) + step) % len(SORTS)])

    def action_sort_by(self, name: str) -> None:
        if name == self.state.sort:
            self.state.reverse = not self.state.reverse
        else:
            self.state.sort, self.state.reverse = name, False
        self.action_view("processes")

    def action_reverse(self) -> None:
        state = self.state
        if state.selects_nodes:
            state.node_reverse = not state.node_reverse
            self.draw()
        else:
            state.reverse = not state.reverse
            self.action_view("processes")

    def action_tree(self) -> None:
        self.state.tree = not self.state.tree
        self.action_view("processes")

    def action_metric(self, step: int) -> None:
        """What the cells of the nodes show."""
        self.state.next_metric(step)
        self.action_view("nodes" if not self.state.selects_nodes else self.state.view)
