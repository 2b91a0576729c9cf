"""The latest readings and the series of every node, for the screens to read at their own tick.

Threads of streams write, the screen's thread reads, one lock is between them. Times are
passed in, so that a replay is live with another clock.
"""

from __future__ import annotations

from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from gpumon.model.retention import RETENTIONS, SERIES_A_NODE, retention_of
from gpumon.model.sample import Header, Sample
from gpumon.model.view import LEFT, Status
from gpumon.store.node import NodeView
from gpumon.store.processes import ENDED_KEPT_S

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

__all__ = ["ENDED_KEPT_S", "LEFT_KEPT", "NodeView", "Store"]

#: nodes that are the job's no more, whose history stays to be seen
LEFT_KEPT = 256


class Store:
    """All nodes. Writers are the threads of the streams, the reader is the screen.

    The more nodes it hears of, and the more series they have, the less it keeps of each
    (`model/retention.py`). `others`: nodes of other stores of this process.
    """

    def __init__(self, others: int = 0) -> None:
        self._others = others
        self.generation = 0  # grows with every change of anything
        self.changed: Callable[[], None] = lambda: None  # called after each
        self._lock = Lock()
        self._nodes: Dict[str, NodeView] = {}
        self._retention = retention_of(others)
        self._series = 0  # of all nodes

    def header(self, node: str, header: Header) -> None:
        """The static facts of a node; devices keep the rows they have."""
        with self._lock:
            self._take(node, NodeView.take_header, header)
        self.changed()

    def add(self, node: str, sample: Sample, received: Optional[float] = None) -> None:
        """One sample. `received`: the reader's clock on arrival, None when both are one clock."""
        with self._lock:
            self._take(node, NodeView.take_sample, sample, received)
        self.changed()

    def load(self, node: str, past: Frame) -> None:
        """What was before the next sample of a node."""
        with self._lock:
            self._take(node, NodeView.take_frame, past)
        self.changed()

    def precede(self, node: NodeView, past: Frame) -> None:
        """Have a node's plots show what its earlier recordings hold, and its lanes their events."""
        with self._lock:
            parts = list(node.series_of_past(past))
        for series, rollup, first_time in parts:  # one at a time: others wait for the lock
            with self._lock:
                series.load(rollup, first_time, is_past=True)
        with self._lock:
            node.take_past_events(past)
            self.generation += 1
        self.changed()

    def status(self, node: str, status: Status) -> None:
        """How the stream of a node fares."""
        with self._lock:
            self._node(node).take_status(status)
            if status.state == LEFT:
                self._forget_left()
        self.changed()

    def reset(self) -> None:
        """Forget all nodes: a replay begins again."""
        with self._lock:
            self._nodes.clear()
            self._retention, self._series = retention_of(self._others), 0
            self.generation += 1
        self.changed()

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
            self._downsample()

    def _node(self, name: str) -> NodeView:
        self.generation += 1
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeView(name, self._lock, self._retention)
            self._downsample()
        return node

    def _forget_left(self) -> None:
        """Of the nodes that are the job's no more, those that were left first."""
        left = [name for name, node in self._nodes.items() if node.is_left]
        for name in left[: max(len(left) - LEFT_KEPT, 0)]:
            self._series -= self._nodes.pop(name).series_count

    def _downsample(self) -> None:
        """Less of each, where there are more than before; never more again."""
        retention = retention_of(max(len(self._nodes), ceil(self._series / SERIES_A_NODE)))
        if RETENTIONS.index(retention) > RETENTIONS.index(self._retention):
            self._retention = retention
            for each in self._nodes.values():
                each.downsample(retention)
