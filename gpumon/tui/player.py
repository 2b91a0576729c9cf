"""What the screen asks of a source that plays recordings."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Player(Protocol):
    """A source with a clock that can be held, set and hurried; see `sources.replay`."""

    origin: float  # epoch seconds at which the recording begins
    end: float | None  # and ends; None where that is not known
    speed: float
    seeking: bool
    at_end: bool

    @property
    def aim(self) -> float: ...
    @property
    def paused(self) -> bool: ...
    def now(self) -> float: ...
    def pause(self) -> None: ...
    def set_speed(self, speed: float) -> None: ...
    def seek(self, to: float) -> None: ...
    def next_event(self) -> None: ...


def parse_moment(text: str, origin: float, now: float) -> float | None:
    """Epoch seconds for `12:31`, `12:31:07` (on the day shown), `+90`, `-10m`, `1h30m` (from the
    beginning); None if the text is no time.
    """
    text = text.strip().lower()
    if text[:1] in ("+", "-"):
        span = _span(text[1:])
        return None if span is None else now + (span if text[0] == "+" else -span)
    parts = text.split(":")
    if len(parts) in (2, 3) and all(part.isascii() and part.isdecimal() for part in parts):
        hours, minutes, seconds = (*map(int, parts), 0)[:3]
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        day = time.localtime(now)
        clock = (hours, minutes, seconds)
        return time.mktime((*day[:3], *clock, *day[6:8], -1))
    span = _span(text)
    return None if span is None else origin + span


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _span(text: str) -> float | None:
    """Seconds of `90`, `10m`, `1h30m`."""
    total, number = 0.0, ""
    for char in text + ("s" if text[-1:].isdecimal() else ""):
        if char.isascii() and (char.isdecimal() or char == "."):
            number += char
        elif char in _UNITS_S and number.replace(".", "", 1).isdecimal():
            total += float(number) * _UNITS_S[char]
            number = ""
        else:
            return None
    return total if text and not number and total < 1e9 else None
