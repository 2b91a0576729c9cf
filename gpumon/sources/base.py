"""What a source is, and the sink that it feeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame


class Sink(Protocol):
    """What takes the samples: the store, or a stage before it, as the recorder."""

    def header(self, node: str, header: Header) -> None: ...
    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        """`received`: our clock (`model/clock.py`) when it came, where the node's may differ."""

    def status(self, node: str, status: Status) -> None: ...

    def reset(self) -> None:
        """Forget everything: a replay begins again."""


@runtime_checkable
class FrameSink(Sink, Protocol):
    """One that also takes what samples were aggregated to."""

    def frame(self, node: str, frame: Frame) -> None:
        """All of a node from the frame before up to the next sample."""


@runtime_checkable
class LoadingSink(FrameSink, Protocol):
    """One that need not be told of long ago sample by sample."""

    def load(self, node: str, past: Frame, frames: Iterator[Frame]) -> None:
        """What was before the next sample: in one frame to show, and in full to evaluate."""


class Source(Protocol):
    """Brings samples of one or several nodes to a sink, from threads of its own."""

    name: str

    def start(self, sink: Sink) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End; never waits for a node, returns within a fraction of a second."""

    def now(self) -> float:
        """Epoch seconds of what is shown: by our clock, which never steps, or a recording's."""
