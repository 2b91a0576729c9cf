"""The lines of one's jobs as cells of a table, as plain text, and as JSON."""

from __future__ import annotations

import json
from typing import Any

from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text
from gpumon.report.jobs import JobLine, Listing, Verdict
from gpumon.report.render.layout import aligned
from gpumon.report.usage import NOT_MEASURED, Figures, Use, size_text
from gpumon.slurm.groups import JobGroup

HEAD = (
    "job", "name", "state", "partition", "nodes × GPUs", "elapsed / limit", "left", "GPUs busy",
    "GPU memory", "memory", "waste", "what to do",
)  # fmt: skip
_RIGHT = [HEAD.index(name) for name in ("nodes × GPUs", "elapsed / limit", "left", "waste")]
#: of a value that there is not, such as the time left of an ended job
NONE = "-"
_MAX_CELL = 100


def cells(line: JobLine, now: float) -> list[str]:
    """In the order of the head; any text in them is clean."""
    group, figures, verdict = line.group, line.figures, line.verdict
    left_s = group.left_s(now)
    return [
        clean(group.id, 40),
        clean(group.name, 60) or NONE,
        state_text(group),
        clean(group.shown[0].partition, 40) or NONE,
        _shape(group),
        _elapsed(group, now),
        NONE if left_s is None else age_text(left_s),
        busy_text(figures, group),
        _memory(figures.gpu_mem, is_need=figures.is_need),
        _memory(figures.mem),
        NONE if verdict.waste_gpu_hours is None else f"{verdict.waste_gpu_hours:.1f}",
        clean(advice(line) or answer(verdict), _MAX_CELL) or NONE,
    ]


def state_text(group: JobGroup) -> str:
    """`RUNNING`, `CANCELLED`; of an array, how many tasks of all: `RUNNING 2/40`."""
    state = clean(group.state, 20).replace("OUT_OF_MEMORY", "OUT_OF_MEM")
    if group.tasks:
        return f"{state} {group.tasks.get(group.state, 0)}/{sum(group.tasks.values())}"
    return state


def _shape(group: JobGroup) -> str:
    """`2 × 4`: nodes, and GPUs on each; `3 / 4 GPUs` where these differ."""
    nodes, gpus = group.nodes, group.gpus
    if nodes is None:
        return NONE if gpus is None else f"{gpus} GPUs"
    if gpus is None:
        return f"{nodes} × {NONE}"
    return f"{nodes} / {gpus} GPUs" if gpus % nodes else f"{nodes} × {gpus // nodes}"


def _elapsed(group: JobGroup, now: float) -> str:
    elapsed_s, limit_s = group.elapsed_s(now), group.shown[0].time_limit_s
    if group.is_pending:
        return NONE if limit_s is None else f"{NONE} / {age_text(limit_s)}"
    text = "n/a" if elapsed_s is None else age_text(elapsed_s)
    return text if limit_s is None else f"{text} / {age_text(limit_s)}"


def busy_text(figures: Figures, group: JobGroup) -> str:
    """`3/4 71 %`, or why it is not known."""
    busy, gpus = figures.busy, figures.gpus
    if busy.used is None or gpus.peak is None:
        return clean(busy.why or gpus.why or "n/a", 40)
    text = f"{gpus.peak:.0f}/{gpus.given:.0f} {busy.used:.0f} %"
    if group.gpus is not None and gpus.given != group.gpus:
        text += f" of {group.gpus}"  # the others were not seen
    return text


def _memory(use: Use, *, is_need: bool = True) -> str:
    if use.used is None:
        return NONE
    text = size_text(use.used, use.given)
    if text.startswith("0 /") and use.used:
        text = bytes_text(use.used)  # so little that it would read as nothing
    return text if is_need else f"{text}*"


def answer(verdict: Verdict) -> str:
    return verdict.told.answer if verdict.told is not None else ""


def advice(line: JobLine) -> str:
    """What to do first, in brief; of a pending job, why it waits."""
    first = line.group.jobs[0]
    if line.group.is_pending:
        return first.reason if first.reason not in ("", "None") else ""
    return line.verdict.advice


def text_table(listing: Listing, now: float) -> str:
    """All columns, however wide; then the notes."""
    if not listing.lines:
        return "\n".join([*listing.notes, "No jobs."]) + "\n"
    rows = [HEAD, *(cells(line, now) for line in listing.lines)]
    return "\n".join([*aligned(rows, _RIGHT), *listing.notes]) + "\n"


def json_text(listing: Listing, now: float) -> str:
    """One object; what is not known is null, with its reason in `missing`."""
    body = {
        "version": 1,
        "time": listing.at,
        "source": listing.source,
        "notes": list(listing.notes),
        "jobs": [_body(line, now) for line in listing.lines],
    }
    return json.dumps(body, allow_nan=False)


def _body(line: JobLine, now: float) -> dict[str, Any]:
    group, figures, verdict = line.group, line.figures, line.verdict
    first = group.shown[0]
    gpus, gpu_mem, mem = figures.gpus, figures.gpu_mem, figures.mem
    named = {"gpu_busy_percent": figures.busy, "gpu_mem_bytes": gpu_mem, "mem_bytes": mem}
    missing = {name: use.why or NOT_MEASURED for name, use in named.items() if use.used is None}
    if group.gpus is None:
        missing["gpus"] = "Slurm lists no GPUs of this job"
    if verdict.missing:
        missing["waste_gpu_hours"] = verdict.missing
    return {
        "id": group.id,
        "name": first.name or None,
        "user": first.user or None,
        "cluster": first.cluster or None,
        "partition": first.partition or None,
        "state": group.state,
        "tasks": group.tasks or None,
        "reason": first.reason if first.reason not in ("", "None") else None,
        "nodes": group.nodes,
        "gpus": group.gpus,
        "submit": group.submit,
        "start": group.start,
        "expected_start": first.expected_start,
        "end": first.end if group.has_ended else None,
        "elapsed_s": None if group.is_pending else group.elapsed_s(now),
        "time_limit_s": first.time_limit_s,
        "time_left_s": group.left_s(now),
        "recorded": line.is_recorded,
        "window": None if "gpu_busy_percent" in missing else "now" if figures.is_now else "run",
        "gpus_active": None if gpus.peak is None else int(gpus.peak),
        "gpus_seen": None if gpus.given is None else int(gpus.given),
        "gpu_busy_percent": figures.busy.used,
        "gpu_mem_bytes": gpu_mem.used,
        "gpu_mem_total_bytes": gpu_mem.given,
        "gpu_mem_is_need": None if gpu_mem.used is None else figures.is_need,
        "mem_bytes": mem.used,
        "mem_limit_bytes": mem.given,
        "waste_gpu_hours": verdict.waste_gpu_hours,
        "verdict": verdict.told and verdict.told._asdict(),
        "finding": verdict.title or None,
        "level": verdict.level or None,
        "action": advice(line) or None,
        "missing": missing,
    }
