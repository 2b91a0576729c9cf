"""The latest readings and the series of every node, for the screens to read at their own tick.

Threads of streams write, the screen's thread reads, one lock is between them. Times are
passed in, so that a replay is live with another clock.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING

from gpumon.model.sample import Header, Sample
from gpumon.model.series import RETENTIONS, SERIES_A_NODE, retention_of
from gpumon.model.view import Status
from gpumon.store.node import NodeView

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

__all__ = ["LEFT_KEPT", "NodeView", "Store"]

#: nodes that are the job's no more, whose history stays to be seen
LEFT_KEPT = 256


class Store:
    """All nodes. Writers are the threads of the streams, the reader is the screen.

    The more nodes it hears of, and the more series they have, the less it keeps of each
    (`model/series.py`). `others`: nodes of other stores of this process.
    """

    def __init__(self, others: int = 0) -> None:
        self._others = others
        self.generation = 0  # grows with every change of anything
        self.changed: Callable[[], None] = lambda: None  # called after each
        self._lock = Lock()
        self._nodes: dict[str, NodeView] = {}
        self._retention = RETENTIONS[0]
        self._series = 0  # of all nodes

    def header(self, node: str, header: Header) -> None:
        """The static facts of a node; devices keep the rows they have."""
        self._write(node, NodeView.take_header, header)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        """One sample. `received`: the reader's clock on arrival, None when both are one clock."""
        self._write(node, NodeView.take_sample, sample, received)

    def load(self, node: str, past: Frame) -> None:
        """What was before the next sample of a node."""
        self._write(node, NodeView.take_frame, past)

    def status(self, node: str, status: Status) -> None:
        """How the stream of a node fares."""
        self._write(node, NodeView.take_status, status)

    def precede(self, node: NodeView, past: Frame) -> None:
        """Have a node's plots show what its earlier recordings hold, and its lanes their events."""
        with self._lock:
            parts = list(node.series_of(past, is_past=True))
        for series, rollup, first_time in parts:  # one at a time: others wait for the lock
            with self._lock:
                series.load(rollup, first_time, is_past=True)
        with self._lock:
            node.take_past_events(past)
            node.generation += 1
            self.generation += 1
        self.changed()

    def reset(self) -> None:
        """Forget all nodes: a replay begins again."""
        with self._lock:
            self._nodes.clear()
            self._retention, self._series = RETENTIONS[0], 0
            self.generation += 1
        self.changed()

    def nodes(self) -> list[NodeView]:
        """In the order in which they were first heard of."""
        with self._lock:
            return list(self._nodes.values())

    def node(self, name: str) -> NodeView | None:
        """The node of this name, when it was heard of."""
        with self._lock:
            return self._nodes.get(name)

    def _write(self, name: str, take: Callable[..., None], *given: object) -> None:
        with self._lock:
            self.generation += 1
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = NodeView(name, self._lock, self._retention)
            node.generation += 1
            self._series -= node.series_count
            take(node, *given)
            self._series += node.series_count
            if node.is_left:  # those that were left first make room
                left = [name for name, each in self._nodes.items() if each.is_left]
                for name in left[: max(len(left) - LEFT_KEPT, 0)]:
                    self._series -= self._nodes.pop(name).series_count
            nodes = max(self._others, len(self._nodes), ceil(self._series / SERIES_A_NODE))
            if self._retention.nodes and nodes > self._retention.nodes:  # never more again
                self._retention = retention_of(nodes)
                for each in self._nodes.values():
                    each.downsample(self._retention)
        self.changed()
