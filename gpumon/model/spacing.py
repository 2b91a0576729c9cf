"""How samples really come: how often, because a stream's own word for it must not switch off what
ages, and how late.
"""

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
#: of so long the least delay of samples is remembered, and of as long before
_DELAYS_S = 120.0


class Spacing:
    """Of the samples of one stream."""

    def __init__(self) -> None:
        #: the least delay of the samples of some minutes: of one that was not held up on its way
        self.delay_s = 0.0
        self.clear()

    def clear(self) -> None:
        """Another stream begins; the delay stands until its first sample tells a new one."""
        self._last: Optional[float] = None
        self._seen: Deque[float] = deque(maxlen=_KEPT)
        self._longest_s = inf  # of those; inf: they are too few
        self._before = self._least = inf
        self._began = (inf, inf)

    def note(self, time: float, received: Optional[float] = None) -> None:
        """A sample of this time came; `received`: when, by another clock."""
        at = time if received is None else received
        if self._last is not None and at > self._last:
            self._seen.append(at - self._last)
            if len(self._seen) >= _ENOUGH:
                self._longest_s = max(self._seen)
        self._last = at
        if received is not None:
            self._note_delay(time, received)

    def _note_delay(self, time: float, received: float) -> None:
        """Some minutes by both clocks: what a stall held up arrives at once, all late but for the
        last.
        """
        if self._least == inf:
            self._began = time, received
        elif min(time - self._began[0], received - self._began[1]) >= _DELAYS_S:
            self._before, self._least, self._began = self._least, inf, (time, received)
        self._least = min(self._least, received - time)
        self.delay_s = min(self._before, self._least)

    def interval_s(self, claimed_s: float) -> float:
        """What the stream claims, unless samples come far more often: then what was observed."""
        seen_s = self._longest_s
        return claimed_s if claimed_s <= _TIMES * seen_s else max(ceil(seen_s * 10) / 10, _LEAST_S)
