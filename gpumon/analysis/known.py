"""Figures over values of which some may not be known (None), and over spans of time."""

from __future__ import annotations

from collections.abc import Iterable

Values = Iterable["float | None"]


def mean(values: Values) -> float | None:
    """None as soon as one is missing, as `total`."""
    in_all = total(known := list(values))
    return None if in_all is None else in_all / len(known)


def largest(values: Values) -> float | None:
    """The highest; None as soon as one is missing, which may be higher."""
    return None if None in (known := list(values)) else highest(known)


def highest(values: Values) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return max(known) if known else None


def total(values: Values) -> float | None:
    """None as soon as one is missing: a part is no total."""
    known = list(values)
    return None if not known or None in known else sum(value or 0.0 for value in known)


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The most of these (start, end) that there were at one time; one that begins when another ends
    was not there with it.
    """
    changes = (change for start, end in spans for change in ((start, 1), (end, -1)))
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
