"""A job that does not run: what it waits for, or how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.model.units import age_text, clock_text
from gpumon.tui.jobs import component_text, reason_text, resources_text, state_text
from gpumon.tui.lines import Row
from gpumon.tui.state import ViewState
from gpumon.tui.views.request import ASCII_SIGNS, SIGNS

if TYPE_CHECKING:
    from gpumon.slurm.job import Job


def pending_rows(state: ViewState, job: Job) -> list[Row]:
    """Why it waits, until when, and what it asks for."""
    facts = [("state", state_text(job), "title")]
    waits = reason_text(job.reason)
    facts.append(("because", waits or "Slurm gives no reason", "" if waits else "dim"))
    facts.append(("starts", _expected(state, job), "" if job.expected_start else "dim"))
    if job.expected_nodes:
        facts.append(("on", clean(job.expected_nodes, 200), ""))
    if job.submit is not None:
        facts.append(
            ("waiting", f"{age_text(state.now - job.submit)}, since {_clock(job.submit)}", "")
        )
    wanted = resources_text(job.requested.resources)
    if wanted:
        facts.append(("asks for", wanted, ""))
    if job.time_limit_s is not None or job.time_limit_words:
        limit = clock_text(job.time_limit_s) if job.time_limit_s is not None else ""
        facts.append(("time", limit or clean(job.time_limit_words, 40), ""))
    if job.requested.constraint:
        facts.append(("features", clean(job.requested.constraint, 200), ""))
    if job.partition:
        facts.append(
            ("partition", " · ".join(clean(t, 60) for t in (job.partition, job.qos) if t), "")
        )
    part = component_text(job)
    if part:
        facts.append(("part", part, ""))
    rows: list[Row] = [[]]
    rows += [[(f" {name:<11}", "dim"), (text, role)] for name, text, role in facts]
    rows += [[], [(" Its GPUs appear here when it starts.", "dim")]]
    return rows


def _expected(state: ViewState, job: Job) -> str:
    if job.expected_start is None:
        return "the scheduler has no estimate yet"
    wait_s = job.expected_start - state.now
    when = f"{_clock(job.expected_start)} at the latest estimate"
    return f"{when}, in {age_text(wait_s)}" if wait_s > 0 else f"{when}, which has passed"


def connecting_rows(state: ViewState, height: int) -> list[Row]:
    """Before any node has told anything: how far each is, and which ways were refused."""
    waiting = [node for node in state.nodes if node.status(state.now).state == "connecting"]
    if not waiting or any(node.header is not None for node in state.nodes):
        return []
    rows: list[Row] = [[]]
    wide = max(len(node.name) for node in waiting)
    for node in waiting[: max(0, height - 2)]:
        status = node.status(state.now)
        doing = f"connecting by {status.source}" if status.source else "connecting"
        row: Row = [(f" {node.name:<{wide}}  ", ""), (f"{doing} …", "attention")]
        if status.detail:
            row.append((f"  not by {clean(status.detail)}", "dim"))
        rows.append(row)
    if len(waiting) > len(rows) - 1:
        rows.append([(f" … {len(waiting)} nodes in all", "dim")])
    return rows


def ended_rows(state: ViewState) -> list[Row]:
    """A banner over the last samples of a job that has ended; nothing while it runs."""
    job = state.job
    if job is None or not state.has_ended:
        return []
    signs = ASCII_SIGNS if state.glyphs == "ascii" else SIGNS
    role = "good" if job.state == "COMPLETED" else "bad"
    sign = signs["note"] if role == "good" else signs["bad"]
    row: Row = [(f" {sign} {state_text(job)}", role)]
    if job.end is not None:
        row.append((f"  ended {_clock(job.end)}", ""))
    elapsed = elapsed_s(job, state.now)
    if elapsed is not None:
        row.append((f" after {clock_text(elapsed)}", ""))
    reason = clean(job.reason, 80)
    if reason not in ("", "None"):
        row.append((f"  {reason}", "dim"))
    if job.failed_node:
        row.append((f"  failed node {clean(job.failed_node, 60)}", "bad"))
    row += [("   below: the last samples  ", "dim"), ("5", "key"), (" the report", "dim")]
    return [row]


def elapsed_s(job: Job, now: float) -> float | None:
    """How long the job has run, or ran."""
    if job.has_ended and job.elapsed_s is not None:
        return job.elapsed_s
    counted_s = job.elapsed_at(now)
    if counted_s is not None:
        return counted_s
    if job.start is None:
        return None
    end = job.end if job.has_ended and job.end is not None else now
    return max(0.0, end - job.start)


def _clock(at: float) -> str:
    return time.strftime("%a %H:%M:%S", time.localtime(at))
