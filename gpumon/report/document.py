"""The report as JSON, by the names that others rely on (docs/json.md)."""

from __future__ import annotations

from typing import Any

from gpumon.analysis.finding import Finding, Recommendation
from gpumon.report.model import Attempt, DeviceRow, Report
from gpumon.report.why import WHY
from gpumon.slurm.job import Job, Resources

Json = dict[str, Any]


def document(report: Report) -> Json:
    """One report as an object that `json.dumps(…, allow_nan=False)` takes."""
    body: Json = {
        "version": 1,
        "gpumon": report.version,
        "job": _job(report),
        "requested": _requested(report.job),
        "allocated": _resources(report.job.allocated),
        "used": _used(report),
        "efficiency": dict(report.efficiency),
        "seff": {
            "cpu_percent": report.seff.cpu_percent,
            "mem_percent": report.seff.mem_percent,
            "rule": report.seff.rule or None,
            "differs_because": list(report.seff.differs_because),
        },
        "devices": [_device(row) for row in report.devices],
        "findings": [finding_json(each) for each in (*report.findings, *report.suppressed)],
        "recommendations": [_recommendation(each) for each in report.recommendations],
        "waste_gpu_hours": round(report.waste_gpu_hours, 3),
        "gpu_hours": None if report.gpu_hours is None else round(report.gpu_hours, 3),
        "not_evaluable": dict(report.not_evaluable),
        "coverage": _coverage(report),
        "missing": {**report.job.missing, **report.efficiency_missing},
        "notes": list(report.notes),
    }
    if report.attempts:
        body["attempts"] = [_attempt(each) for each in report.attempts]
    if report.segments:
        body["segments"] = [_attempt(each) for each in report.segments]
    if report.tasks is not None:
        body["tasks"] = {
            "states": dict(report.tasks.states),
            "measured": report.tasks.measured,
            "spreads": [
                {
                    "name": each.name, "unit": each.unit, "min": each.low, "p50": each.p50,
                    "p95": each.p95, "max": each.high, "asked": each.asked,
                    "outliers": list(each.outliers),
                }
                for each in report.tasks.spreads
            ],
        }  # fmt: skip
    return body


def _job(report: Report) -> Json:
    job = report.job
    return {
        "id": job.id or job.raw_id or None,
        "raw_id": job.raw_id or None,
        "name": job.name or None,
        "user": job.user or None,
        "account": job.account or None,
        "partition": job.partition or None,
        "state": job.state or None,
        "exit_code": str(job.exit_code) if job.exit_code else None,
        "cluster": job.cluster or None,
        "nodes": list(job.nodes),
        "submit": job.submit,
        "start": report.start,
        "end": report.end,
        "running": report.running,
        "elapsed_s": report.elapsed_s,
        "time_limit_s": job.time_limit_s,
        "time_limit": job.time_limit_words or None,
        "restarts": job.restarts,
        "sources": dict(job.sources),
    }


def _requested(job: Job) -> Json:
    asked = job.requested
    return {
        "cpus": asked.resources.cpus,
        "mem_bytes": asked.resources.mem_bytes,
        "mem_form": asked.mem_form or None,
        "gpus": asked.resources.gpus,
        "gpu_type": ",".join(asked.resources.gpu_types) or None,
        "nodes": asked.resources.nodes,
        "gres": asked.gres or None,
        "constraint": asked.constraint or None,
    }


def _resources(resources: Resources) -> Json:
    return {
        "cpus": resources.cpus,
        "mem_bytes": resources.mem_bytes,
        "gpus": 0 if resources.gpus is None and resources.tres else resources.gpus,
        "nodes": resources.nodes,
        "tres": dict(resources.tres),
    }


def _used(report: Report) -> Json:
    used = report.used
    return {
        "cpu_core_s": used.cpu_core_s,
        "cpu_cores_mean": used.cpu_cores_mean,
        "cpu_cores_peak": used.cpu_cores_peak,
        "mem_peak_bytes": used.mem_peak_bytes,
        "mem_max_node_bytes": used.mem_max_node_bytes,
        "mem_source": used.mem_source or None,
        "mem_note": used.mem_note or None,
        "cpu_note": used.cpu_note or None,
        "gpus_active": used.gpus_active,
        "gpu_busy_percent": used.gpu_busy_percent,
        "gpu_mem_peak_bytes": used.gpu_mem_peak_bytes,
        "gpu_energy_j": used.gpu_energy_j,
    }


def _device(row: DeviceRow) -> Json:
    return {
        "node": row.node,
        "index": row.index,
        "uuid": row.uuid or None,
        "name": row.name or None,
        "busy_mean": row.busy_mean,
        "busy_p50": row.busy_p50,
        "busy_p95": row.busy_p95,
        "idle_tail_s": row.idle_tail_s,
        "mem_peak_bytes": row.mem_peak_bytes,
        "mem_total_bytes": row.mem_total_bytes,
        "mem_truth": row.mem_truth,
        "framework": row.framework or None,
        "power_mean_w": row.power_mean_w,
        "energy_j": row.energy_j,
        "missing": dict(row.missing),
    }


def finding_json(finding: Finding) -> Json:
    return {
        "id": finding.id,
        "level": finding.level,
        "confidence": finding.confidence,
        "subject": finding.subject,
        "title": finding.title,
        "evidence": finding.evidence,
        "why": WHY.get(finding.id),
        "action": "; ".join(each.after for each in finding.actions) or None,
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
        "directive": each.directive or None,
        "before": each.before or None,
        "after": each.after,
        "basis": each.basis,
        "confidence": each.confidence,
        "finding": each.finding or None,
    }


def _coverage(report: Report) -> Json:
    coverage = report.coverage
    return {
        "source": coverage.source,
        "covered_percent": round(coverage.covered_percent, 1),
        "interval_s": coverage.interval_s,
        "gaps": coverage.gaps,
        "longest_gap_s": coverage.longest_gap_s,
        "from_start": coverage.from_start,
        "to_end": coverage.to_end,
        "missing": dict(coverage.missing),
    }


def _attempt(each: Attempt) -> Json:
    return {
        "name": each.name,
        "start": each.start,
        "end": each.end,
        "state": each.state or None,
        "note": each.note or None,
        "cpu_cores_peak": each.cpu_cores_peak,
        "mem_peak_bytes": each.mem_peak_bytes,
        "gpu_mem_peak_bytes": each.gpu_mem_peak_bytes,
        "gpu_busy_percent": each.gpu_busy_percent,
    }
