"""Summaries of jobs: those that jobstats leaves in AdminComment (`JS1:` and base64 of gzipped
JSON), and those that are asked from Prometheus.

Its figures are means and peaks over the job. GPUs have their ordinals in gres.conf's order. A
utilization that is missing (MIG) is not known, never 0.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gpumon.model.text import clean
from gpumon.plain import dataclass

_PREFIX = "JS1:"
_NO_FIGURE = "jobstats has none, as for MIG instances"
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over the job; `missing` says why a figure is None."""

    mem_total_bytes: int | None = None
    mem_used_bytes: int | None = None  # peak
    busy_percent: float | None = None  # mean
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeSummary:
    """One node's share of the job; used memory can exceed what was allocated."""

    cpus: int | None = None
    cpu_s: float | None = None
    mem_total_bytes: int | None = None
    mem_used_bytes: int | None = None  # peak
    gpus: Mapping[str, GpuSummary] = field(default_factory=dict)  # by ordinal


@dataclass(frozen=True)
class Summary:
    """A job as jobstats, or Prometheus, saw it."""

    elapsed_s: float | None = None
    nodes: Mapping[str, NodeSummary] = field(default_factory=dict)
    source: str = "jobstats"  # or prometheus


def parse(admin_comment: str) -> Summary | None:
    """The summary in an AdminComment, or None: also of a job that was too short for one (`Short`),
    or of which jobstats had no data (`None`). Raises nothing.
    """
    _, begins, text = admin_comment.partition(_PREFIX)
    document = _decoded((text.split() or [""])[0]) if begins else None
    if document is None:
        return None
    nodes = document.get("nodes")
    return Summary(
        _number(document.get("total_time")),
        {
            clean(name, 256): _node(node)
            for name, node in (nodes.items() if isinstance(nodes, dict) else ())
            if isinstance(node, dict)
        },
    )


def _decoded(word: str) -> dict[str, Any] | None:
    try:
        packed = base64.b64decode(word, validate=True)
        unpack = zlib.decompressobj(wbits=31)  # gzip
        document = json.loads(unpack.decompress(packed, _MAX_BYTES))
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 2**63 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None


def _node(node: Mapping[str, Any]) -> NodeSummary:
    def of_gpus(name: str) -> dict[str, Any]:
        values = node.get(name)
        return values if isinstance(values, dict) else {}

    total, used = of_gpus("gpu_total_memory"), of_gpus("gpu_used_memory")
    busy = of_gpus("gpu_utilization")
    return NodeSummary(
        _whole(node.get("cpus")),
        _number(node.get("total_time")),
        _whole(node.get("total_memory")),
        _whole(node.get("used_memory")),
        {
            clean(index, 32): _gpu(total.get(index), used.get(index), busy.get(index))
            for index in sorted({*total, *used, *busy})
        },
    )


def _gpu(total: Any, used: Any, busy: Any) -> GpuSummary:
    figures = {
        "mem_total_bytes": _whole(total),
        "mem_used_bytes": _whole(used),
        "busy_percent": _number(busy),
    }
    missing = {name: _NO_FIGURE for name, value in figures.items() if value is None}
    return GpuSummary(_whole(total), _whole(used), _number(busy), missing)
