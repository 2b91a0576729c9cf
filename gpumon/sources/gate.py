"""What one run of a node brings, passed on until the node is left."""

from __future__ import annotations

import threading

from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.sources.base import Sink
from gpumon.sources.cost import Cost


class Gate:
    """A sink in front of another one. Thread-safe.

    A node may be followed anew under the same name, in the job's next attempt. What is still on its
    way from the run before must not mix with that, so nothing passes once the gate is shut.
    """

    def __init__(self, sink: Sink, cost: Cost) -> None:
        self._sink = sink
        self._cost = cost
        self._lock = threading.Lock()
        self._is_open = True

    def header(self, node: str, header: Header) -> None:
        with self._lock:
            if self._is_open:
                self._sink.header(node, header)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._lock:
            if self._is_open:
                self._cost.add(node, sample)
                self._sink.add(node, sample, received)

    def status(self, node: str, status: Status) -> None:
        with self._lock:
            if self._is_open:
                self._sink.status(node, status)

    def reset(self) -> None:
        """Nodes are left one by one; nothing is played here."""

    def shut(self) -> None:
        """From now on nothing passes."""
        with self._lock:
            self._is_open = False
