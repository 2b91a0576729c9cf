"""The dashboard for Grafana: a job, a node, a user, by the metrics of `gpumon exporter`."""

from __future__ import annotations

import json
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_JOB = 'jobid=~"$jobid"'
_NODE = 'instance=~"$instance"'

#: row -> panels: title, unit of Grafana, queries with their legends
PANELS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "Job $jobid": [
        ("Busy", "percentunit", [
            (f"gpumon_gpu_busy_ratio{{{_JOB}}}", "{{instance}} GPU {{gpu}}"),
        ]),
        ("SM and tensor activity", "percentunit", [
            (f"gpumon_gpu_sm_active_ratio{{{_JOB}}}", "SM {{instance}} GPU {{gpu}}"),
            (f"gpumon_gpu_tensor_active_ratio{{{_JOB}}}", "tensor {{instance}} GPU {{gpu}}"),
        ]),
        ("GPU memory", "bytes", [
            (f"gpumon_gpu_memory_used_bytes{{{_JOB}}}", "{{instance}} GPU {{gpu}}"),
            (f"max(gpumon_gpu_memory_total_bytes{{{_JOB}}})", "total"),
        ]),
        ("Power", "watt", [
            (f"gpumon_gpu_power_watts{{{_JOB}}}", "{{instance}} GPU {{gpu}}"),
        ]),
        ("CPU cores", "short", [
            (f"rate(gpumon_job_cpu_seconds_total{{{_JOB}}}[2m])", "used {{instance}}"),
            (f"gpumon_job_cpus{{{_JOB}}}", "allocated {{instance}}"),
        ]),
        ("Host memory", "bytes", [
            (f"gpumon_job_memory_used_bytes{{{_JOB}}}", "used {{instance}}"),
            (f"gpumon_job_memory_cache_bytes{{{_JOB}}}", "page cache {{instance}}"),
            (f"gpumon_job_memory_limit_bytes{{{_JOB}}}", "limit {{instance}}"),
        ]),
    ],
    "Node $instance": [
        ("Busy", "percentunit", [(f"gpumon_gpu_busy_ratio{{{_NODE}}}", "GPU {{gpu}}")]),
        ("Temperature", "celsius", [(f"gpumon_gpu_temperature_celsius{{{_NODE}}}", "GPU {{gpu}}")]),
        ("Throttled", "short", [
            (f'gpumon_gpu_throttled{{{_NODE},reason!="idle"}} > 0', "GPU {{gpu}} {{reason}}"),
        ]),
        ("GPUs that do not answer", "short", [
            (f"gpumon_gpu_up{{{_NODE}}} == 0", "{{instance}} GPU {{gpu}}"),
        ]),
        ("CPU", "percentunit", [(f"gpumon_node_cpu_ratio{{{_NODE}}}", "{{instance}}")]),
        ("Memory", "bytes", [
            (f"gpumon_node_memory_used_bytes{{{_NODE}}}", "used"),
            (f"gpumon_node_memory_total_bytes{{{_NODE}}}", "total"),
        ]),
    ],
    "User $user": [
        ("GPU memory by job", "bytes", [
            ('sum by (jobid) (gpumon_process_gpu_memory_bytes{user=~"$user"})', "{{jobid}}"),
        ]),
        ("SM use by job", "percentunit", [
            ('avg by (jobid) (gpumon_process_gpu_sm_ratio{user=~"$user"})', "{{jobid}}"),
        ]),
    ],
}  # fmt: skip


def dashboard() -> str:
    """As JSON, to import."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, listed in PANELS.items():
        place = {"h": 1, "w": 24, "x": 0, "y": top}
        panels.append({"type": "row", "title": row, "gridPos": place, "id": len(panels) + 1})
        top += 1
        for count, (title, unit, queries) in enumerate(listed):
            place = {"h": 8, "w": 12, "x": 12 * (count % 2), "y": top + 8 * (count // 2)}
            panels.append(_panel(len(panels) + 1, title, unit, queries, place))
        top += 8 * ((len(listed) + 1) // 2)
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("jobid", "label_values(gpumon_job_cpus, jobid)"),
        _variable("instance", "label_values(gpumon_exporter_info, instance)"),
        _variable("user", "label_values(gpumon_process_gpu_memory_bytes, user)"),
    ]
    body = {
        "title": "gpumon", "uid": "gpumon", "schemaVersion": 39, "editable": True,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "30s",
        "templating": {"list": variables}, "panels": panels,
    }  # fmt: skip
    return json.dumps(body, indent=1) + "\n"


def _panel(
    id: int, title: str, unit: str, queries: list[tuple[str, str]], place: dict[str, int]
) -> dict[str, Any]:
    limits: dict[str, Any] = {"unit": unit, "min": 0}
    if unit == "percentunit":
        limits["max"] = 1
    targets = [
        {"expr": query, "legendFormat": legend, "refId": chr(65 + n), "datasource": _SOURCE}
        for n, (query, legend) in enumerate(queries)
    ]
    return {
        "id": id, "type": "timeseries", "title": title, "gridPos": place, "datasource": _SOURCE,
        "fieldConfig": {"defaults": limits, "overrides": []}, "targets": targets,
    }  # fmt: skip


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "query": query, "datasource": _SOURCE, "refresh": 2,
        "includeAll": True, "allValue": ".+", "multi": True,
    }  # fmt: skip
