"""How often samples really come: a stream's own word for it must not switch off what ages."""

from __future__ import annotations

from collections import deque
from math import ceil, inf
from typing import Deque, Optional

#: the longest of so many spacings counts, so that some that come late together mislead nobody
_KEPT = 8
#: of fewer nothing is concluded: the first sample comes at once, the second on the clock's grid
_ENOUGH = 3
#: a claim this many times as long as what is observed is not believed
_TIMES = 2.0
_LEAST_S = 0.1  # the shortest interval that gpumon itself has


class Spacing:
    """Of the samples of one stream, by any one clock."""

    def __init__(self) -> None:
        self._last: Optional[float] = None
        self._seen: Deque[float] = deque(maxlen=_KEPT)
        self._longest_s = inf  # of those; inf: they are too few

    def note(self, time: float) -> None:
        """A sample came."""
        if self._last is not None and time > self._last:
            self._seen.append(time - self._last)
            if len(self._seen) >= _ENOUGH:
                self._longest_s = max(self._seen)
        self._last = time

    def clear(self) -> None:
        """Another stream begins."""
        self._last = None
        self._seen.clear()
        self._longest_s = inf

    def interval_s(self, claimed_s: float) -> float:
        """What the stream claims, unless samples come far more often: then what was observed."""
        seen_s = self._longest_s
        return claimed_s if claimed_s <= _TIMES * seen_s else max(ceil(seen_s * 10) / 10, _LEAST_S)
