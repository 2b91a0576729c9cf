"""The forms of `gpumon report`: one module and one line of this table each."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpumon.report.model import Report

#: name on the command line -> module of this package, which offers `render(reports, medium)`
FORMS = {"text": "text", "md": "markdown", "html": "html", "json": "json", "csv": "csv"}


class Medium(NamedTuple):
    """What the result is read on, as far as a form depends on it."""

    columns: int | None = None  # of the terminal; None: a file or a pipe
    is_coloured: bool = False
    is_ascii: bool = False
    is_list: bool = False  # several reports were asked for, even if there is one
    is_whole: bool = True  # with all findings, and all that there is to say of each


def render(form: str, reports: Sequence[Report], medium: Medium) -> str:
    """The reports in this form; ends with a newline."""
    module = importlib.import_module(f"gpumon.report.render.{FORMS[form]}")
    text: str = module.render(reports, medium)
    return text
