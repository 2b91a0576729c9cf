"""The results as Markdown, and their place in README.md."""

from __future__ import annotations

import datetime
import os
import platform
import re
from pathlib import Path

from benchmarks.budgets import Results, judge
from benchmarks.measure import Failed, LiveFigures, ShotFigures
from benchmarks.programs import Found

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
MIB = 2**20


def rows_table(head: list[str], rows: list[list[str]]) -> str:
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, marks, *rows])


def live_row(name: str, result: LiveFigures) -> list[str]:
    children = f" ({result.child_cpu_percent:.2f})" if result.child_pss_bytes else ""
    child_memory = f" ({result.child_pss_bytes / MIB:.1f})" if result.child_pss_bytes else ""
    return [
        name,
        f"{result.cpu_percent:.2f}{children}",
        f"{result.pss_bytes / MIB:.1f}{child_memory}",
        f"{result.rss_bytes / MIB:.1f}",
        f"{result.nvml_calls_per_s:.0f} ({result.nvml_failing_per_s:.0f})",
        f"{result.output_bytes_per_s:.0f}",
        f"{result.updates_per_s:.1f}",
        f"{result.first_byte_s:.3f}",
        f"{result.first_screen_s:.3f}",
        f"{result.first_screen_cpu_s:.3f}",
    ]


def live_table(results: Results) -> str:
    head = ["", "CPU % (children)", "PSS MiB (children)", "RSS MiB", "NVML calls/s (failing)"]
    head += ["output bytes/s", "updates/s", "first byte s", "first screen s"]
    head += ["CPU s until then (children too)"]
    rows = [live_row(name, each) for name, each in results.items() if isinstance(each, LiveFigures)]
    return rows_table(head, rows)


def shot_table(results: Results) -> str:
    rows = [
        [f"`{name}`", f"{result.wall_s:.3f}", f"{result.cpu_s:.3f}"]
        for name, result in results.items()
        if isinstance(result, ShotFigures)
    ]
    return rows_table(["", "wall s", "CPU s"], rows)


def budget_table(results: Results) -> str:
    rows = []
    for verdict in judge(results):
        budget = verdict.budget
        unit = MIB if budget.figure == "pss_bytes" else 1
        limit = "" if verdict.limit is None else f"{verdict.limit / unit:.3g}"
        rule = f"{budget.factor:.2g} × {budget.peer}" if budget.peer else ""
        ours = "" if verdict.ours is None else f"{verdict.ours / unit:.3g}"
        rows.append([budget.what, ours, limit, rule, verdict.word])
    return rows_table(["budget", "gpumon", "at most", "which is", "verdict"], rows)


def machine(found: Found) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    load1, load5, _ = os.getloadavg()
    return [
        f"{datetime.date.today():%Y-%m-%d}; {os.cpu_count()} cores ({platform.machine()}), Linux "
        f"{platform.release()}, Python {platform.python_version()}; load average at the end "
        f"{load1:.2f} (1 min), {load5:.2f} (5 min).",
        f"Versions: {versions}.",
    ]


def report(results: Results, found: Found, command: str) -> str:
    lines = [f"`{command}`", "", *machine(found)]
    for name, why in found.missing.items():
        lines.append(f"Not measured: {name} ({why}).")
    for name, result in results.items():
        if isinstance(result, Failed):
            lines.append(f"Failed: {name}: {result.reason}.")
    parts = ["\n".join(lines), live_table(results), shot_table(results), budget_table(results)]
    # where things lie on this machine is nobody's business: file names without their folders
    return re.sub(r"(?<![\w.])/[\w./+-]*/", "", "\n\n".join(parts))


def write(text: str) -> None:
    """Put the results between the two marks of README.md."""
    before, rest = README.read_text().split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
