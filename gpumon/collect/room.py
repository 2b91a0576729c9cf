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

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (ImportError, AttributeError, OSError):  # a C library without that call (musl)
        pass
