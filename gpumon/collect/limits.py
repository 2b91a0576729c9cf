"""Makes do with little address space (`ulimit -v`, a scheduler's limit on virtual memory)."""

from __future__ import annotations

import resource

_M_ARENA_MAX = -8  # of glibc's malloc.h
_STACK_BYTES = 2 << 20


def spare_address_space() -> None:
    """Where it is limited: glibc else sets 64 MiB aside for each thread, and 8 for its stack."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import threading  # `gpumon --help` comes without

    threading.stack_size(_STACK_BYTES)
    try:
        import ctypes
    except ImportError:
        return
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
        # glibc loads it when a thread is ended, and aborts where there is no room left for it
        ctypes.CDLL("libgcc_s.so.1")
    except (AttributeError, OSError):  # another C library (musl)
        pass
