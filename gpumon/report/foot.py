"""On what a report rests: source, coverage, and what could not be judged."""

from __future__ import annotations

import time
from collections import Counter

from gpumon.model.units import age_text
from gpumon.report.model import Report

_MAX_REASONS, _MAX_REASON = 3, 60
_SOURCES = {
    "recording": "recording",
    "live": "live samples",
    "jobstats": "jobstats' summary in Slurm's accounting: means and maxima, no course over time",
    "sacct": "Slurm's accounting alone: totals, no course over time",
    "prometheus": "Prometheus",
}


def foot_lines(report: Report) -> list[str]:
    """The source in one line, then what is missing, notes, and what could not be judged."""
    coverage = report.coverage
    words = [_SOURCES.get(coverage.source, coverage.source)]
    if coverage.source == "sacct" and report.job.is_pending:
        words = ["Slurm's queue"]
    elif coverage.source == "sacct" and report.running and not report.tasks:
        words = ["Slurm's queue and sstat, while it runs"]
    if coverage.interval_s:
        words.append(f"{coverage.interval_s:g} s")
        words.append(f"{coverage.covered_percent:.1f} % of the run")
        if coverage.gaps:
            plural = "s" if coverage.gaps > 1 else ""
            longest = f" (longest {age_text(coverage.longest_gap_s)})"
            words.append(f"{coverage.gaps} gap{plural}{longest if coverage.longest_gap_s else ''}")
    text = f"Source: {', '.join(words)}. gpumon {report.version}"
    if report.start is not None:
        text += time.strftime(", job began %Y-%m-%d %H:%M", time.localtime(report.start))
    missing = [f"{what}: {why}" for what, why in sorted(coverage.missing.items())]
    return [line for line in (text, *missing, *report.notes, _not_judged(report)) if line]


def _not_judged(report: Report) -> str:
    """How many checks lacked data, and which, most often."""
    reasons = Counter(map(_reason, report.not_evaluable.values())).most_common()
    if not reasons or report.job.is_pending:
        return ""
    named = [f"{why} ({count})" for why, count in reasons[:_MAX_REASONS]]
    more = sum(count for _, count in reasons[_MAX_REASONS:])
    named += [f"other reasons ({more})"] if more else []
    count = len(report.not_evaluable)
    return f"Not judged, {count} check{'s' if count > 1 else ''}: {' · '.join(named)}"


def _reason(why: str) -> str:
    """As a user needs it: what only samples tell is what only a recording has."""
    if why.startswith("no samples") or why.endswith("needs a recording"):
        return "needs a recording"
    return why if len(why) <= _MAX_REASON else f"{why[: _MAX_REASON - 1].rstrip()}…"
