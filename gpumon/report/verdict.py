"""The one answer of a report: a problem, no problem, or not judged, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Finding, NotEvaluable
from gpumon.analysis.rules.catalogue import Evaluation
from gpumon.analysis.rundata import RunData
from gpumon.model.units import plural
from gpumon.report.model import Report
from gpumon.report.provenance import missing_text

Missing = Mapping[str, NotEvaluable]  # by the id of the rule
PROBLEM, NONE, NOT_JUDGED = "problem", "no problem", "not judged"
ANSWERS = (PROBLEM, NOT_JUDGED, NONE)  # of several jobs the first that one of them has
#: checks without which nobody knows whether a job, a node's GPUs, or a job without GPUs did well
_OF_GPUS = ("gpu-never-used", "gpus-partly-idle")
_OF_NODE = ("suspected-hang", "low-busy")
_OF_CORES = ("cpu-never-used",)
_OF_ARRAY = ("array-gpu-idle",), ("array-cpu-over",)  # with GPUs, and without
#: of the GPUs' time: a run that did not use so much of it, and of which no finding says why, is not
#: judged (proposed)
_UNUSED = 0.5


class Verdict(NamedTuple):
    """`because`: of a problem the ids of its findings, worst first, and `events`; of what was not
    judged what lacked.
    """

    answer: str
    because: tuple[str, ...] = ()


def verdict(report: Report) -> Verdict:
    """A problem is a finding that warns, or an event that does; information is none."""
    events = any(each.level != "info" for each in report.happenings)
    return _verdict(report.findings, events, _lacks(report))


def verdict_now(run: RunData, findings: Sequence[Finding], found: Evaluation) -> Verdict:
    """Of a job or a node that is watched, without its events. `findings`: those that stand."""
    has_job = run.job is not None and bool(run.job.id or run.job.raw_id)
    lacks = [*_unchecked(has_job, bool(run.devices), False, found.not_evaluable)]
    held = run.elapsed_s / 3600 * len(run.devices) * run.coverage.covered_percent / 100
    if has_job:
        lacks += _unused(found.unattributed_gpu_hours, held)
    return _verdict(findings, False, lacks)


def is_unused(report: Report) -> bool:
    """Whether most of its GPUs' time was not used, and no finding says why."""
    return any(_unused(report.unattributed_gpu_hours, report.observed_gpu_hours))


def _unused(unexplained: float, held: float) -> Iterator[str]:
    if held and unexplained >= _UNUSED * held:
        percent = min(100.0, 100 * unexplained / held)
        yield f"{percent:.0f} % of the GPU time was not used, and no check shows why"


def _verdict(findings: Iterable[Finding], events: bool, lacks: Iterable[str]) -> Verdict:
    worst = [each.id for each in findings if each.level != "info"]
    if worst or events:
        return Verdict(PROBLEM, (*dict.fromkeys(worst), *(["events"] if events else [])))
    because = tuple(dict.fromkeys(lacks))
    return Verdict(NOT_JUDGED, because) if because else Verdict(NONE)


def _unchecked(has_job: bool, gpus: bool, tasks: bool, missing: Missing) -> Iterator[str]:
    """Why checks could not be made without which nobody knows."""
    asked = (_OF_GPUS if has_job else _OF_NODE) if gpus else _OF_CORES
    if tasks:
        asked = _OF_ARRAY[not gpus]
    return (missing_text(missing[each]) for each in asked if each in missing)


def _lacks(report: Report) -> Iterator[str]:
    is_array = report.tasks is not None
    if report.has_job:
        yield from _unused(report.unattributed_gpu_hours, report.observed_gpu_hours)
    yield from _unchecked(report.has_job, bool(report.gpus), is_array, report.not_evaluable)
    unrecorded = report.coverage.unrecorded
    if unrecorded and report.coverage.interval_s is not None:
        yield f"{plural(len(unrecorded), 'node')} not recorded"
    else:
        low = (each.title for each in report.findings if each.id == "low-coverage")
        yield from (title.partition(";")[0] for title in low)
    if report.devices and len(report.devices) < (report.job.gpus or 0):
        yield f"{report.job.gpus} GPUs allocated, {len(report.devices)} read"


def in_words(report: Report, *, counts: bool = True) -> tuple[str, str]:
    """(sign, sentence) of what no finding says; "" and "" where they say all. `counts`: how many
    checks were skipped, where nothing else says it.
    """
    found = verdict(report)
    states = set(report.tasks.states) if report.tasks is not None else set()
    if report.job.is_pending or states == {"PENDING"}:
        return "", ""
    if found.answer == PROBLEM:
        return ("warning", "See the events below.") if found.because == ("events",) else ("", "")
    skipped = plural(len(report.not_evaluable), "check")
    more = f" ({skipped} skipped, listed below)" if report.not_evaluable and counts else ""
    is_said = report.findings and found.answer == NONE
    return ("", "") if is_said else unproblematic(found, more)


def unproblematic(found: Verdict, more: str = "", so_far: str = "") -> tuple[str, str]:
    """(sign, sentence) of a verdict that is no problem."""
    if found.answer == NOT_JUDGED:
        return "unknown", f"Not judged{so_far}: {'; '.join(found.because)}{more}."
    return "good", f"No problems found{so_far}{more}."
