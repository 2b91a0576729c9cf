"""The report as JSON, by the names that others rely on (docs/json.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.analysis.finding import Finding, Recommendation
from gpumon.analysis.rules.catalogue import why
from gpumon.analysis.steps import Rank
from gpumon.frames.places import Place
from gpumon.report.model import Report
from gpumon.report.names import PARTS
from gpumon.report.provenance import missing_text
from gpumon.report.render.forms import Medium
from gpumon.report.usage import Figures
from gpumon.report.verdict import verdict
from gpumon.slurm.job import Job

Json = dict[str, Any]
#: names in `used` -> which of the figures they are
USED = {
    "cpu_cores_mean": ("cores", "used"),
    "cpu_cores_peak": ("cores", "peak"),
    "mem_peak_bytes": ("mem", "peak"),
    "gpus_active": ("gpus", "peak"),
    "gpus_worth": ("gpus", "used"),
    "gpu_busy_percent": ("busy", "used"),
    "gpu_mem_peak_bytes": ("gpu_mem", "peak"),
}


def render(reports: Sequence[Report], medium: Medium) -> str:
    """One line: an object, or a list of them."""
    bodies = [document(report) for report in reports]
    is_list = medium.is_list or len(bodies) > 1
    return json.dumps(bodies if is_list else bodies[0], allow_nan=False) + "\n"


def document(report: Report) -> Json:
    """One report as an object that `json.dumps(…, allow_nan=False)` takes."""
    covered = {"covered_percent": round(report.coverage.covered_percent, 1)}
    body: Json = {
        "version": 1,
        "gpumon": report.version,
        "job": _job(report),
        "requested": _requested(report.job),
        "allocated": _allocated(report.job),
        "used": _used(report.used),
        "efficiency": dict(report.efficiency),
        "seff": _values(report.seff, "seff"),
        "devices": [_values(row, "devices", row.device._asdict()) for row in report.devices],
        "ranks": [_rank(each) for each in report.ranks],
        "events": [_values(each, "events", {"subject": each.label}) for each in report.happenings],
        "verdict": verdict(report)._asdict(),
        "findings": [finding_json(each) for each in (*report.findings, *report.suppressed)],
        "recommendations": [_recommendation(each) for each in report.recommendations],
        "waste_gpu_hours": round(report.waste_gpu_hours, 3),
        "unattributed_gpu_hours": round(report.unattributed_gpu_hours, 3),
        "others_gpu_hours": round(report.others_gpu_hours, 3),
        "gpu_hours": None if report.gpu_hours is None else round(report.gpu_hours, 3),
        "not_evaluable": {id: missing_text(each) for id, each in report.not_evaluable.items()},
        "coverage": _values(report.coverage, "coverage", covered),
        "missing": {**report.job.missing, **_why_unknown(report.used), **report.efficiency_missing},
        "notes": list(report.notes),
    }
    if report.coverage.parts:
        body["coverage"]["parts"] = [each._asdict() for each in report.coverage.parts]
    if report.attempts:
        body["attempts"] = [_values(each, "attempts") for each in report.attempts]
    if report.segments:
        body["segments"] = [_values(each, "segments") for each in report.segments]
    if report.tasks is not None:
        spreads = [
            _values(each, "tasks.spreads", {"min": each.low, "max": each.high})
            for each in report.tasks.spreads
        ]
        body["tasks"] = _values(report.tasks, "tasks", {"spreads": spreads})
    return body


def _used(used: Figures) -> Json:
    values = {name: getattr(getattr(used, of), figure) for name, (of, figure) in USED.items()}
    return _values(used, "used", values)


def _why_unknown(used: Figures) -> dict[str, str]:
    """The reasons of what is null in `used`."""
    uses = {name: getattr(used, of) for name, (of, _) in USED.items()}
    null = [name for name, value in _used(used).items() if value is None and name in uses]
    return {name: uses[name].why for name in null if uses[name].why}


def _rank(rank: Rank) -> Json:
    def table(places: Sequence[tuple[Place, float]]) -> list[Json]:
        return [{"place": place.text, "percent": round(share, 1)} for place, share in places]

    tables = {"places": table(rank.places), "worker_places": table(rank.worker_places)}
    return _values(rank, "ranks", tables)


def _job(report: Report) -> Json:
    job = report.job
    of_report = {
        "id": job.id or job.raw_id,
        "exit_code": str(job.exit_code) if job.exit_code else None,
        "start": report.start,
        "end": report.end,
        "running": report.running,
        "elapsed_s": report.elapsed_s,
        "time_limit": job.time_limit_words,
    }
    return _values(job, "job", of_report)


def _requested(job: Job) -> Json:
    asked, resources = job.requested, job.requested.resources
    types = {"gpu_type": ",".join(resources.gpu_types)}
    return _values(asked, "requested", vars(resources) | types)


def _allocated(job: Job) -> Json:
    gpus = 0 if job.lists_no_gpus else job.allocated.gpus
    return _values(job.allocated, "allocated", {"gpus": gpus})


def finding_json(finding: Finding) -> Json:
    lines = (each.after for each in finding.actions if each.kind != "try")
    return {
        "id": finding.id,
        "level": finding.level,
        "confidence": finding.confidence,
        "subject": finding.subject,
        "title": finding.title,
        "evidence": finding.evidence,
        "why": why(finding.id) or None,
        "action": "; ".join(filter(None, lines)) or None,
        "actions": [
            {"kind": each.kind, "before": each.before or None, "after": each.after,
             "text": each.text or None}
            for each in finding.actions
        ],
        "waste_gpu_hours": round(finding.waste_gpu_hours, 3),
        "window": {"from": finding.start, "to": finding.end},
        "numbers": dict(finding.numbers),
        "mem_truth": finding.mem_truth or None,
        "refs": list(finding.refs),
        "suppressed_by": finding.suppressed_by or None,
    }  # fmt: skip


def _recommendation(each: Recommendation) -> Json:
    return {
        "directive": each.change.option or None,
        "before": each.change.before_line or None,
        "after": each.change.after_line,
        "basis": each.basis,
        "confidence": each.confidence,
        "finding": each.finding or None,
    }


def _values(of: object, path: str, but: Mapping[str, Any] | None = None) -> Json:
    """The attributes that `report.names` has for this path, others than in `but`; "" is null."""
    but = but or {}
    return {name: _plain(but[name] if name in but else getattr(of, name)) for name in PARTS[path]}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):  # most are; of a Mapping to ask takes long
        return value
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else None if value == "" else value
