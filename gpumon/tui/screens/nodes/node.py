"""One node: how its stream fares, its host, and its devices."""

from __future__ import annotations

from gpumon.store import NodeView
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment, states
from gpumon.tui.parts.aligned import aligned
from gpumon.tui.parts.grid import device_grid
from gpumon.tui.parts.host import core_rows, host_facts, host_lanes
from gpumon.tui.parts.lanes import lanes_view, least_height
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane

_LEAST_DEVICES = 3  # rows, the heading included
_DEVICES_SHARE = 1 / 3  # of the rows that devices take at most beside the host


class NodePane(Pane):
    """The selected node: its host over time, then a row for each of its devices."""

    name = "node"

    def draw(self, moment: Moment, width: int, height: int) -> View:
        nodes = [*moment.nodes, *moment.left]
        node = next((node for node in nodes if node.name == self.selection.node), None)
        if node is None:
            return View([[(" this node is gone", "dim")]])
        moment = moment.with_past(node)
        rows = [_stream(moment, node), *aligned(list(host_facts(moment, node)), width)]
        rows += core_rows(moment, node, width)
        del rows[height:]
        positions = moment.positions_of(node.name)
        view = self._host(moment, node, len(positions), width, height - len(rows)).below(rows)
        left = height - len(view.rows) - 1
        if not positions:
            return View([*view.rows, [], [(" no GPUs found on this node", "dim")]][:height])
        if left <= 0:
            return view
        grid = device_grid(moment, self.selection, width, left, positions)
        below = grid.below([*view.rows, []])
        return View(below.rows, [*view.zones, *below.zones])

    def _host(self, moment: Moment, node: NodeView, devices: int, width: int, height: int) -> View:
        """As high as devices leave it, which have a row each where there is room."""
        lanes = host_lanes(moment, node)
        if not lanes:
            return View([])
        least = least_height(len(lanes), width)
        wanted = min(devices + 1, max(_LEAST_DEVICES, int(height * _DEVICES_SHARE)))
        room = height - wanted - 1 if height - least >= _LEAST_DEVICES + 1 else height
        return lanes_view(moment, node, lanes, width, room)

    def action_leave(self) -> None:
        self.shell.show("job" if self.shell.moment.is_folded else "nodes")


def _stream(moment: Moment, node: NodeView) -> Row:
    level, words = states.stream(moment.status(node), moment.now)
    row: Row = [(f" {node.name} ", "title"), (f" {words}", level or "good")]
    header = node.header
    if header is not None:
        about = [f"every {node.interval_s:g} s"]
        about += [f"driver {header.driver}"] if header.driver else []
        about += [f"CUDA {header.cuda}"] if header.cuda else []
        row.append(("   " + " · ".join(about), "dim"))
    return row
