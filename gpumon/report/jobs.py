"""One's jobs at a glance: a line for each, with what its recording shows.

Numbers are raw (bytes, seconds, percent 0 to 100); one that nobody knows is None, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpumon.analysis.finding import LEVELS
from gpumon.report.advice import box_of
from gpumon.report.model import Report
from gpumon.report.usage import NO_GPUS, Figures, Use, total
from gpumon.report.verdict import ANSWERS, verdict
from gpumon.report.verdict import Verdict as Answer
from gpumon.slurm.groups import JobGroup

NOT_RECORDED = "not recorded"
READING = "reading"


@dataclass(frozen=True)
class Verdict:
    """What the report of a job comes to."""

    waste_gpu_hours: float | None = None
    advice: str = ""  # all of its box, in brief
    title: str = ""  # of the worst finding
    level: str = ""  # LEVELS
    missing: str = ""  # why the waste is not known
    told: Answer | None = None  # the report's; None before anything was read


@dataclass(frozen=True)
class JobLine:
    """One job."""

    group: JobGroup
    is_recorded: bool = False
    figures: Figures = field(default_factory=Figures)
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def id(self) -> str:
        return self.group.id


@dataclass(frozen=True)
class Listing:
    """All lines, as of `at`; `notes` say in sentences what is missing."""

    lines: Sequence[JobLine] = ()
    at: float = 0.0  # of our clock: when Slurm answered
    source: str = "slurm"  # or recordings, where there is no Slurm
    notes: Sequence[str] = ()


def run_figures(report: Report) -> Figures:
    """Of the whole run: peaks of memory, on GPUs the need where it was measured."""
    used = report.used
    mem = used.mem._replace(used=used.mem.peak)
    if report.devices:
        return replace(used, mem=mem)
    none = Use(why="no GPU was seen" if report.job.gpus else NO_GPUS)
    return replace(used, mem=mem, gpus=none, busy=none, gpu_mem=none)


def verdict_of(report: Report) -> Verdict:
    """Of one job. The waste counts only where its GPUs were measured."""
    worst, told = next(iter(report.findings), None), verdict(report)
    waste: float | None = report.waste_gpu_hours
    missing = ""
    if report.job.gpus and report.used.busy.used is None and not waste:
        why = report.used.busy.why
        waste, missing = None, report.coverage.missing.get("gpu", why or NOT_RECORDED)
    elif not report.job.gpus and not report.devices:
        waste, missing = None, NO_GPUS
    if worst is None:
        return Verdict(waste, missing=missing, told=told)
    advice = box_of(report).brief or (worst.title if worst.level != "info" else "")
    return Verdict(waste, advice, worst.title, worst.level, missing, told)


def worst_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several jobs as one: what all of them wasted, the worst finding, and no better answer than
    any of them has.
    """
    first = min(verdicts, key=lambda each: (*LEVELS, "").index(each.level))
    answers = [each.told for each in verdicts if each.told is not None]
    told = min(answers, key=lambda each: ANSWERS.index(each.answer), default=None)
    with_gpus = [each for each in verdicts if each.missing != NO_GPUS] or verdicts
    waste = total(Use(each.waste_gpu_hours, why=each.missing) for each in with_gpus)
    return replace(first, waste_gpu_hours=waste.used, missing=waste.why, told=told)
