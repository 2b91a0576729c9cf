"""Events and readings of a digest: they travel as lines of the wire.

So they are checked and cleaned by the same decoder as the lines that the digest is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.model.sample import Event, Header, Rows, Sample
from gpumon.wire import Decoder, Encoder

_HEADER = Encoder().header(Header("", "", 0.0, 0.0, 1.0, ""))
_EVENTS_PER_LINE = 100  # of at most 5 KB each: a line stays well below its limit


def lines_of(events: Iterable[Event]) -> list[str]:
    """Events as lines; none for no events."""
    left = list(events)
    return [
        Encoder().sample(Sample(0.0, 0.0, {}, {}, left[at : at + _EVENTS_PER_LINE]))
        for at in range(0, len(left), _EVENTS_PER_LINE)
    ]


def events_of(lines: Sequence[str]) -> list[Event]:
    """The events of such lines. Raises WireError, TypeError."""
    return [event for line in lines for event in _sample(line).events]


def rows_line(rows: Rows) -> str:
    """Readings as a line."""
    return Encoder().sample(Sample(0.0, 0.0, rows))


def rows_of(line: str) -> Rows:
    """The readings of such a line. Raises WireError, TypeError."""
    return _sample(line).rows


def _sample(line: str) -> Sample:
    decoder = Decoder()
    decoder.line(_HEADER)
    item = decoder.line(line)
    if not isinstance(item, Sample):
        raise TypeError("another line was expected")
    return item
