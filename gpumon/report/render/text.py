"""The report's page in a terminal's colours, or plain."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.report.model import Report
from gpumon.report.render.forms import Medium
from gpumon.report.render.layout import Row, plain
from gpumon.report.render.page import page
from gpumon.report.render.table import are_several, text_table

#: role -> SGR codes of the 16 colours that every terminal has, in its own shades
_SGR = {
    "title": "1", "bad": "1;31", "attention": "33", "good": "32", "busy": "32", "mem": "34",
    "key": "1;36", "dim": "2", "unknown": "2",
}  # fmt: skip


def render(reports: Sequence[Report], medium: Medium) -> str:
    """A page for each, or of several jobs a table."""
    columns = medium.columns
    if are_several(reports):
        return text_table(reports, columns or 200)
    width = min(max(columns, 60), 100) if columns else 80
    how = {"coloured": medium.is_coloured, "ascii_": medium.is_ascii, "whole": medium.is_whole}
    return "\n".join(text(each, width, **how) for each in reports)


def text(
    report: Report, width: int = 80, *, coloured: bool = False, ascii_: bool = False,
    whole: bool = True,
) -> str:  # fmt: skip
    """The page, with plots where there are colours to tell their lines; ends with a newline."""
    rows = page(report, width, "ascii" if ascii_ else "braille", plots=coloured, whole=whole)
    lines = _coloured(rows) if coloured else list(plain(rows))
    return "\n".join(lines) + "\n"


def _coloured(rows: Sequence[Row]) -> list[str]:
    return [
        "".join(f"\x1b[{_SGR[role]}m{part}\x1b[0m" if role in _SGR else part for part, role in row)
        for row in rows
    ]
