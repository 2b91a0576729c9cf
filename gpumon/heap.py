"""What the process keeps: memory that was freed goes back to the system, where glibc's allocator
would keep it; and objects of which none is garbage are not searched for it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD = -1  # of mallopt, malloc.h
_M_ARENA_MAX = -8
#: what another C library lacks
_LACKS = (AttributeError, OSError)


def keep_little() -> None:
    """Keep little of what is freed from now on.

    Otherwise each recorder's thread keeps what rollup lines took for a moment: 1.2 MiB a node.
    """
    with suppress(*_LACKS):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 16)
        libc.mallopt(_M_ARENA_MAX, 2)  # threads otherwise have pools of their own


def trim() -> None:
    """Return whole pages that are free between others: 2 MiB after the imports of a screen."""
    with suppress(*_LACKS):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's collector of cycles, for work whose objects form none and go at its end:
    to search tens of thousands of jobs and their reports again and again costs a sixth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
