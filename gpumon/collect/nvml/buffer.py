"""A buffer for lists whose length the driver names, within bounds.

A driver may ask for a larger buffer again and again, or report more entries than the buffer
holds: neither may cost more than `MAX_ENTRIES`, nor more than a few calls.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.query import Query
from gpumon.model.reading import Missing

#: more than one GPU can have: 48 clients of MPS, 100 to 120 samples in the driver's own buffers
MAX_ENTRIES = 1024
#: of samples with times of the driver's: how far the first read looks back
LOOK_BACK_US = 2_000_000
#: a list may grow between two calls, but not for ever
_TRIES = 4


class Buffer:
    """Memory for one list, and the count that travels with it; used by one thread."""

    def __init__(self, query: Query, entries: int, entry_bytes: int) -> None:
        """`entry_bytes`: of the longest layout that it will hold."""
        self.count = ctypes.c_uint()
        self.cut = ""  # what the driver claimed last time, where that was too much; for people
        self._query = query
        self._entry_bytes = entry_bytes
        self._used = 0  # bytes that the driver may have written
        self._allocate(entries)

    def fill(self, entry_bytes: int, call: Callable[[Any], Missing | None]) -> memoryview | Missing:
        """The bytes of all entries, or why there are none.

        `call` asks the driver to fill the data that it is given, and `count` with it.
        """
        self.cut = ""
        missing: Missing | None = None
        for _ in range(_TRIES):
            capacity = self.count.value = len(self._data) // entry_bytes
            self._bytes[: self._used] = bytes(self._used)  # nothing of the last answer may remain
            self._used = len(self._bytes)
            missing = call(self._data)
            count = self.count.value
            if missing is None and count <= capacity:
                self._used = count * entry_bytes
                return self._bytes[: self._used]
            if missing is not None and self._query.code != nv.NVML_ERROR_INSUFFICIENT_SIZE:
                return missing
            if count > MAX_ENTRIES or missing is None:
                self.cut = f"{count} entries"
                return Missing("implausible", self.cut)
            # the list may grow again before it is asked again
            wanted = min(MAX_ENTRIES, 2 * max(capacity, count))
            self._allocate(max(wanted, len(self._data) // self._entry_bytes))
        return Missing("error", "insufficient size") if missing is None else missing

    def _allocate(self, entries: int) -> None:
        self._data = ctypes.create_string_buffer(entries * self._entry_bytes)
        self._bytes = memoryview(self._data).cast("B")
