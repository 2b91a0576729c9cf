"""On what a report rests: source, coverage, and which checks could not be made."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.rules.phrasing import labels_text
from gpumon.analysis.rundata import Part
from gpumon.model.units import age_text, plural
from gpumon.report.model import Report

_MAX_REASONS, _MAX_REASON = 3, 60
#: what a check lacks, where it has nothing more to say of it
_LACKS = {
    Lack.RECORDING: "needs a recording",
    Lack.SLURM: "needs Slurm's record of the job",
    Lack.END: "known when the job has ended",
    Lack.JOB: "no job holds the GPUs",
    Lack.READINGS: "too few readings",
    Lack.TIME: "too short to evaluate",
}
_SOURCES = {
    "recording": "recording",
    "live": "live samples",
    "jobstats": "jobstats' summary in Slurm's accounting: means and maxima only, no time series",
    "sacct": "Slurm's accounting: totals only, no time series",
    "prometheus": "Prometheus",
}


def provenance_lines(report: Report, *, whole: bool = True) -> list[str]:
    """Source, missing values and notes; `whole`: skipped checks as well."""
    coverage = report.coverage
    words = [_SOURCES.get(coverage.source, coverage.source)]
    if coverage.source == "sacct" and report.job.is_pending:
        words = ["Slurm's queue"]
    elif coverage.source == "sacct" and report.running and not report.tasks:
        words = ["Slurm's queue and sstat, while it runs"]
    if coverage.parts:
        words = [_parts_text(coverage.parts)]
    elif coverage.interval_s:
        words += [f"{coverage.interval_s:g} s", f"{coverage.covered_percent:.1f} % of the run"]
    if coverage.interval_s and coverage.gaps:
        longest = f" (longest {age_text(coverage.longest_gap_s)})"
        words.append(plural(coverage.gaps, "gap") + (longest if coverage.longest_gap_s else ""))
    text = f"Source: {', '.join(words)}. gpumon {report.version}"
    if report.start is not None:
        what = "job" if report.has_job else "recording"
        text += time.strftime(f", {what} began %Y-%m-%d %H:%M", time.localtime(report.start))
    missing = [f"{what}: {why}" for what, why in sorted(coverage.missing.items())]
    skipped = _not_checked(report) if whole else ""
    return [line for line in (text, *missing, *report.notes, skipped) if line]


def _parts_text(parts: Sequence[Part]) -> str:
    """`recording, 1 s, 52.0 % of the run; Prometheus, 30 s, another 47.9 %`."""
    first, *others = parts
    texts = [f"{_SOURCES[first.source]}, {first.interval_s:g} s, {first.percent:.1f} % of the run"]
    texts += [
        f"{_SOURCES[each.source]}, {each.interval_s:g} s, another {each.percent:.1f} %"
        for each in others
    ]
    return "; ".join(texts)


def _not_checked(report: Report) -> str:
    """How many checks lacked data, and which, most often."""
    reasons = Counter(map(_short, report.not_evaluable.values())).most_common()
    if not reasons or report.job.is_pending:
        return ""
    named = [f"{why} ({count})" for why, count in reasons[:_MAX_REASONS]]
    more = sum(count for _, count in reasons[_MAX_REASONS:])
    named += [f"{more} for other reasons (--format json lists all)"] if more else []
    count = len(report.not_evaluable)
    return f"{plural(count, 'check')} skipped: {' · '.join(named)}"


def _short(missing: NotEvaluable) -> str:
    """As a user needs it: what only samples tell is what only a recording has."""
    if missing.kind == Lack.RECORDING:
        return _LACKS[Lack.RECORDING]
    why = missing_text(missing)
    return why if len(why) <= _MAX_REASON else f"{why[: _MAX_REASON - 1].rstrip()}…"


def missing_text(missing: NotEvaluable) -> str:
    """Why a check could not be made: `gpu01:0,1: busy % n/a MIG`."""
    parts = []
    for each in (missing, *missing.more):
        what = each.detail or _LACKS.get(each.kind, each.kind.value)
        parts.append(f"{labels_text(each.subjects)}: {what}" if each.subjects else what)
    return "; ".join(parts)
