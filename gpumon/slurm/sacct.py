"""`sacct`: how it is asked, and its rows as jobs with their steps.

The job's row decides its state; steps differ (an OOM in a step leaves the job FAILED). While a
step runs, its usage is blank or zero in the accounting: not yet known, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import lru_cache
from typing import Any

from gpumon.errors import UsageError
from gpumon.model.text import clean
from gpumon.slurm import hostlist, ids, records, tres, values
from gpumon.slurm.job import ENDED_STATES, Job, Request, Step, known_names

SOURCE = "sacct"
#: what gpumon asks for, where the installed release has it; free text last
FIELDS = (
    "JobIDRaw", "JobID", "Cluster", "State", "ExitCode", "DerivedExitCode", "Elapsed",
    "ElapsedRaw", "Start", "End", "Submit", "Eligible", "Timelimit", "TimelimitRaw", "Partition",
    "Account", "QOS", "User", "UID", "NNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "NTasks",
    "NodeList", "Constraints", "Reason", "ReqMem", "ReqTRES", "AllocTRES", "TotalCPU", "MaxRSS",
    "MaxRSSNode", "MaxRSSTask", "AveRSS", "TRESUsageInTot", "TRESUsageInAve", "TRESUsageInMax",
    "TRESUsageInMaxNode", "TRESUsageInMaxTask", "Restarts", "SLUID", "FailedNode", "StdOut",
    "StdErr", "AdminComment", "Comment", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip

NOT_YET = "not yet known: Slurm's accounting has it when the step ends"
NEVER_RAN = "the job never ran"
NO_STEPS = "the accounting shows no steps of this job"
NO_USAGE = "the accounting holds no usage of this job's steps"

#: characters; a summary of a job on a thousand GPUs fits (js1)
MAX_ADMIN_COMMENT = 1 << 20

Row = Mapping[str, str]


def argv(
    delimiter: str,
    available: Collection[str],
    *,
    job_ids: Sequence[str] = (),
    user: str = "",
    since: str = "",
    until: str = "",
    states: Sequence[str] = (),
    duplicates: bool = False,
) -> list[str]:
    """The call for these jobs, or a user's in a window; `available`: what --helpformat says."""
    chosen = fields(available)
    command = ["sacct", "-P", "-n", f"--delimiter={delimiter}", "-o", ",".join(chosen)]
    if "StdOut" in chosen:  # both came with 24.05
        command.append("--expand-patterns")
    if job_ids:
        command += ["-j", ",".join(job_ids)]
    if user:
        command += ["-u", user]
    if since:
        command += ["-S", since]
    if until:
        command += ["-E", until]
    if states:
        command += ["-s", ",".join(states)]
    return [*command, "-D"] if duplicates else command


def fields(available: Collection[str]) -> list[str]:
    """Those of FIELDS that are available; one that is not makes sacct fail."""
    there = {name.lower() for name in available}
    return [name for name in FIELDS if name.lower() in there]


def parse(output: bytes, delimiter: str, names: Sequence[str]) -> list[Job]:
    """The jobs in what sacct printed, without header, for these fields, in its order."""
    text = output.decode("utf-8", "replace")
    return jobs(records.rows(text, delimiter, names))


def jobs(rows: Iterable[Row], zone: tzinfo | None = None) -> list[Job]:
    """Rows by lower-case field name as jobs, each with its steps; attempts of a requeue apart.

    Steps whose job's row is not there are left out. `zone` is that of times which are not epoch.
    """
    found: list[Job] = []
    steps: list[list[Step]] = []
    newest: dict[str, int] = {}
    for row in rows:
        raw, _, step = (row.get("jobidraw") or row.get("jobid", "")).partition(".")
        if not step and raw:
            newest[raw] = len(found)
            found.append(_job(row, zone))
            steps.append([])
        elif raw in newest:
            steps[newest[raw]].append(_step(step, row, zone))
    return [joined(job, tuple(own)) for job, own in zip(found, steps)]


def joined(job: Job, steps: tuple[Step, ...]) -> Job:
    """The job with its steps, its source, and why its usage is not known where it is not."""
    missing = dict(job.missing)
    cpu_s = job.cpu_s
    if job.is_pending or (job.has_ended and not job.elapsed_s and not steps):
        missing["usage"] = missing["cpu_s"] = NEVER_RAN if job.has_ended else "the job waits"
        cpu_s = None
    elif not job.has_ended:
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
    told = {**vars(job), "steps": steps, "cpu_s": cpu_s}
    sources = dict.fromkeys(known_names(told), SOURCE)
    return replace(job, steps=steps, cpu_s=cpu_s, sources=sources, missing=missing)


def _uid(row: Row) -> int | None:
    """22.05 was seen to print 0 for a user who is not root: then it is not known."""
    uid = values.count(row.get("uid", ""))
    return uid if uid or row.get("user") == "root" else None


def _job(row: Row, zone: tzinfo | None) -> Job:
    def text(name: str) -> str:
        return values.known(row.get(name, ""))

    shown = text("jobid").partition(".")[0]
    state = values.state(row.get("state", ""))
    limit, words = values.time_limit(row.get("timelimit", ""), row.get("timelimitraw", ""))
    elapsed = values.count(row.get("elapsedraw", ""))
    ended = state.word in ENDED_STATES
    allocated = tres.resources(row.get("alloctres", ""))
    if not allocated.tres and state.word != "PENDING":  # 22.05 has the request in it till then
        allocated = replace(allocated, cpus=values.count(row.get("alloccpus", "")) or None)
    return Job(
        raw_id=(text("jobidraw") or shown).partition(".")[0],
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
    mem, form = values.req_mem(row.get("reqmem", ""))
    if resources.cpus is None:
        resources = replace(resources, cpus=values.count(row.get("reqcpus", "")))
    if resources.mem_bytes is None and mem is not None:
        units = {"node": values.count(row.get("nnodes", "")), "cpu": resources.cpus, "": 1}[form]
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
    """The fields of a Step that say what it used."""
    used = tres.usage(
        *(row.get("tresusagein" + part, "") for part in ("tot", "ave", "max", "maxnode", "maxtask"))
    )
    known = [
        seconds
        for seconds in (values.duration(row.get("totalcpu", "")), used.total.get("cpu"))
        if seconds is not None
    ]
    return {
        "cpu_s": max(known, default=None),  # TotalCPU lacks killed processes
        "max_rss_bytes": values.size(row.get("maxrss", "")),
        "max_rss_node": values.known(row.get("maxrssnode", "")),
        "max_rss_task": values.count(row.get("maxrsstask", "")),
        "ave_rss_bytes": values.size(row.get("averss", "")),
        "usage": used,
    }


def identified(job: Job, shown: str) -> Job:
    """The job under its id as people say it, with what that tells: of an array, of a het job."""
    return replace(job, **_identity(shown))


def _identity(shown: str) -> dict[str, Any]:
    """The fields of a Job that its id tells."""
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
