"""Reports as CSV (RFC 4180), a line per job: figures by their names in the JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpumon.export.csv import harmless
from gpumon.report.model import Report
from gpumon.report.render.forms import Medium
from gpumon.report.render.json import document
from gpumon.report.render.table import ranked

#: paths into the JSON
COLUMNS = (
    "job.id", "job.name", "job.user", "job.account", "job.partition", "job.state", "job.start",
    "job.end", "job.elapsed_s", "job.time_limit_s",
    "allocated.cpus", "allocated.mem_bytes", "allocated.gpus", "allocated.nodes",
    "used.cpu_core_s", "used.mem_peak_bytes", "used.gpu_mem_peak_bytes",
    "efficiency.time_percent", "efficiency.cpu_percent", "efficiency.mem_percent",
    "efficiency.gpu_busy_percent", "efficiency.gpu_mem_percent",
    "gpu_hours", "waste_gpu_hours", "coverage.source", "coverage.covered_percent",
)  # fmt: skip


def render(reports: Sequence[Report], medium: Medium) -> str:
    """The greatest waste first; the last column names the findings, the worst first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "findings"])
    for report in ranked(reports):
        body = document(report)
        found = " ".join(each.id for each in report.findings)
        writer.writerow([*(_cell(body, path) for path in COLUMNS), found])
    return text.getvalue()


def _cell(body: dict[str, Any], path: str) -> Any:
    value: Any = body
    for part in path.split("."):
        value = value.get(part)
    return harmless(value) if isinstance(value, str) else value
