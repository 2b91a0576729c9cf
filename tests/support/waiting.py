"""Waiting for something to become true, with a bound that only what hangs reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, Union

#: only what hangs takes as long as this
HANGS_S = 120
#: s between two looks: first, and at most, as a look may itself start programs
_PAUSES_S = (0.01, 0.1)

T = TypeVar("T")


def until(
    holds: Callable[[], T],
    what: Union[str, Callable[[], object]] = "it did not become true",
    timeout_s: float = HANGS_S,
) -> T:
    """Wait until something is true; returns what it was. `what` explains a failure."""
    deadline = time.monotonic() + timeout_s
    pause_s, longest_s = _PAUSES_S
    while not (found := holds()):
        if time.monotonic() >= deadline:
            why = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s:g} s: {why}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, longest_s)
    return found
