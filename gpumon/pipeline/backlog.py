"""Frames on their way to be evaluated: bounded in number and in bytes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Union

from gpumon.frames.frame import Frame

#: what frames may take that wait while the first import runs, or the machine is busy
WAITING_BYTES = 96 << 20
_ROLLUP_BYTES = 300  # about, of one bucket
#: how long a replay is held up for an evaluation, and how often it looks
_HOLD_S, _LOOK_S = 10.0, 0.005

Frames = Union[Frame, Iterator[Frame]]


class Entry(NamedTuple):
    """What came of one node; without frames: forget what came before of it, or ("") of all."""

    node: str
    frames: Frames | None = None
    size_bytes: int = 0


class Backlog:
    """Filled by the streams' threads, emptied by one. A replay waits where it is full.

    is_read: whether somebody empties it by now.
    left_out: samples that there was no room for.
    """

    def __init__(self, *, replayed: bool) -> None:
        self._replayed = replayed
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.is_read = False
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, node: str, frames: Frames) -> None:
        """Keep it, as far as there is room."""
        size = seen = 0  # what is read only when its turn comes takes nothing yet
        if isinstance(frames, Frame):
            size, seen = _ROLLUP_BYTES * frames.rollup_count, frames.samples.seen
        # a replay comes as fast as it can be read; it is held up rather than cut
        until = time.monotonic() + (_HOLD_S if self._replayed else 0.0)
        while self.is_read and self._fill(0) >= 1 and time.monotonic() < until:
            time.sleep(_LOOK_S)
        with self._lock:
            if size and self._fill(size) > 1:
                self.left_out += seen
                return
            self._bytes += size
        self._entries.append(Entry(node, frames, size))

    def reset(self, node: str = "") -> None:
        """Have this node forgotten, or all."""
        self._entries.append(Entry(node))

    def take(self) -> Entry | None:
        """The oldest; None where nothing waits."""
        with self._lock:
            if not self._entries:
                return None
            self._bytes -= self._entries[0].size_bytes
            return self._entries.popleft()

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    @property
    def has_room(self) -> bool:
        """For as much again as waits."""
        return self._fill(0) < 0.5

    def _fill(self, size: int) -> float:
        """How full it would be, of 1."""
        return (self._bytes + size) / WAITING_BYTES
