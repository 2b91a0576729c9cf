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


class Reset(NamedTuple):
    """Forget what came before of this node; "": of all."""

    node: str = ""


class Entry(NamedTuple):
    """What came of one node."""

    node: str
    frames: Frames
    size_bytes: int


class Backlog:
    """Filled by the streams' threads, emptied by one. A replay waits where it is full.

    is_read: whether somebody empties it by now.
    left_out: samples that there was no room for.
    """

    def __init__(self, *, replayed: bool) -> None:
        self._replayed = replayed
        self._entries: deque[Entry | Reset] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.is_read = False
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, node: str, frames: Frames) -> None:
        """Keep it, as far as there is room."""
        # what is read only when its turn comes takes nothing yet
        size = _ROLLUP_BYTES * frames.rollup_count if isinstance(frames, Frame) else 0
        if self._replayed:
            self._wait_for_room()
        with self._lock:
            if size and self._fill(size) > 1 and isinstance(frames, Frame):
                self.left_out += frames.samples.seen
                return
            self._bytes += size
        self._entries.append(Entry(node, frames, size))

    def reset(self, node: str = "") -> None:
        """Have this node forgotten, or all."""
        self._entries.append(Reset(node))

    def take(self) -> Entry | Reset | None:
        """The oldest; None where nothing waits."""
        try:
            entry = self._entries.popleft()
        except IndexError:
            return None
        if isinstance(entry, Entry):
            with self._lock:
                self._bytes -= entry.size_bytes
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """For as much again as waits."""
        return self._fill(0) < 0.5

    def _fill(self, size: int) -> float:
        """How full it would be, of 1."""
        return (self._bytes + size) / WAITING_BYTES

    def _wait_for_room(self) -> None:
        """A replay comes as fast as it can be read; it is held up rather than cut."""
        until = time.monotonic() + _HOLD_S
        while self.is_read and self._fill(0) >= 1 and time.monotonic() < until:
            time.sleep(_LOOK_S)
