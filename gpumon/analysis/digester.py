"""Makes the digests of a recording while it is written (`recording.Digester`)."""

from __future__ import annotations

from gpumon.analysis.bins import STEP_S
from gpumon.analysis.digest import made
from gpumon.analysis.gather import Gathering
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.ticks import Ticks

_MAX_EVENTS = 20_000  # in one frame
_NODE = ""


class Digester:
    """Gathers one node's stream, and tells of each frame what a report needs of it.

    Who is on which device, counters and peaks go on from frame to frame; bins of time are handed
    out. Ends (gives b"" ever after) where the clock is set back or the grid changes, because what
    was handed out can no longer be changed: from there on the lines are read.
    """

    def __init__(self) -> None:
        self._gathering = Gathering()
        self._headers: list[Header] = []
        self._events: list[Event] = []
        self._newest: float | None = None  # bin of `STEP_S`
        self._step_s: float | None = None  # of the digests so far
        self._ended = False

    def add(self, item: Header | Sample | Ticks) -> None:
        """The next item of the stream."""
        if self._ended:
            return
        if isinstance(item, Header):
            self._headers.append(item)
        elif isinstance(item, Sample):
            self._events += item.events
            self._ended = len(self._events) > _MAX_EVENTS
            if item.rows:
                self._note(item.time, item.time)
        else:
            self._note(item.times[0], item.times[-1])
        self._gathering.add(_NODE, item)

    def digest(self) -> bytes:
        """Of what came since the last one; b"" when there is none from now on."""
        step_s = self._gathering.step_s
        self._ended = self._ended or self._step_s not in (None, step_s)
        self._step_s = step_s
        node = None if self._ended else self._gathering.flushed(_NODE)
        data = b""
        if node is not None and node.header is not None:
            data = made(node, self._headers, self._events, step_s)
        self._headers, self._events = [], []
        if not data:
            self._ended = True
            self._gathering = Gathering()
        return data

    def _note(self, first: float, last: float) -> None:
        newest = self._newest
        self._ended = self._ended or (newest is not None and first // STEP_S < newest)
        self._newest = last // STEP_S
