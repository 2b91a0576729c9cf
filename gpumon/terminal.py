"""What this terminal can show, decided before the screen starts. Standard library only."""

from __future__ import annotations

import codecs
import os
import sys
import unicodedata


def can_show_screen() -> str:
    """Why the dashboard cannot open here, in words; empty when it can."""
    for stream, name in ((sys.stdout, "output"), (sys.stdin, "input")):
        if stream is None or not stream.isatty():
            return f"the {name} is not a terminal"
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return f"TERM is {os.environ.get('TERM', '') or 'not set'}"
    return ""


def prepare_output() -> bool:
    """Fit the streams to the locale; returns False where only ASCII should be drawn.

    Where the locale is not UTF-8, names and units go out as
    their nearest in ASCII, cell for cell: anything else would arrive as garbage or as escapes.
    """
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    utf8 = "utf" in next((name for name in names if name), "").lower()
    codecs.register_error("gpumon-nearest", _nearest)
    for stream in (sys.__stderr__, sys.__stdout__):
        if stream is not None and not utf8:
            stream.reconfigure(encoding="ascii", errors="gpumon-nearest")
        elif stream is not None and "utf" not in (stream.encoding or "").lower():
            stream.reconfigure(encoding="utf-8", errors="replace")
    # the Linux console's font holds 256 or 512 characters, and braille is none of them
    return utf8 and os.environ.get("TERM") != "linux"


_NEAREST = {"°": " ", "·": "-", "×": "x", "…": "~", "←": "<", "→": ">", "↑": "^", "↓": "v"}


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """An encoding's error handler that keeps every character's number of cells."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(char: str) -> str:
    if unicodedata.combining(char):
        return ""
    wide = unicodedata.east_asian_width(char) in ("W", "F")
    return _NEAREST.get(char, "??" if wide else "?")


def colours() -> int:
    """How many colours: 2**24, 256, 16, or 0 for none (NO_COLOR, VT100 and its like)."""
    if os.environ.get("NO_COLOR"):
        return 0
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ.get("TERM", "")
    if "256color" in term or term in ("xterm-kitty", "alacritty", "foot"):
        return 256
    return 0 if term.startswith("vt") else 16
