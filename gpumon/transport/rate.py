"""How much a live stream may send: one that sends far more is ended, before it fills anything."""

from __future__ import annotations

import time
from collections.abc import Callable

#: what comes at once when a connection was held up and continues: bytes, and samples
BURST_BYTES, BURST_SAMPLES = 16 << 20, 2400
#: for good; the fastest agent sends 10 samples a second, of 20 KB on a busy node
BYTES_PER_S, SAMPLES_PER_S = 3 << 20, 20.0
#: what is neither a sample nor blank (a header, a line that cannot be read) counts for so many:
#: an agent sends a header when something in it has changed
_SAMPLES_A_HEADER = 10


class TooFast(Exception):
    """A stream that sends more than any agent does; the text says how much."""


class Rate:
    """Counts what one stream sends. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._at = clock()
        self._room_bytes: float = BURST_BYTES
        self._room_samples: float = BURST_SAMPLES
        self._bytes = self._samples = 0

    def take(self, size: int, *, is_sample: bool) -> None:
        """One line of so many bytes. Raises TooFast."""
        now = self._clock()
        passed_s, self._at = now - self._at, now
        count = 1 if is_sample else _SAMPLES_A_HEADER
        self._bytes += size
        self._samples += 1
        self._room_bytes = min(self._room_bytes + BYTES_PER_S * passed_s, BURST_BYTES) - size
        self._room_samples = (
            min(self._room_samples + SAMPLES_PER_S * passed_s, BURST_SAMPLES) - count
        )
        if self._room_bytes < 0 or self._room_samples < 0:
            raise TooFast(
                f"cut off: it sent {self._samples} lines with {self._bytes / 1e6:.1f} MB "
                f"in {now - self._began:.0f} s, far more than its interval allows"
            )
