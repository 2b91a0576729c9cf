"""One's jobs at a glance: a line for each, with what its recording shows.

Numbers are raw (bytes, seconds, percent 0 to 100); one that nobody knows is None, and `missing` has
the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpumon.analysis.finding import LEVELS, Finding
from gpumon.report.model import Report
from gpumon.report.sentences import brief_action
from gpumon.slurm.groups import JobGroup

NOT_RECORDED = "not recorded"
NO_GPUS = "no GPUs"
READING = "reading"


@dataclass(frozen=True)
class Figures:
    """What a job's GPUs and memory do now, or did over its whole run."""

    is_now: bool = False  # means of the last minute; else means and peaks of the run
    gpus_active: int | None = None  # GPUs that did anything
    gpus_seen: int | None = None  # of so many that were measured
    gpu_busy_percent: float | None = None  # mean of those
    gpu_mem_bytes: float | None = None
    gpu_mem_total_bytes: float | None = None
    gpu_mem_is_need: bool = True  # else some of it is a framework's reservation
    mem_bytes: float | None = None  # of the host, without page cache
    mem_limit_bytes: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What the findings on a job come to."""

    waste_gpu_hours: float | None = None
    advice: str = ""  # what to do about the worst finding
    title: str = ""  # of it
    level: str = ""  # LEVELS
    missing: str = ""  # why the waste is not known


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
    """Of the whole run, from a report that rests on its recording."""
    used, devices = report.used, report.devices
    totals = [each.mem_total_bytes for each in devices]
    notes = {each.note for each in devices if each.note and each.busy_mean is None}
    counted = total(each.mem_counted_bytes for each in devices)
    none = "no GPU was seen" if report.job.gpus else NO_GPUS
    why = ", ".join(sorted(notes)) or none
    unknown = {
        name: reason
        for name, value, reason in (
            ("gpu_busy_percent", used.gpu_busy_percent, why),
            ("gpu_mem_bytes", used.gpu_mem_peak_bytes, why),
            ("mem_bytes", used.mem_peak_bytes, "the job's cgroup was not read"),
        )
        if value is None
    }
    return Figures(
        gpus_active=used.gpus_active,
        gpus_seen=len(devices) or None,
        gpu_busy_percent=used.gpu_busy_percent,
        gpu_mem_bytes=used.gpu_mem_peak_bytes if counted is None else counted,
        gpu_mem_total_bytes=total(totals),
        gpu_mem_is_need=not any(each.has_unproven_need for each in devices),
        mem_bytes=used.mem_peak_bytes,
        mem_limit_bytes=report.job.allocated.mem_bytes,
        missing=unknown,
    )


def verdict_of(report: Report) -> Verdict:
    """Of one job. The waste counts only where its GPUs were measured."""
    worst = report.findings[0] if report.findings else None
    waste: float | None = report.waste_gpu_hours
    missing = ""
    if report.job.gpus and report.used.gpu_busy_percent is None and not waste:
        waste, missing = None, report.coverage.missing.get("gpu", NOT_RECORDED)
    elif not report.job.gpus and not report.devices:
        waste, missing = None, NO_GPUS
    if worst is None:
        return Verdict(waste, missing=missing)
    return Verdict(waste, _advice(worst), worst.title, worst.level, missing)


def _advice(finding: Finding) -> str:
    """Its first action in a few words, else what was found."""
    text = brief_action(finding.actions[0]) if finding.actions else finding.title
    return text.replace("#SBATCH ", "")


def together(all_of_them: Sequence[Figures]) -> Figures:
    """Of several jobs as one. What one of them lacks is left out of a mean, and spoils a sum."""
    if len(all_of_them) == 1:
        return all_of_them[0]
    busy = [
        (each.gpu_busy_percent, each.gpus_seen)
        for each in all_of_them
        if each.gpu_busy_percent is not None and each.gpus_seen
    ]
    seen = sum(count for _, count in busy)
    return Figures(
        is_now=all(each.is_now for each in all_of_them),
        gpus_active=_count(each.gpus_active for each in all_of_them),
        gpus_seen=_count(each.gpus_seen for each in all_of_them),
        gpu_busy_percent=sum(value * count for value, count in busy) / seen if seen else None,
        gpu_mem_bytes=total(each.gpu_mem_bytes for each in all_of_them),
        gpu_mem_total_bytes=total(each.gpu_mem_total_bytes for each in all_of_them),
        gpu_mem_is_need=all(each.gpu_mem_is_need for each in all_of_them),
        mem_bytes=total(each.mem_bytes for each in all_of_them),
        mem_limit_bytes=total(each.mem_limit_bytes for each in all_of_them),
        missing={name: why for each in all_of_them for name, why in each.missing.items()},
    )


def worst_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several jobs as one: what all of them wasted, and the worst finding."""
    first = min(verdicts, key=lambda each: (*LEVELS, "").index(each.level))
    known = [each.waste_gpu_hours for each in verdicts if each.waste_gpu_hours is not None]
    return replace(first, waste_gpu_hours=sum(known), missing="") if known else first


def total(values: Iterable[float | None]) -> float | None:
    """Their sum; None if one is unknown, because a partial sum is misleading."""
    known = list(values)
    return None if not known or None in known else sum(each or 0.0 for each in known)


def _count(values: Iterable[int | None]) -> int | None:
    found = total(values)
    return None if found is None else int(found)
