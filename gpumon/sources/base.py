"""What a source is, and how lines become samples in a sink."""

from __future__ import annotations

from typing import Protocol

from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.sources.intake import Intake
from gpumon.sources.rate import Rate


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


class Feed:
    """Decodes the lines of one stream into a sink; bad lines are counted, never fatal.

    `node` is the stream's own name for itself, from its header. A stream of another major version
    ends with WireError, because nothing in it can be trusted; one that sends more than `rate`
    allows with TooFast.
    """

    def __init__(self, sink: Sink, rate: Rate | None = None, axis: Axis | None = None) -> None:
        """`axis`: of this node, also in the streams before."""
        self._sink = sink
        self._intake = Intake(rate)
        self._axis = axis or Axis()
        self.node = ""
        self.ended = ""  # text of the stream's own `end` event

    @property
    def bad_lines(self) -> int:
        return self._intake.bad_lines

    def line(self, line: bytes) -> None:
        """Take one line."""
        for item in self._intake.line(line):
            if isinstance(item, Header):
                self.node = self.node or item.node  # a stream is of one node to its end
                self._sink.header(self.node, self._axis.header(item, clock.now()))
                continue
            item = self._axis.sample(item, clock.now())
            self._sink.add(self.node, item)
            for event in item.events:
                if event.kind == "end":
                    self.ended = event.text or "ended"
