"""Two recorded runs side by side."""

from __future__ import annotations

from typing import Any

from gpumon.analysis.comparison import compare
from gpumon.analysis.summary import run_summary
from gpumon.report.comparison import comparison_json, comparison_text
from gpumon.services.runs import read_run


def compared_text(a: str, b: str) -> str:
    """79 columns. Raises GpumonError."""
    of_a, of_b = (run_summary(read_run(name)) for name in (a, b))
    return comparison_text((a, b), of_a, of_b, compare(of_a, of_b))


def compared_json(a: str, b: str) -> dict[str, Any]:
    """The same as docs/json.md has it."""
    of_a, of_b = (run_summary(read_run(name)) for name in (a, b))
    return comparison_json((a, b), of_a, of_b, compare(of_a, of_b))
