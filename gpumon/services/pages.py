"""A job's report as a page for the terminal."""

from __future__ import annotations

import shutil

from gpumon.report.render.forms import Medium, render
from gpumon.services.reports import make_reports
from gpumon.services.request import Request, listed
from gpumon.terminal import colours, prepare_output


def terminal_medium(*, is_list: bool = False) -> Medium:
    """The terminal of this process, as wide and as colourful as it is."""
    columns = shutil.get_terminal_size((80, 24)).columns
    return Medium(columns, colours() > 0, not prepare_output(), is_list)


def report_page(id: str, medium: Medium) -> tuple[str, list[str]]:
    """The report of this job or run, and notes on it. Raises GpumonError."""
    reports, notes, _ = make_reports(Request(runs=listed([id])))
    return render("text", reports, medium), notes
