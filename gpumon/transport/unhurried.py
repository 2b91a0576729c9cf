"""Threads that wait for a person, or for their turn: this says nothing of what they connect to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_waiting: dict[int, int] = {}  # thread -> how deep; each changed by its own thread alone


@contextmanager
def unhurried() -> Iterator[None]:
    """While the body runs, nobody shall lose patience with this thread."""
    me = threading.get_ident()
    _waiting[me] = _waiting.get(me, 0) + 1
    try:
        yield
    finally:
        _waiting[me] -= 1
        if not _waiting[me]:
            del _waiting[me]


def is_unhurried(thread: int | None) -> bool:
    return thread in _waiting
