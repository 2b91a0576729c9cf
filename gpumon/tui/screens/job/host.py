"""The host, for nodes without a GPU: what it does over time, and who uses it."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.aligned import aligned
from gpumon.tui.parts.host import core_rows, host_facts, host_lanes
from gpumon.tui.parts.lanes import lanes_view

_LEAST_ROWS = 6
_LANES_SHARE = 0.6  # of the rows; processes have the rest


def host_rows(
    moment: Moment, width: int, height: int, busiest: Callable[[Moment, int, int], list[Row]]
) -> list[Row]:
    """Cores and lanes of the first node, and below them what `busiest` draws."""
    if not moment.nodes or moment.nodes[0].header is None or height < _LEAST_ROWS:
        return []
    node = moment.nodes[0]
    rows = aligned(list(host_facts(moment, node)), width) + core_rows(moment, node, width)
    room = int(height * _LANES_SHARE) - len(rows)
    rows += lanes_view(moment, node, host_lanes(moment, node), width, room).rows
    return [*rows, [], *busiest(moment, width, max(0, height - len(rows) - 1))][:height]
