"""The one answer of a report: a problem, no problem, or not judged, and why."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.units import plural
from gpumon.report.model import Report
from gpumon.report.provenance import missing_text

PROBLEM, NONE, NOT_JUDGED = "problem", "no problem", "not judged"
#: checks without which nobody knows whether a job, a node's GPUs, or a job without GPUs did well
_OF_GPUS = ("gpu-never-used", "gpus-partly-idle")
_OF_NODE = ("suspected-hang", "low-busy")
_OF_CORES = ("cpu-never-used",)


class Verdict(NamedTuple):
    """`because`: of a problem the ids of its findings, worst first, and `events`; of what was not
    judged what lacked.
    """

    answer: str
    because: tuple[str, ...] = ()


def verdict(report: Report) -> Verdict:
    """A problem is a finding that warns, or an event that does; information is none."""
    worst = [each.id for each in report.findings if each.level != "info"]
    events = [each for each in report.happenings if each.level != "info"]
    if worst or events:
        return Verdict(PROBLEM, (*dict.fromkeys(worst), *(["events"] if events else [])))
    asked = (_OF_GPUS if report.job.raw_id else _OF_NODE) if report.gpus else _OF_CORES
    known = report.not_evaluable
    lacks = dict.fromkeys(missing_text(known[each]) for each in asked if each in known)
    return Verdict(NOT_JUDGED, tuple(lacks)) if lacks else Verdict(NONE)


def in_words(report: Report) -> tuple[str, str]:
    """(sign, sentence) of what no finding says; "" and "" where they say all."""
    found = verdict(report)
    if report.job.is_pending or (found.answer == PROBLEM and report.findings):
        return "", ""
    if found.answer == PROBLEM:
        return "warning", "No finding, but see the events below."
    skipped = plural(len(report.not_evaluable), "check")
    more = f" ({skipped} skipped, listed below)" if report.not_evaluable else ""
    if found.answer == NOT_JUDGED:
        return "unknown", f"Not judged: {'; '.join(found.because)}{more}."
    return ("", "") if report.findings else ("good", f"No problems found{more}.")
