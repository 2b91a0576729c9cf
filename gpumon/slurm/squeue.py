"""`squeue`: the queue as jobs: why they wait, where they run, when they are expected to start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpumon.slurm import records, sacct, values
from gpumon.slurm.job import Job, Request, Resources

SOURCE = "squeue"
#: of `-O`, and as sacct calls them; the same in 20.11 to 26.05, free text last
FIELDS = {
    "JobID": "jobidraw", "JobArrayID": "jobid", "State": "state", "tres-alloc": "alloctres",
    "StartTime": "start", "EndTime": "end", "SubmitTime": "submit", "EligibleTime": "eligible",
    "TimeLimit": "timelimit", "TimeUsed": "elapsed", "UserName": "user", "UserID": "uid",
    "Account": "account", "Partition": "partition", "QOS": "qos", "NodeList": "nodelist",
    "SchedNodes": "schednodes", "BatchHost": "batchhost", "Feature": "constraints",
    "Reason": "reason", "Comment": "comment", "WorkDir": "workdir", "Name": "jobname",
}  # fmt: skip


def argv(delimiter: str, options: Sequence[str] = ()) -> list[str]:
    """The call for the jobs that the options choose, or all."""
    form = ",".join(f"{name}:{delimiter}" for name in FIELDS)
    return ["squeue", "-h", "-a", "-O", form, *options]


def parse(output: bytes, delimiter: str) -> list[Job]:
    """The jobs in what that call printed."""
    text = output.decode("utf-8", "replace")
    names = [name.lower() for name in FIELDS]
    names[:2] = ["jobidraw", "jobid"]  # whose forms are known
    rows = records.rows(text, delimiter, [*names, ""])
    return [_job(dict(zip(FIELDS.values(), row.values()))) for row in rows]


def _job(row: sacct.Row) -> Job:
    job = sacct.job(row, None)
    job = replace(
        job,
        batch_node=values.known(row["batchhost"]),
        expected_nodes=values.known(row["schednodes"]),
    )
    if job.is_pending:  # the column then holds the request
        job = replace(
            job,
            requested=replace(job.requested, resources=job.allocated),
            allocated=Resources(),
            expected_start=job.start,
            start=None,
            end=None,
        )
    else:
        job = replace(job, requested=Request())
    return job.with_source(SOURCE)
