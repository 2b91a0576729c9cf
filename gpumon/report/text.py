"""The report's page in a terminal's colours, or plain."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.report.model import Report
from gpumon.report.page import Row, page, plain

#: role -> SGR codes of the 16 colours that every terminal has, in its own shades
_SGR = {
    "title": "1", "bad": "1;31", "attention": "33", "good": "32", "busy": "32", "mem": "34",
    "key": "1;36", "dim": "2", "unknown": "2",
}  # fmt: skip


def text(report: Report, width: int = 80, *, coloured: bool = False, ascii_: bool = False) -> str:
    """The page, with plots where there are colours to tell their lines; ends with a newline."""
    rows = page(report, width, "ascii" if ascii_ else "braille", plots=coloured)
    lines = _coloured(rows) if coloured else list(plain(rows))
    return "\n".join(lines) + "\n"


def _coloured(rows: Sequence[Row]) -> list[str]:
    return [
        "".join(f"\x1b[{_SGR[role]}m{part}\x1b[0m" if role in _SGR else part for part, role in row)
        for row in rows
    ]
