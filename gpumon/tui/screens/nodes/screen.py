"""All nodes, the worst first, and the devices of the one under the cursor."""

from __future__ import annotations

from gpumon.tui.keys import Key, grouped
from gpumon.tui.moment import Moment
from gpumon.tui.moment.summaries import METRICS, SORTS, Metric, Summary, in_order
from gpumon.tui.parts.device_rows import scrolled
from gpumon.tui.parts.grid import MIN_PLOT_HEIGHT, device_grid
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.nodes.table import node_table, room_for_nodes
from gpumon.tui.selection import Selection


class NodesPane(Pane):
    """The table of nodes; a Job screen of very many devices shows it, too."""

    name = "nodes"
    wheel = 3
    keys = grouped(
        "Lists",
        Key(
            "c",
            "metric(1)",
            "c",
            "Cells",
            "nodes: show busy, memory, power or temperature in the cells",
            ("nodes",),
        ),
    )

    def __init__(self, shell: Shell, selection: Selection) -> None:
        super().__init__(shell, selection)
        self._metric = 0  # position in METRICS
        self.sort = "worst"
        self.reverse = False
        self.filter_text = ""
        self._top = 0  # first node on screen

    @property
    def metric(self) -> Metric:
        return METRICS[self._metric]

    def beside(self, bar: str) -> str:
        return self.metric.name if bar == "Cells" else ""

    def summaries(self, moment: Moment) -> list[Summary]:
        """Of the nodes in their order, then of those that are the job's no more; as filtered."""
        found = in_order(moment.summaries(self.metric.name), self.sort, reverse=self.reverse)
        found = found + moment.left_summaries(self.metric.name)
        words = self.filter_text.lower().split()
        return [each for each in found if _matches(each, words)] if words else found

    def draw(self, moment: Moment, width: int, height: int) -> View:
        """The table; below it, where there is room, the devices of the selected node."""
        if not moment.nodes and not moment.left:
            return View([[(" no data from any node yet", "dim")]])
        count = len(self.summaries(moment))
        if not count:
            nothing = f" no node matches {self.filter_text!r}; Esc clears the filter"
            return View([[(nothing, "dim")]])
        rest = height - count - 3
        if rest < MIN_PLOT_HEIGHT:
            return self.table(moment, width, height)
        table = self.table(moment, width, count + 2)
        positions = moment.positions_of(self.selection.node)
        grid = device_grid(moment, self.selection, width, rest, positions).below([*table.rows, []])
        return View(grid.rows, [*table.zones, *grid.zones])

    def table(self, moment: Moment, width: int, height: int) -> View:
        """The table alone, in `height` rows around the cursor."""
        found = self.summaries(moment)
        names = [summary.node.name for summary in found]
        if self.selection.node not in names and names:
            self.selection.node = names[0]
        selected = names.index(self.selection.node) if names else 0
        self._top = scrolled(self._top, selected, room_for_nodes(height), len(found))
        return node_table(
            found, selected, self._top, self.metric, self.sort, self.reverse,
            self.filter_text, moment, width, height,
        )  # fmt: skip

    def choose(self, moment: Moment) -> None:
        self.selection.pick_node(moment, self.selection.node)

    def action_move(self, step: int) -> None:
        moment = self.shell.moment
        names = [summary.node.name for summary in self.summaries(moment)]
        if names:
            place = names.index(self.selection.node) if self.selection.node in names else 0
            to = min(max(place + step, 0), len(names) - 1)
            self.selection.pick_node(moment, names[to])
            if to == place:
                which = "only" if len(names) == 1 else "first" if step < 0 else "last"
                self.shell.say(f"this is the {which} node")

    def action_pick_node(self, place: int) -> None:
        found = self.summaries(self.shell.moment)
        if place < len(found):
            self.selection.pick_node(self.shell.moment, found[place].node.name)

    def action_open(self) -> None:
        """Enter: the devices of the selected node."""
        self.choose(self.shell.moment)
        self.shell.show("node")

    def action_sort(self, step: int) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + step) % len(SORTS)]
        self.reverse = False

    def action_reverse(self) -> None:
        self.reverse = not self.reverse

    def action_filter(self) -> None:
        def take(text: str) -> None:
            self.filter_text = text.strip()

        from gpumon.tui.dialogs.line import LineDialog

        dialog = LineDialog("part of a node's name, or of its findings", self.filter_text)
        self.shell.ask(dialog, take)

    def action_leave(self) -> None:
        """Esc: clears the filter first."""
        if self.filter_text:
            self.filter_text = ""
        else:
            super().action_leave()

    def action_metric(self, step: int) -> None:
        self._metric = (self._metric + step) % len(METRICS)
        if self.shell.pane.actor is not self:
            self.shell.show(self.name)


def _matches(summary: Summary, words: list[str]) -> bool:
    text = f"{summary.node.name} {summary.remark}".lower()
    return all(word in text for word in words)
