"""Making foreign text safe: what comes from jobs, nodes, processes and files is hostile."""

from __future__ import annotations

import re

# C0 and C1 controls, DEL, line and paragraph separators, direction overrides and isolates,
# zero-width characters, byte order mark, interlinear marks, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
MAX_TEXT = 4096


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """The text without characters that could move a cursor, change colours or reorder a line.

    Tabs and line ends become blanks, everything else unsafe becomes `?`, so that nothing
    vanishes unseen. Cut to `limit` characters.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():  # nearly all text; seven times cheaper
        return text
    return _UNSAFE.sub(lambda match: " " if match.group() in "\t\n\r" else "?", text)


def shown(value: object) -> str:
    """A value as Python writes it, for an error about it: cleaned, and short."""
    try:
        return clean(repr(value), 80)
    except (ValueError, RecursionError):  # more digits than Python writes, or deeper than it goes
        return "this"
