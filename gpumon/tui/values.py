"""How a reading looks: its value, its reason, or its value with its age."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.model.reading import Missing, Reading, number
from gpumon.model.units import age_text
from gpumon.model.view import Latest
from gpumon.tui.lines import Run

Format = Callable[[float], str]


def percent(value: float) -> str:
    return f"{value:.0f} %"


def watts(value: float) -> str:
    return f"{value:.0f} W"


def celsius(value: float) -> str:
    return f"{value:.0f} °C"


def shown(latest: Latest, form: Format, role: str = "") -> Run:
    """A run for one reading: never a number that is not true now without its age."""
    reading = latest.reading
    if isinstance(reading, Missing):
        return str(reading), "unknown"
    value = number(reading)
    text = str(reading) if value is None else form(value)
    if not latest.fresh:
        return f"{text} ({age_text(latest.age_s)} old)", "dim"
    return text, role


def value_of(latest: Latest) -> float | None:
    """The number, if there is one and it is true now."""
    return number(latest.reading) if latest.fresh else None


def brief(reading: Reading, form: Format) -> str:
    """For narrow columns: the value, or the reason in few letters."""
    if isinstance(reading, Missing):
        return _BRIEF.get(reading.reason, "n/a")
    value = number(reading)
    return str(reading) if value is None else form(value)


_BRIEF = {"lost": "lost", "measuring": "…", "not-sampled": "…", "timeout": "late", "stale": "old"}
