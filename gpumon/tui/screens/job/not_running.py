"""A job that does not run: what it waits for, or how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.model.units import age_text, span_text
from gpumon.tui.jobs import (
    component_text,
    elapsed_s,
    reason_text,
    resources_text,
    restart_text,
    state_text,
)
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.phrasing import signs

if TYPE_CHECKING:
    from gpumon.slurm.job import Job


def pending_rows(moment: Moment, job: Job) -> list[Row]:
    """Why it waits, until when, and what it asks for."""
    waits, expected = reason_text(job.reason), job.expected_start is not None
    limit = clean(job.time_limit_words, 40)
    facts = [
        ("state", state_text(job), "title"),
        ("attempt", restart_text(job), ""),
        ("because", waits or "Slurm reports no reason", "" if waits else "dim"),
        ("starts", _expected(moment, job), "" if expected else "dim"),
        ("on", clean(job.expected_nodes, 200), ""),
        ("waiting", _since(moment, job.submit), ""),
        ("requests", resources_text(job.requested.resources), ""),
        ("memory", "all of each node" if job.requested.mem_form_bytes == 0 else "", ""),
        ("time", limit if job.time_limit_s is None else span_text(job.time_limit_s), ""),
        ("features", clean(job.requested.constraint, 200), ""),
        ("partition", _partition(job), ""),
        ("part", component_text(job), ""),
    ]
    rows: list[Row] = [[]]
    rows += [[(f" {name:<11}", "dim"), (text, role)] for name, text, role in facts if text]
    rows += [[], [(" Its GPUs appear here when it starts.", "dim")]]
    return rows


def _since(moment: Moment, submit: float | None) -> str:
    return "" if submit is None else f"{age_text(moment.now - submit)}, since {_clock(submit)}"


def _partition(job: Job) -> str:
    names = (job.partition, job.qos) if job.partition else ()
    return " · ".join(clean(name, 60) for name in names if name)


def _expected(moment: Moment, job: Job) -> str:
    if job.expected_start is None:
        return "the scheduler has no estimate yet"
    wait_s = job.expected_start - moment.now
    when = f"in {age_text(wait_s)}" if wait_s > 0 else "which has passed"
    return f"{_clock(job.expected_start)}, {when} (Slurm's latest estimate)"


def connecting_rows(moment: Moment, height: int) -> list[Row]:
    """Before the first data: how far each node is, and which transports were refused."""
    waiting = [node for node in moment.nodes if moment.status(node).state == "connecting"]
    if not waiting or any(node.header is not None for node in moment.nodes):
        return []
    rows: list[Row] = [[]]
    wide = max(len(node.name) for node in waiting)
    for node in waiting[: max(0, height - 2)]:
        status = moment.status(node)
        doing = f"connecting by {status.source}" if status.source else "connecting"
        row: Row = [(f" {node.name:<{wide}}  ", ""), (f"{doing} …", "attention")]
        if status.detail:
            row.append((f"  not by {clean(status.detail)}", "dim"))
        rows.append(row)
    if len(waiting) > len(rows) - 1:
        rows.append([(f" … {len(waiting)} nodes in all", "dim")])
    return rows


def ended_rows(moment: Moment) -> list[Row]:
    """A banner over the last samples of a job that has ended; nothing while it runs."""
    job = moment.job
    if job is None or not moment.has_ended:
        return []
    role = "good" if job.state == "COMPLETED" else "bad"
    sign = signs(moment.glyphs)["note" if role == "good" else "bad"]
    row: Row = [(f" {sign} {state_text(job)}", role)]
    if job.end is not None:
        row.append((f"  ended {_clock(job.end)}", ""))
    elapsed = elapsed_s(job, moment.now)
    if elapsed is not None:
        row.append((f" after {age_text(elapsed)}", ""))
    reason = clean(job.reason, 80)
    if reason not in ("", "None"):
        row.append((f"  {reason}", "dim"))
    if job.failed_node:
        row.append((f"  failed node {clean(job.failed_node, 60)}", "bad"))
    row += [("   below: the last samples  ", "dim"), ("5", "key"), (" the report", "dim")]
    return [row]


def _clock(at: float) -> str:
    return time.strftime("%a %H:%M:%S", time.localtime(at))
