"""GPU verdicts from the summary that jobstats leaves with a job, where gpumon was not running.

It has each GPU's mean busy over the whole run, and no series: no verdict on when, and no
confidence above medium (findings, 11). Each function gives None where there is no such summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.analysis.accounting import used
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import labels_text, percent
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import action_of, gpus_line
from gpumon.analysis.rules import NotEvaluable, Outcome
from gpumon.model.units import clock_text

_NO_UTILIZATION = NotEvaluable("jobstats has no utilization of these GPUs, as for MIG instances")


def never_used(evidence: Evidence) -> Outcome | None:
    """gpu-never-used: every GPU at 0 %, of a run longer than 300 s (jobstats)."""
    busy = _busy(evidence)
    need_s = evidence.site.threshold("gpu-never-used.seconds", 300)
    if not isinstance(busy, Mapping):
        return busy
    if any(busy.values()) or _elapsed_s(evidence) <= need_s:
        return []
    title = f"{len(busy)} GPUs never worked in {clock_text(_elapsed_s(evidence))}"
    return [_finding(evidence, "gpu-never-used", "critical", title, list(busy), busy)]


def partly_idle(evidence: Evidence) -> Outcome | None:
    """gpus-partly-idle: some GPUs at 0 % while another was ≥ 20 % busy, longer than 300 s."""
    busy = _busy(evidence)
    need_s = evidence.site.threshold("gpus-partly-idle.seconds", 300)
    least = evidence.site.threshold("gpus-partly-idle.busy_percent", 20)
    if not isinstance(busy, Mapping):
        return busy
    idle = [label for label, value in busy.items() if value == 0]
    if not idle or max(busy.values()) < least or _elapsed_s(evidence) < need_s:
        return []
    title = f"{len(idle)} of {len(busy)} GPUs idle: {labels_text(idle)}"
    return [_finding(evidence, "gpus-partly-idle", "critical", title, idle, busy)]


def low_busy(evidence: Evidence) -> Outcome | None:
    """low-busy: mean of GPUs that worked < 15 % (warning) or < 25 % (info), 15 min and longer."""
    busy = _busy(evidence)
    red = evidence.site.threshold("low-busy.warning_percent", 15)
    black = evidence.site.threshold("low-busy.info_percent", 25)
    if not isinstance(busy, Mapping):
        return busy
    if _elapsed_s(evidence) < evidence.site.threshold("low-busy.seconds", 900):
        return []
    found = []
    for level, above, below in (("warning", 0.0, red), ("info", red, black)):
        labels = [each for each, value in busy.items() if max(above, 1e-9) <= value < below]
        if labels:
            mean = sum(busy[each] for each in labels) / len(labels)
            title = f"{labels_text(labels)} busy {percent(mean)} mean"
            found.append(_finding(evidence, "low-busy", level, title, labels, busy))
    return found


def memory(evidence: Evidence) -> NotEvaluable | None:
    """GPU memory is there only as a peak, and a reservation reads as need."""
    if evidence.has_samples or evidence.job is None:
        return None
    gpus = [gpu for node in used(evidence.job).nodes.values() for gpu in node.gpus.values()]
    shares = [
        gpu.mem_used_bytes / gpu.mem_total_bytes
        for gpu in gpus
        if gpu.mem_used_bytes is not None and gpu.mem_total_bytes
    ]
    if not shares:
        return None
    most = percent(100 * max(shares))
    return NotEvaluable(f"{most} may be a reservation; cannot tell from a summary")


def _busy(evidence: Evidence) -> dict[str, float] | NotEvaluable | None:
    """Label -> mean busy %. A GPU of which it is not known makes the answer not evaluable."""
    if evidence.has_samples or evidence.job is None:
        return None
    values = {
        f"{node}:{index}": gpu.busy_percent
        for node, summary in used(evidence.job).nodes.items()
        for index, gpu in summary.gpus.items()
    }
    if not values:
        return None
    known = {label: value for label, value in values.items() if value is not None}
    return known if len(known) == len(values) else _NO_UTILIZATION


def _elapsed_s(evidence: Evidence) -> float:
    told = evidence.job.elapsed_s if evidence.job else None
    return evidence.elapsed_s if told is None else told


def _finding(
    evidence: Evidence,
    id: str,
    level: str,
    title: str,
    labels: Sequence[str],
    busy: Mapping[str, float],
) -> Finding:
    values = "/".join(percent(value).removesuffix(" %") for value in busy.values())
    idle = {label for label, value in busy.items() if value == 0}
    wasted_s = sum((1 - min(busy[each], 100.0) / 100) * evidence.elapsed_s for each in labels)
    actions: tuple[Action, ...] = ()
    if id != "low-busy":
        rest = [label.rpartition(":")[0] for label in busy if label not in idle]
        per_node = max(map(rest.count, rest), default=0)
        line = gpus_line(requested(evidence), per_node, len(rest))
        actions = (action_of(line, f"Ask for {len(rest)} instead of {len(busy)} GPUs."),)
    return Finding(
        id, level, title,
        f"jobstats: busy {values} % mean of {clock_text(evidence.elapsed_s)}; no series",
        "medium",
        subject=labels_text(labels),
        devices=tuple(labels),
        resource="gpu",
        start=evidence.start,
        end=evidence.end,
        numbers={"gpus": len(busy), "gpus_idle": len(idle),
                 "busy_mean_percent": sum(busy.values()) / len(busy)},
        actions=actions,
        waste_gpu_hours=wasted_s / 3600,
    )  # fmt: skip
