"""Lays text out: rows of (text, role) runs that wrap and flow, and columns of text."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

from gpumon.model.text import clean
from gpumon.model.units import bytes_text

Row = list[tuple[str, str]]

SIGNS = {"critical": "●", "warning": "▲", "info": "·", "good": "✓", "unknown": "?"}
ASCII_SIGNS = {"critical": "!", "warning": "^", "info": "-", "good": "+", "unknown": "?"}
ROLES = {"critical": "bad", "warning": "attention", "info": "dim"}
NOT_KNOWN = "n/a"


def wrapped(
    sign: str, text: str, width: int, sign_role: str, role: str, indent: int = 2
) -> list[Row]:
    """`text` wrapped behind a hanging `sign`."""
    text = clean(text, 2000)
    lead = " " * (indent if not sign else max(0, indent - 2))
    head = f"{lead}{sign} " if sign else lead
    hang = " " * len(head)
    lines = textwrap.wrap(text, max(20, width - len(head)), break_long_words=True) or [""]
    rows: list[Row] = [[(head, sign_role), (lines[0], role)]]
    rows += [[(hang, ""), (line, role)] for line in lines[1:]]
    return rows


def leveled(level: str, text: str, width: int, glyphs: str) -> list[Row]:
    """`text` behind the sign of its level, in its colour; mere information is not dim itself."""
    role = ROLES.get(level, level)
    sign = (ASCII_SIGNS if glyphs == "ascii" else SIGNS)[level]
    return wrapped(sign, text, width, role, "" if role == "dim" else role)


def columns(cells: Sequence[str], first: int, widths: Sequence[int], gap: str = "") -> str:
    """A row of a table of figures: a name, and as many cells behind it as there are widths."""
    figures = (f"{gap}{cell:>{width}}" for cell, width in zip(cells[1:], widths))
    return f"{cells[0]:<{first}}{''.join(figures)}"


def cut(row: Row, width: int) -> Row:
    """The row in at most `width` cells; only tables in a narrow terminal are ever longer."""
    kept: Row = []
    for text, role in row:
        if text[:width]:
            kept.append((text[:width], role))
        width -= len(text[:width])
    return kept


def flow(parts: Sequence[tuple[str, str]], width: int, gap: str = "   ") -> list[Row]:
    """Parts side by side, on as many rows as they need."""
    rows: list[Row] = []
    used = 0
    for text, role in parts:
        if not text:
            continue
        if rows and used + len(gap) + len(text) <= width:
            rows[-1] += [(gap, ""), (text, role)]
            used += len(gap) + len(text)
        else:
            lead = "  " if rows else ""
            for part in textwrap.wrap(text, max(20, width - len(lead))):
                rows.append([(lead, ""), (part, role)])
                used = len(lead) + len(part)
    return rows


def plain(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield "".join(text for text, _ in row).rstrip()


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line per row, two blanks between columns; the columns in `right` end at one edge."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def percent(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}"


def size(value: float | None) -> str:
    return NOT_KNOWN if value is None else bytes_text(value)


def watts(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f} W"
