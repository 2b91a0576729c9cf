"""Waiting for something to become true, with a bound that only what hangs reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, Union

#: only what hangs takes as long as this
HANGS_S = 300
#: s between two looks: first, and at most where they cost nothing
_PAUSES_S = (0.01, 0.1)
#: s; at most where a look starts programs, which leaves two thirds of the time to others
_COSTLY_S = 1.0

T = TypeVar("T")


def until(
    holds: Callable[[], T],
    what: Union[str, Callable[[], object]] = "it did not become true",
    timeout_s: float = HANGS_S,
) -> T:
    """Wait until something is true; returns what it was. `what` explains a failure."""
    deadline = time.monotonic() + timeout_s
    pause_s, longest_s = _PAUSES_S
    began = time.monotonic()
    while not (found := holds()):
        if (now := time.monotonic()) >= deadline:
            why = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s:g} s: {why}")
        time.sleep(max(pause_s, min(2 * (now - began), _COSTLY_S)))
        pause_s = min(pause_s * 1.5, longest_s)
        began = time.monotonic()
    return found
