"""What this terminal can show, decided before the screen starts. Standard library only."""

from __future__ import annotations

import os
import sys


def can_show_screen() -> str:
    """Why the dashboard cannot open here, in words; empty when it can."""
    for stream, name in ((sys.stdout, "output"), (sys.stdin, "input")):
        if stream is None or not stream.isatty():
            return f"the {name} is not a terminal"
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return f"TERM is {os.environ.get('TERM', '') or 'not set'}"
    return ""


def prepare_output() -> bool:
    """Make the streams able to carry braille; returns False where only ASCII should be used.

    Textual writes to `sys.__stderr__`; with latin-1 there, escapes would appear instead of braille.
    """
    utf8 = (
        "utf"
        in (
            os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
        ).lower()
    )
    for stream in (sys.__stderr__, sys.__stdout__):
        if stream is not None and "utf" not in (stream.encoding or "").lower():
            stream.reconfigure(encoding="utf-8", errors="replace")
    return utf8


def colours() -> int:
    """How many colours: 2**24, 256, 16, or 0 for none (NO_COLOR)."""
    if os.environ.get("NO_COLOR"):
        return 0
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ.get("TERM", "")
    if "256color" in term or term in ("xterm-kitty", "alacritty", "foot"):
        return 256
    return 16
