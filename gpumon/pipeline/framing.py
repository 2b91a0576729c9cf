"""Aggregates a source's streams on their way: each stage behind it gets the same frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.frames.framer import Framer
from gpumon.model.sample import Header, Sample
from gpumon.model.view import LEFT, Status
from gpumon.sources.base import LoadingSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.frames.frame import Frame


class Framing:
    """A sink before another one, which also gets frames. Where the streams are recorded, the
    recorder makes them: marks come in there.
    """

    def __init__(self, sink: LoadingSink, *, replayed: bool = False) -> None:
        self._sink = sink
        self._replayed = replayed
        self._framers: dict[str, Framer] = {}

    def header(self, node: str, header: Header) -> None:
        self._take(node, header)
        self._sink.header(node, header)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        self._take(node, sample)
        self._sink.add(node, sample, received)

    def _take(self, node: str, item: Header | Sample) -> None:
        framer = self._framers.get(node)
        if framer is None:
            framer = self._framers[node] = Framer(replayed=self._replayed)
        for frame in framer.add(item):
            self._sink.frame(node, frame)

    def frame(self, node: str, frame: Frame) -> None:
        self._sink.frame(node, frame)

    def load(self, node: str, past: Frame, frames: Iterator[Frame]) -> None:
        """What was before the next sample."""
        self._framers.pop(node, None)
        self._sink.load(node, past, frames)

    def status(self, node: str, status: Status) -> None:
        framer = self._framers.get(node)
        if framer is not None and status.state not in ("connecting", "live"):
            for frame in framer.rest():  # nothing may follow for long
                self._sink.frame(node, frame)
        if status.state == LEFT:
            self._framers.pop(node, None)
        self._sink.status(node, status)

    def reset(self) -> None:
        self._framers.clear()
        self._sink.reset()
