"""GPU findings from the summary that jobstats leaves with a job, where gpumon was not running.

It has each GPU's mean busy over the whole run, and no series: nothing on when, and no
confidence above medium (findings, 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.analysis.accounting import named, used
from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable
from gpumon.analysis.rightsize.changes import action_of, gpus_line
from gpumon.analysis.rightsize.gpus import was_never_opened
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.advice import no_gpu, software_check
from gpumon.analysis.rules.phrasing import labels_text, percent
from gpumon.analysis.rundata import RunData
from gpumon.model.lines import Line
from gpumon.model.units import age_text, plural

_RECORD = Action(
    "shell", Line("gpumon record -- COMMAND"), text="Record the next run to see when they idle:"
)
#: a mean of 0 % may be as much, as jobstats rounds it
_ROUNDED_PERCENT = 0.5
_NO_UTILIZATION = "the summary has no utilization of these GPUs, as for MIG instances"


def mean_busy(run: RunData) -> dict[str, float] | NotEvaluable | None:
    """Label -> mean busy %; None without a summary. Unknown of one GPU: not evaluable."""
    if run.has_samples or run.job is None:
        return None
    values = {
        f"{node}:{index}": gpu.busy_percent
        for node, summary in used(run.job).nodes.items()
        for index, gpu in summary.gpus.items()
    }
    if not values:
        return None
    known = {label: value for label, value in values.items() if value is not None}
    return known if len(known) == len(values) else NotEvaluable(Lack.READINGS, _NO_UTILIZATION)


def memory(run: RunData) -> NotEvaluable | None:
    """GPU memory is there only as a peak, and a reservation reads as need."""
    if run.has_samples or run.job is None:
        return None
    gpus = [gpu for node in used(run.job).nodes.values() for gpu in node.gpus.values()]
    shares = [
        gpu.mem_used_bytes / gpu.mem_total_bytes
        for gpu in gpus
        if gpu.mem_used_bytes is not None and gpu.mem_total_bytes
    ]
    if not shares:
        return None
    most = percent(100 * max(shares))
    return NotEvaluable(Lack.NEED, f"{most} may be a reservation; a summary does not show it")


def never_used(run: RunData, seconds: float) -> Finding | None:
    """gpu-never-used: every GPU at 0 %, and no process on any of them."""
    busy = _means(run)
    if not _never_opened(run) or not busy or _elapsed_s(run) <= seconds:
        return None
    title = f"{plural(len(busy), 'GPU')} did no work in {age_text(_elapsed_s(run))}"
    actions = [software_check(run), no_gpu(run)]
    return _finding(run, "warning", title, list(busy), busy, actions)


def partly_idle(run: RunData, seconds: float, least_busy: float) -> Finding | None:
    """gpus-partly-idle: some GPUs at 0 %."""
    busy = _means(run)
    idle = [label for label, value in busy.items() if value == 0]
    if not idle or max(busy.values()) < least_busy or _elapsed_s(run) < seconds:
        return None
    title = f"{len(idle)} of {len(busy)} GPUs idle: {labels_text(idle)}"
    text = f"Request {plural(len(busy) - len(idle), 'GPU')} ({len(busy)} before), or use them all."
    return _finding(run, "warning", title, idle, busy, [_fewer(run, busy, text)])


def low_busy(run: RunData, seconds: float, warning: float, info: float) -> list[Finding]:
    """low-busy: the means of GPUs that worked, or that may have worked a little."""
    busy = _means(run)
    zero_counts = not any(busy.values()) and not _never_opened(run)
    found = []
    for level, least, most in (("warning", 0.0, warning), ("info", warning, info)):
        labels = [
            label
            for label, value in busy.items()
            if least <= value < most and (value or zero_counts)
        ]
        if labels and _elapsed_s(run) >= seconds:
            mean = sum(busy[each] for each in labels) / len(labels)
            share = percent(mean) if mean else f"at most {_ROUNDED_PERCENT:g} %"
            title = f"{labels_text(labels)} busy {share} mean"
            found.append(_finding(run, level, title, labels, busy, [_RECORD]))
    return found


def _never_opened(run: RunData) -> bool:
    nodes = used(run.job).nodes.values() if run.job is not None else ()
    return all(was_never_opened(gpu) for node in nodes for gpu in node.gpus.values())


def _means(run: RunData) -> dict[str, float]:
    means = mean_busy(run)
    return means if isinstance(means, dict) else {}


def _elapsed_s(run: RunData) -> float:
    told = run.job.elapsed_s if run.job else None
    return run.elapsed_s if told is None else told


def _fewer(run: RunData, busy: Mapping[str, float], text: str) -> Action:
    rest = [label.rpartition(":")[0] for label, value in busy.items() if value]
    line = gpus_line(requested(run), max(map(rest.count, rest), default=0), len(rest))
    return action_of(line, text)


def _finding(
    run: RunData,
    level: str,
    title: str,
    labels: Sequence[str],
    busy: Mapping[str, float],
    actions: Sequence[Action] = (),
) -> Finding:
    values = "/".join(percent(value).removesuffix(" %") for value in busy.values())
    wasted_s = sum((1 - min(busy[each], 100.0) / 100) * run.elapsed_s for each in labels)
    who = named(used(run.job).source) if run.job is not None else ""
    adds = f"mean by {who} over {age_text(run.elapsed_s)}, without a time series"
    return Finding(
        "",
        level,
        title,
        f"{who}: busy {values} % mean of {age_text(run.elapsed_s)}; no time series",
        "medium",
        subject=labels_text(labels),
        devices=tuple(labels),
        start=run.start,
        end=run.end,
        numbers={
            "gpus": len(busy),
            "gpus_idle": sum(value == 0 for value in busy.values()),
            "busy_mean_percent": sum(busy.values()) / len(busy),
        },
        actions=tuple(actions),
        waste_gpu_hours=wasted_s / 3600,
        adds=adds if len(busy) == 1 else None,
    )
