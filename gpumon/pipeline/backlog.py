"""Samples on their way to be evaluated: bounded in number and in bytes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Union

from gpumon.model.bounded import weight
from gpumon.model.sample import Header, Sample

if TYPE_CHECKING:
    from gpumon.model.batch import ColumnBatch
    from gpumon.model.rolled import RolledFrame

#: samples that may wait while the first import runs, or the machine is busy, each of 20 KB with
#: eight devices and 16 processes; a replay gives many at once. Of as many more only events are kept
MAX_WAITING, _MAX_REPLAYED = 4096, 100_000
#: and what they take all together
WAITING_BYTES = 96 << 20
_ROW_BYTES, _READING_BYTES = 120, 28  # about
#: how long a replay is held up for an evaluation, and how often it looks
_HOLD_S, _LOOK_S = 10.0, 0.005

Item = Union[Header, Sample, "ColumnBatch", "RolledFrame"]


class Reset(NamedTuple):
    """Forget what came before of this node; "": of all."""

    node: str = ""


class Entry(NamedTuple):
    """What came of one node."""

    node: str
    items: Header | Sample | Iterator[Item]
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

    def put(self, node: str, items: Header | Sample | Iterator[Item]) -> None:
        """Keep it; of a sample for which there is no room, its events, and then nothing."""
        size = _bytes_of(items)
        if self._replayed:
            self._wait_for_room()
        fill = self._fill(size)
        if fill >= 1 and isinstance(items, Sample):
            items = items._replace(rows={})  # a gap
            size = _bytes_of(items)
        is_empty = fill >= 1 and isinstance(items, Sample) and not items.events
        with self._lock:
            if fill >= 2 or is_empty:
                self.left_out += 1
                return
            self._bytes += size
        self._entries.append(Entry(node, items, size))

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
        """How full it would be: 1 is what samples may take, 2 what anything may."""
        most = _MAX_REPLAYED if self._replayed else MAX_WAITING
        return max(len(self._entries) / most, (self._bytes + size) / WAITING_BYTES)

    def _wait_for_room(self) -> None:
        """A replay comes as fast as it can be read; it is held up rather than cut."""
        until = time.monotonic() + _HOLD_S
        while self.is_read and self._fill(0) >= 1 and time.monotonic() < until:
            time.sleep(_LOOK_S)


def _bytes_of(items: Header | Sample | Iterator[Item]) -> int:
    """About what it takes; what is read only when its turn comes takes nothing yet."""
    if isinstance(items, Header):
        return weight(items)
    if not isinstance(items, Sample):
        return 0
    rows = sum(
        _ROW_BYTES + _READING_BYTES * len(readings)
        for table in items.rows.values()
        for readings in table.values()
    )
    return rows + weight(items.events) + weight(items.states)
