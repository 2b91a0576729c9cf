"""Times as `sacct -S` takes them, where there is no sacct."""

from __future__ import annotations

import re
import time

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_AGO = re.compile(rf"now-(\d{{1,9}})({'|'.join(_UNITS)}|)s?")
_FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def since_epoch(text: str, now: float) -> float | None:
    """Epoch seconds of `now-3days`, `2026-11-20`, `2026-11-20T08:00`; None for another form."""
    if text == "now":
        return now
    if found := _AGO.fullmatch(text):
        return now - int(found[1]) * _UNITS[found[2] or "second"]
    for form in _FORMS:
        try:
            return time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    return None
