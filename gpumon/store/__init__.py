"""The latest readings and the series of every node, for the screens to read at their own tick.

Threads of streams write, one timer of the screen reads, one lock is between them. Times are
passed in, so that a replay is live with another clock.
"""

from __future__ import annotations

from math import ceil
from threading import Lock
from typing import Callable, Dict, List, Optional, Sequence

from gpumon.model.depth import DEPTHS, SERIES_A_NODE, depth_of
from gpumon.model.past import Past
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.store.node import NodeView
from gpumon.store.processes import ENDED_KEPT_S

__all__ = ["ENDED_KEPT_S", "NodeView", "Store"]


class Store:
    """All nodes. Writers are the threads of the streams, the reader is the screen's timer.

    The more nodes it hears of, and the more series they have, the less it keeps of each
    (`model/depth.py`).
    """

    def __init__(self) -> None:
        self.generation = 0  # grows with every change of anything
        self._lock = Lock()
        self._nodes: Dict[str, NodeView] = {}
        self._depth = depth_of(0)
        self._series = 0  # of all nodes

    def header(self, node: str, header: Header) -> None:
        """The static facts of a node; devices keep the rows they have."""
        with self._lock:
            self._take(node, NodeView.take_header, header)

    def add(self, node: str, sample: Sample, received: Optional[float] = None) -> None:
        """One sample. `received`: the reader's clock on arrival, None when both are one clock."""
        with self._lock:
            self._take(node, NodeView.take_sample, sample, received)

    def past(self, node: str, pasts: Sequence[Past], items: object = None) -> None:
        """What a node said before the next sample; `items` is that in full, for who judges."""
        for past in pasts:
            with self._lock:
                self._take(node, NodeView.take_past, past)

    def status(self, node: str, status: Status) -> None:
        """How the stream of a node fares."""
        with self._lock:
            self._node(node).take_status(status)

    def reset(self, gathering: object = None) -> None:
        """Forget all nodes: a replay begins again. `gathering` is for who judges."""
        with self._lock:
            self._nodes.clear()
            self._depth, self._series = depth_of(0), 0
            self.generation += 1

    def nodes(self) -> List[NodeView]:
        """In the order in which they were first heard of."""
        with self._lock:
            return list(self._nodes.values())

    def node(self, name: str) -> Optional[NodeView]:
        """The node of this name, when it was heard of."""
        with self._lock:
            return self._nodes.get(name)

    def _take(self, name: str, take: Callable[..., None], *given: object) -> None:
        node = self._node(name)
        before = node.series_count
        take(node, *given)
        if node.series_count != before:
            self._series += node.series_count - before
            self._thin()

    def _node(self, name: str) -> NodeView:
        self.generation += 1
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeView(name, self._lock, self._depth)
            self._thin()
        return node

    def _thin(self) -> None:
        """Less of each, where there are more than before; never more again."""
        depth = depth_of(max(len(self._nodes), ceil(self._series / SERIES_A_NODE)))
        if DEPTHS.index(depth) > DEPTHS.index(self._depth):
            self._depth = depth
            for each in self._nodes.values():
                each.thin(depth)
