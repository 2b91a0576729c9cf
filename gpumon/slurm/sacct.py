"""`sacct`: its call, and its rows as jobs with their steps.

The job's row decides its state; steps differ (an OOM in a step leaves the job FAILED). While a
step runs, its usage is blank or zero in the accounting: not yet known, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import lru_cache
from typing import Any

from gpumon.errors import UsageError
from gpumon.model.text import clean
from gpumon.plain import replace
from gpumon.slurm import hostlist, ids, records, tres, values
from gpumon.slurm.job import Job, Request, Step, known_names
from gpumon.slurm.options import submitted_gpus
from gpumon.slurm.records import Unread
from gpumon.slurm.states import ENDED_STATES, PENDING_STATES

SOURCE = "sacct"
#: what gpumon asks for, where the installed release has it; free text last
FIELDS = (
    "JobIDRaw", "JobID", "Cluster", "State", "ExitCode", "DerivedExitCode", "Elapsed",
    "ElapsedRaw", "Start", "End", "Submit", "Eligible", "Timelimit", "TimelimitRaw", "Partition",
    "Account", "QOS", "User", "UID", "NNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "NTasks",
    "NodeList", "Constraints", "Reason", "ReqMem", "ReqTRES", "AllocTRES", "TotalCPU", "MaxRSS",
    "TRESUsageInTot", "TRESUsageInMax", "Restarts", "SLUID", "FailedNode", "StdOut", "StdErr",
    "AdminComment", "Comment", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip

NOT_YET = "not yet available: Slurm records it when the step ends"
NEVER_RAN = "the job never ran"
NO_STEPS = "the accounting shows no steps of this job"
NO_USAGE = "the accounting has no usage of this job's steps"

#: characters; a summary of a job on a thousand GPUs fits (js1)
MAX_ADMIN_COMMENT = 1 << 20

Row = Mapping[str, str]


def argv(delimiter: str, available: Collection[str], options: Sequence[str] = ()) -> list[str]:
    """The call for the jobs that the options choose; `available`: what --helpformat says."""
    chosen = fields(available)
    # both came with 24.05
    patterns = ["--expand-patterns"] if "StdOut" in chosen else []
    names = ",".join(chosen)
    return ["sacct", "-P", "-n", f"--delimiter={delimiter}", "-o", names, *patterns, *options]


def fields(available: Collection[str], wanted: Sequence[str] = FIELDS) -> list[str]:
    """Those that are available; one that is not makes the command fail."""
    there = {name.lower() for name in available}
    return [name for name in wanted if name.lower() in there]


def parse(
    output: bytes,
    delimiter: str,
    names: Sequence[str],
    unread: Unread | None = None,
    told_at: float | None = None,
) -> list[Job]:
    """The jobs in what sacct printed, without header, for these fields, in its order.

    Rows that cannot be read go to `unread`. `told_at`: our clock as of the answer.
    """
    text = output.decode("utf-8", "replace")
    return jobs(records.rows(text, delimiter, names, unread), unread=unread, told_at=told_at)


def jobs(
    rows: Iterable[Row], zone: tzinfo | None = None, unread: Unread | None = None, **same: Any
) -> list[Job]:
    """Rows by lower-case field name as jobs, each with its steps; attempts of a requeue apart.

    Rows without an ID, and steps whose job's row is not there, go to `unread`. `zone` is that of
    times which are not epoch; `same`: fields that all of the jobs have.
    """
    found: list[dict[str, Any]] = []
    steps: list[list[Step]] = []
    newest: dict[tuple[str, str], int] = {}
    for row in rows:
        id = _id_of(row)
        raw, _, step = id.partition(".")
        key = (row.get("cluster", ""), raw)  # the clusters of a federation use the same numbers
        if raw and not step:
            newest[key] = newest["", raw] = len(found)  # steps may not name their cluster
            found.append(_facts({**row, "jobidraw": raw}, zone) | same)
            steps.append([])
        elif raw and key in newest:
            steps[newest[key]].append(_step(step, row, zone))
        elif unread is not None:
            unread.add(f"step {id} without its job" if step else ",".join(row.values()))
    return [_joined(facts, tuple(own)) for facts, own in zip(found, steps)]


def _id_of(row: Row) -> str:
    """The ID of a job or step, raw where that is one; "" where the row has none."""
    for name in ("jobidraw", "jobid"):
        text = row.get(name, "").strip()
        if text[:1].isdecimal():
            return text
    return ""


def _joined(facts: dict[str, Any], steps: tuple[Step, ...]) -> Job:
    """The job with its steps, its source, and why its usage is not known where it is not."""
    missing = {}
    state, cpu_s = facts["state"], facts["cpu_s"]
    has_ended = state in ENDED_STATES
    if state in PENDING_STATES or (has_ended and not facts["elapsed_s"] and not steps):
        missing["usage"] = missing["cpu_s"] = NEVER_RAN if has_ended else "the job is pending"
        cpu_s = None
    elif not has_ended:
        missing["usage"] = NOT_YET
        if not cpu_s:  # a busy job shows 0 here
            missing["cpu_s"] = NOT_YET
            cpu_s = None
    elif not steps:  # sacct -X also zeroes TotalCPU
        missing["usage"] = NO_STEPS
        if not cpu_s:
            missing["cpu_s"] = NO_STEPS
            cpu_s = None
    elif not any(step.usage.total for step in steps):
        missing["usage"] = NO_USAGE
    facts |= {"steps": steps, "cpu_s": cpu_s}
    return Job(**facts, missing=missing, sources=_told(tuple(known_names(facts))))


@lru_cache(256)
def _told(names: tuple[str, ...]) -> Mapping[str, str]:
    """The source of each of these fields; jobs of which the same is known share it."""
    return dict.fromkeys(names, SOURCE)


def _uid(row: Row) -> int | None:
    """22.05 was seen to print 0 for a user who is not root: then it is not known."""
    uid = values.count(row.get("uid", ""))
    return uid if uid or row.get("user") == "root" else None


def job(row: Row, zone: tzinfo | None) -> Job:
    """The job of a row, which need not have all fields; its steps and sources are left out."""
    return Job(**_facts(row, zone))


def _facts(row: Row, zone: tzinfo | None) -> dict[str, Any]:
    """The fields of a Job that are in its row."""

    def text(name: str) -> str:
        value = row.get(name)
        return values.known(value) if value else ""

    shown = (text("jobid") or text("jobidraw")).partition(".")[0]
    state = values.state(row.get("state", ""))
    limit, words = values.time_limit(row.get("timelimit", ""), row.get("timelimitraw", ""))
    elapsed = values.count(row.get("elapsedraw", ""))
    ended = state.word in ENDED_STATES
    allocated = tres.resources(row.get("alloctres", ""))
    if not allocated.tres and state.word != "PENDING":  # 22.05 has the request in it till then
        allocated = replace(allocated, cpus=values.count(row.get("alloccpus", "")) or None)
    return dict(
        raw_id=text("jobidraw").partition(".")[0] or shown,
        sluid=text("sluid"),
        cluster=text("cluster"),
        name=text("jobname"),
        user=text("user"),
        uid=_uid(row),
        account=text("account"),
        partition=text("partition"),
        qos=text("qos"),
        state=state.word,
        state_flags=state.flags,
        state_by=state.by,
        reason=text("reason"),
        exit_code=values.exit_code(row.get("exitcode", "")) if ended else None,
        derived_exit_code=values.exit_code(row.get("derivedexitcode", "")) if ended else None,
        submit=values.moment(row.get("submit", ""), zone),
        eligible=values.moment(row.get("eligible", ""), zone),
        start=values.moment(row.get("start", ""), zone),
        end=values.moment(row.get("end", ""), zone),
        elapsed_s=elapsed if elapsed is not None else values.duration(row.get("elapsed", "")),
        time_limit_s=limit,
        time_limit_words=words,
        restarts=values.count(row.get("restarts", "")),
        node_list=text("nodelist"),
        nodes=nodes_of(text("nodelist")),
        failed_node=text("failednode"),
        requested=_request(row),
        allocated=allocated,
        cpu_s=values.duration(row.get("totalcpu", "")),
        submit_line=text("submitline"),
        work_dir=text("workdir"),
        std_out=text("stdout"),
        std_err=text("stderr"),
        comment=text("comment"),
        admin_comment=clean(row.get("admincomment", "").strip(), MAX_ADMIN_COMMENT),
        **_identity(shown),
    )


def _request(row: Row) -> Request:
    resources = tres.resources(row.get("reqtres", ""))
    nodes = values.count(row.get("nnodes", ""))
    if resources.gpus is None:  # not all sites count them
        named = submitted_gpus(row.get("submitline", ""), nodes)
        types = {kind: number for kind, number in named.items() if kind}
        resources = replace(resources, gpus=sum(named.values()) or None, gpu_types=types)
    mem, form = values.req_mem(row.get("reqmem", ""))
    if mem == 0:  # --mem=0, all memory of each node
        form = form or "node"
    if resources.cpus is None:
        resources = replace(resources, cpus=values.count(row.get("reqcpus", "")))
    if resources.mem_bytes is None and mem is not None:
        units = {"node": nodes, "cpu": resources.cpus, "": 1}[form]
        resources = replace(resources, mem_bytes=mem * units if mem and units else None)
    return Request(
        resources,
        mem_form=form,
        mem_form_bytes=mem if form else None,
        constraint=values.known(row.get("constraints", "")),
    )


def _step(id: str, row: Row, zone: tzinfo | None) -> Step:
    state = values.state(row.get("state", ""))
    ended = state.word in ENDED_STATES
    allocated = tres.resources(row.get("alloctres", ""))
    elapsed = values.count(row.get("elapsedraw", ""))
    return Step(
        id=id,
        name=values.known(row.get("jobname", "")),
        state=state.word,
        state_by=state.by,
        exit_code=values.exit_code(row.get("exitcode", "")) if ended else None,
        start=values.moment(row.get("start", ""), zone),
        end=values.moment(row.get("end", ""), zone),
        elapsed_s=elapsed if elapsed is not None else values.duration(row.get("elapsed", "")),
        node_list=values.known(row.get("nodelist", "")),
        node_count=values.count(row.get("nnodes", "")),
        cpus=allocated.cpus,
        tasks=values.count(row.get("ntasks", "")),
        allocated=allocated,
        source=SOURCE,
        **(_usage(row) if ended else {}),
    )


def with_usage(step: Step, row: Row) -> Step:
    """The step with the usage fields of a row of sacct or sstat."""
    return replace(step, **_usage(row))


def _usage(row: Row) -> dict[str, Any]:
    """The usage fields of a Step."""
    used = tres.usage(row.get("tresusageintot", ""), row.get("tresusageinmax", ""))
    known = [
        seconds
        for seconds in (values.duration(row.get("totalcpu", "")), used.total.get("cpu"))
        if seconds is not None
    ]
    return {
        "cpu_s": max(known, default=None),  # TotalCPU lacks killed processes
        "max_rss_bytes": values.size(row.get("maxrss", "")),
        "usage": used,
    }


def _identity(shown: str) -> dict[str, Any]:
    """The fields of a Job that follow from its ID."""
    if shown.isdecimal() and len(shown) <= 10 and shown.isascii():  # nearly all
        return {"id": shown}
    try:
        id = ids.parse(shown)
    except UsageError:
        return {"id": shown}
    return {
        "id": id.whole,
        "array_job_id": id.job if id.task else "",
        "array_task": id.task,
        "het_job_id": id.job if id.het else "",
        "het_offset": int(id.het) if id.het else None,
    }


@lru_cache(4096)
def nodes_of(node_list: str) -> tuple[str, ...]:
    """Its names; none where it is no list."""
    try:
        return tuple(hostlist.expand(node_list))
    except ValueError:
        return ()
