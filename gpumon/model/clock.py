"""Our own clock: epoch seconds that never step, for ages, rates and durations.

It begins with the wall clock and continues with the time since boot, in which a suspended machine's
sleep counts, too. So neither a clock that is set nor a resume makes anything old or young. What the
wall clock shows is a label alone (`wall`).
"""

from __future__ import annotations

import time


def since_boot() -> float:
    """Seconds since boot, those in suspend included."""
    return time.clock_gettime(_BOOTTIME)


#: Linux; elsewhere a suspended machine's clock stands still
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEGAN = time.time() - since_boot()
#: s; less is how apart two readings may be, not a clock that was set
_SET_S = 1.0


def now() -> float:
    """Epoch seconds."""
    return _BEGAN + since_boot()


def set_by() -> float:
    """Seconds by which the wall clock was set since this process began; 0.0: it was not."""
    ahead_s = time.time() - now()
    return ahead_s if abs(ahead_s) >= _SET_S else 0.0


def wall(at: float) -> float:
    """A moment of `now` as the wall clock labels it today."""
    return at + set_by()
