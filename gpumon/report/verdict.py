"""The one answer of a report: a problem, no problem, or not judged, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Finding, NotEvaluable
from gpumon.analysis.rules.catalogue import Evaluation
from gpumon.analysis.rundata import Coverage, RunData
from gpumon.analysis.signals import job_devices
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
#: % of the run, recorded
_WHOLE = 95.0


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
    has_job, read = run.job is not None and bool(run.job.id or run.job.raw_id), job_devices(run)
    lacks = [*_unchecked(has_job, bool(read), False, found.not_evaluable)]
    if unused := _unused(found.unattributed_gpu_hours, found.known_gpu_hours):
        lacks.append(unused)
    allocated = (run.job.gpus if run.job is not None else None) or 0
    lacks += _unread(run.coverage, findings, allocated, len(read))
    return _verdict(findings, False, lacks)


def is_unused(report: Report) -> bool:
    """Whether most of its GPUs' time was not used, and no finding says why."""
    return bool(_unused(report.unattributed_gpu_hours, report.known_gpu_hours))


def _unused(unexplained: float, known: float) -> str:
    if not known or unexplained < _UNUSED * known:
        return ""
    return f"{100 * unexplained / known:.0f} % of the GPU time was not used, and no check shows why"


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
    if unused := _unused(report.unattributed_gpu_hours, report.known_gpu_hours):
        yield unused
    is_array = report.tasks is not None
    yield from _unchecked(report.has_job, bool(report.gpus), is_array, report.not_evaluable)
    gpus = report.job.gpus or 0, len(report.devices)
    yield from _unread(report.coverage, report.findings, *gpus)


def _unread(
    coverage: Coverage, findings: Iterable[Finding], allocated: int, read: int
) -> Iterator[str]:
    if coverage.unrecorded and coverage.interval_s is not None:
        yield f"{plural(len(coverage.unrecorded), 'node')} not recorded"
    elif any(each.id == "low-coverage" for each in findings):
        part, few = coverage.covered_percent, "few samples, or a gap among them"
        yield f"{part:.0f} % of the run was recorded" if part < _WHOLE else few
    if 0 < read < allocated:
        yield f"{allocated} GPUs allocated, {read} read"


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
    """(sign, sentence) where no problem was found, or nobody looked."""
    if found.answer == NOT_JUDGED:
        return "unknown", f"Not judged{so_far}: {'; '.join(found.because)}{more}."
    return "good", f"No problems found{so_far}{more}."
