"""`squeue`: the queue as jobs: why they wait, where they run, when they are expected to start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpumon.slurm import records, sacct, tres, values
from gpumon.slurm.job import Job, Request

SOURCE = "squeue"
#: of `-O`; the same in 20.11 to 26.05, free text last
FIELDS = (
    "JobID", "JobArrayID", "State", "NumNodes", "NumCPUs", "tres-alloc", "StartTime", "EndTime",
    "SubmitTime", "EligibleTime", "TimeLimit", "TimeUsed", "UserName", "UserID", "Account",
    "Partition", "QOS", "NodeList", "SchedNodes", "BatchHost", "Feature", "Reason", "Comment",
    "WorkDir", "Name",
)  # fmt: skip


def argv(
    delimiter: str, *, job_ids: Sequence[str] = (), user: str = "", states: Sequence[str] = ()
) -> list[str]:
    """The call for these jobs, or a user's, or all."""
    form = ",".join(f"{name}:{delimiter}" for name in FIELDS)
    command = ["squeue", "-h", "-a", "-O", form]
    if job_ids:
        command.append(f"--jobs={','.join(job_ids)}")
    if user:
        command += ["-u", user]
    return [*command, "-t", ",".join(states)] if states else command


def parse(output: bytes, delimiter: str) -> list[Job]:
    """The jobs in what that call printed."""
    text = output.decode("utf-8", "replace")
    names = [name.lower() for name in FIELDS]
    names[:2] = ["jobidraw", "jobid"]  # as sacct calls them
    return [_job(row) for row in records.rows(text, delimiter, [*names, ""])]


def _job(row: sacct.Row) -> Job:
    def text(name: str) -> str:
        return values.known(row[name])

    state = values.state(row["state"])
    limit, words = values.time_limit(row["timelimit"])
    resources = tres.resources(row["tres-alloc"])
    shown = text("jobid")
    job = Job(
        raw_id=text("jobidraw"),
        name=text("name"),
        user=text("username"),
        uid=values.count(row["userid"]),
        account=text("account"),
        partition=text("partition"),
        qos=text("qos"),
        state=state.word,
        state_flags=state.flags,
        reason=text("reason"),
        submit=values.moment(row["submittime"]),
        eligible=values.moment(row["eligibletime"]),
        elapsed_s=values.duration(row["timeused"]),
        time_limit_s=limit,
        time_limit_words=words,
        node_list=text("nodelist"),
        nodes=sacct.nodes_of(text("nodelist")),
        batch_node=text("batchhost"),
        expected_nodes=text("schednodes"),
        comment=text("comment"),
        work_dir=text("workdir"),
    )
    job = sacct.identified(job, shown)
    if job.is_pending:  # the column then holds what was asked for
        request = Request(resources, constraint=text("feature"))
        job = replace(job, requested=request, expected_start=values.moment(row["starttime"]))
    else:
        job = replace(
            job,
            allocated=resources,
            start=values.moment(row["starttime"]),
            end=values.moment(row["endtime"]),
        )
    return job.with_source(SOURCE)
