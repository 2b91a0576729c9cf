"""Whose turn it is to work: one stream at a time, and the screen before any other stream.

The interpreter lets one thread run. After a tick, hundreds of threads that decode and store would
compete for it, and for the store's lock, with the only one that draws.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: the screen draws without its turn where a stream takes longer: its file system may hang
PATIENCE_S = 0.1


class Turns:
    """Thread-safe; not to be taken twice by one thread."""

    def __init__(self) -> None:
        self._streams = threading.Lock()
        self._next = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def of_stream(self) -> Iterator[None]:
        """Waits for the other streams that came before, and for a screen that wants to draw."""
        with self._streams:
            with self._next:
                self._turn.acquire()
            try:
                yield
            finally:
                self._turn.release()

    @contextmanager
    def of_screen(self) -> Iterator[None]:
        """Waits for one stream at most, and not for long."""
        has_turn = False
        if self._next.acquire(timeout=PATIENCE_S):
            has_turn = self._turn.acquire(timeout=PATIENCE_S)
            self._next.release()
        try:
            yield
        finally:
            if has_turn:
                self._turn.release()


TURNS = Turns()
