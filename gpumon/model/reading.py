"""A reading: one value, or the reason why there is none.

The type for "no value" neither compares nor calculates, so that code which forgets to ask
fails loudly instead of taking a missing value for 0 (nvitop's NA >= 90 is true).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Union

_S = TypeVar("_S")
_T = TypeVar("_T")

#: Reason -> the letter that stands for it on the wire. The letters are part of the format.
REASONS = {
    "unsupported": "u",  # this device, driver or kernel has no such reading
    "no-permission": "p",  # only another user may read it
    "lost": "l",  # the device fell off the bus
    "timeout": "t",  # the call has not come back in time
    "stale": "s",  # there was a value; it is too old to stand for now
    "not-sampled": "n",  # not read yet
    "no-driver": "d",  # no NVIDIA driver on this node
    "mig": "m",  # not available while MIG is on
    "measuring": "r",  # a rate needs two readings, this was the first
    "implausible": "i",  # outside the range that the quantity can have
    "error": "e",  # the driver answered with an error that is none of the above
    "namespace": "x",  # the process lives in another PID namespace
    "ended": "g",  # the process was gone before it could be read
}
REASON_OF_LETTER = {letter: reason for reason, letter in REASONS.items()}


class Missing:
    """No value, and why. `detail` is for people ("needs Hopper", "driver 470")."""

    __slots__ = ("detail", "reason")

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise ValueError(f"unknown reason {reason!r}")
        self.reason = reason
        self.detail = detail

    def __eq__(self, other: object) -> bool:
        """Same reason; the detail is only wording."""
        return isinstance(other, Missing) and other.reason == self.reason

    def __hash__(self) -> int:
        return hash(self.reason)

    def __bool__(self) -> bool:
        raise TypeError("a missing reading has no truth value; ask isinstance(x, Missing)")

    def __repr__(self) -> str:
        return f"Missing({self.reason!r}, {self.detail!r})"

    def __str__(self) -> str:
        """As screens and reports show it: `n/a MIG`, `lost`, `n/a needs Hopper`."""
        if self.reason == "lost":
            return f"lost {self.detail}".rstrip()
        if self.detail:
            return f"n/a {self.detail}"
        return _SHOWN.get(self.reason, f"n/a {self.reason}")


_SHOWN = {
    "unsupported": "n/a",
    "mig": "n/a MIG",
    "lost": "lost",
    "timeout": "hung",
    "stale": "stale",
    "measuring": "…",
    "not-sampled": "…",
    "no-permission": "n/a permission",
}

Reading = Union[int, float, str, Missing]

UNSUPPORTED = Missing("unsupported")
NO_PERMISSION = Missing("no-permission")
LOST = Missing("lost")
TIMEOUT = Missing("timeout")
NOT_SAMPLED = Missing("not-sampled")
MIG = Missing("mig")
MEASURING = Missing("measuring")
IMPLAUSIBLE = Missing("implausible")
NAMESPACE = Missing("namespace")
ENDED = Missing("ended")


def then(value: _S | Missing, function: Callable[[_S], _T | None], what: str = "") -> _T | Missing:
    """The function of what is known; what it cannot read (None) is an error."""
    if isinstance(value, Missing):
        return value
    result = function(value)
    if result is None:
        return Missing("error", f"{what} is unreadable" if what else "")
    return result


def number(reading: Any) -> float | None:
    """The reading as a float, or None when it is missing, text, or a whole number beyond floats:
    for aggregates and charts.
    """
    if type(reading) is float:  # nearly all
        return reading
    if isinstance(reading, (int, float)) and not isinstance(reading, bool):
        try:
            return float(reading)
        except OverflowError:
            return None
    return None
