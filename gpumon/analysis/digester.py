"""Makes the digests of a recording while it is written (`recording.Digester`).

Who records imports this at its start, so what it needs is imported when one is made.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from gpumon.model.bounded import weight
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.ticks import Ticks

if TYPE_CHECKING:
    from gpumon.analysis.gather import Gathering

#: events and headers of one frame
MAX_EVENTS, MAX_BYTES = 20_000, 16 << 20
# frames end at multiples of ten minutes, which would cut longer bins of the grid in two; their
# samples are so few that lines are read as quickly
_LONGEST_STEP_S = 40.0
_NODE = ""


class Digester:
    """Gathers one node's stream, and tells of each frame what a report needs of it.

    Who is on which device, counters and peaks go on from frame to frame; bins of time are handed
    out. Ends (gives b"" ever after) where the clock is set back or the grid changes, because what
    was handed out can no longer be changed: from there on the lines are read.

    From a digest to the next item, which mostly is ten minutes, what goes on lies here as packed
    bytes: 20 KB of a node of eight devices, where its objects take 600.
    """

    def __init__(self) -> None:
        from gpumon.analysis.bins import STEP_S
        from gpumon.analysis.digest import made
        from gpumon.analysis.gather import Gathering

        self._made, self._bin_s = made, STEP_S
        self._gathering: Gathering | None = Gathering()  # None: it has ended
        self._at_rest = b""  # the same, packed
        self._headers: list[Header] = []
        self._events: list[Event] = []
        self._bytes = 0  # of both
        self._newest: float | None = None  # bin of 10 s
        self._step_s: float | None = None  # of the digests so far
        self._is_over = False  # the clock was set back

    def add(self, item: Header | Sample | Ticks) -> None:
        """The next item of the stream."""
        self._wake()
        if self._gathering is None:
            return
        if isinstance(item, Header):
            self._headers.append(item)
            self._bytes += weight(item)
        elif isinstance(item, Sample):
            self._events += item.events
            self._bytes += weight(item.events)
            if item.rows:
                self._note(item.time, item.time)
        else:
            self._note(item.times[0], item.times[-1])
        if self._is_over or len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._gathering, self._headers, self._events = None, [], []
        else:
            self._gathering.add(_NODE, item)

    def digest(self) -> bytes:
        """Of what came since the last one; b"" when there is none from now on."""
        import pickle

        self._wake()
        data = b"" if self._gathering is None else self._of(self._gathering)
        self._headers, self._events, self._bytes = [], [], 0
        if data:
            self._at_rest = zlib.compress(pickle.dumps(self._gathering), 1)
        self._gathering = None
        return data

    def _wake(self) -> None:
        import pickle

        if self._at_rest:
            self._gathering = pickle.loads(zlib.decompress(self._at_rest))
            self._at_rest = b""

    def _of(self, gathering: Gathering) -> bytes:
        step_s = gathering.step_s
        if step_s > _LONGEST_STEP_S or self._step_s not in (None, step_s):
            return b""
        self._step_s = step_s
        node = gathering.flushed(_NODE)
        if node is None or node.header is None:
            return b""
        return self._made(node, self._headers, self._events, step_s)

    def _note(self, first: float, last: float) -> None:
        newest = self._newest
        self._is_over = newest is not None and first // self._bin_s < newest
        self._newest = last // self._bin_s
