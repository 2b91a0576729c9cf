"""The one answer of a report: a problem, no problem, or not judged, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpumon.model.units import plural
from gpumon.report.model import Report
from gpumon.report.provenance import missing_text

PROBLEM, NONE, NOT_JUDGED = "problem", "no problem", "not judged"
ANSWERS = (PROBLEM, NOT_JUDGED, NONE)  # of several jobs the first that one of them has
#: checks without which nobody knows whether a job, a node's GPUs, or a job without GPUs did well
_OF_GPUS = ("gpu-never-used", "gpus-partly-idle")
_OF_NODE = ("suspected-hang", "low-busy")
_OF_CORES = ("cpu-never-used",)
_OF_ARRAY = ("array-gpu-idle",), ("array-cpu-over",)  # with GPUs, and without


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
    lacks = tuple(dict.fromkeys(_lacks(report)))
    return Verdict(NOT_JUDGED, lacks) if lacks else Verdict(NONE)


def _lacks(report: Report) -> Iterator[str]:
    asked = (_OF_GPUS if report.has_job else _OF_NODE) if report.gpus else _OF_CORES
    if report.tasks is not None:
        asked = _OF_ARRAY[not report.gpus]
    yield from (missing_text(report.not_evaluable[e]) for e in asked if e in report.not_evaluable)
    unrecorded = report.coverage.unrecorded
    if unrecorded and report.coverage.interval_s is not None:
        yield f"{plural(len(unrecorded), 'node')} not recorded"
    elif any(each.id == "low-coverage" for each in report.findings):
        yield "most of the run was not recorded"
    if report.devices and len(report.devices) < (report.job.gpus or 0):
        yield f"{report.job.gpus} GPUs allocated, {len(report.devices)} read"


def in_words(report: Report, where: str = ", listed below") -> tuple[str, str]:
    """(sign, sentence) of what no finding says; "" and "" where they say all. `where`: the checks
    that were skipped stand.
    """
    found = verdict(report)
    states = set(report.tasks.states) if report.tasks is not None else set()
    if report.job.is_pending or states == {"PENDING"}:
        return "", ""
    if found.answer == PROBLEM:
        return ("warning", "See the events below.") if found.because == ("events",) else ("", "")
    skipped = plural(len(report.not_evaluable), "check")
    more = f" ({skipped} skipped{where})" if report.not_evaluable else ""
    if found.answer == NOT_JUDGED:
        return "unknown", f"Not judged: {'; '.join(found.because)}{more}."
    return ("", "") if report.findings else ("good", f"No problems found{more}.")
