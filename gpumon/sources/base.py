"""What a source is, and the sink that it feeds."""

from __future__ import annotations

from typing import Protocol

from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status


class Sink(Protocol):
    """What takes the samples: the store, or a tee into store and recording."""

    def header(self, node: str, header: Header) -> None: ...
    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        """`received`: our clock (`model/clock.py`) when it came, where the node's may differ."""

    def status(self, node: str, status: Status) -> None: ...

    def reset(self) -> None:
        """Forget everything: a replay begins again."""


class Source(Protocol):
    """Brings samples of one or several nodes to a sink, from threads of its own."""

    name: str

    def start(self, sink: Sink) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End; never waits for a node, returns within a fraction of a second."""

    def now(self) -> float:
        """Epoch seconds of what is shown: by our clock, which never steps, or a recording's."""
