"""Which job an id means, and how two views of a job are joined."""

from __future__ import annotations

import pytest

from gpumon.errors import UsageError
from gpumon.slurm import ids
from gpumon.slurm.choose import choose
from gpumon.slurm.job import Job, Request, Resources, Step

TASKS = [
    Job(raw_id="10", id="6_[4-8:2,20%2]", array_job_id="6", array_task="4-8:2,20%2"),
    Job(raw_id="7", id="6_1", array_job_id="6", array_task="1"),
    Job(raw_id="6", id="6_10", array_job_id="6", array_task="10"),
]
HET = [
    Job(raw_id="14", id="14+0", het_job_id="14", het_offset=0),
    Job(raw_id="15", id="14+1", het_job_id="14", het_offset=1),
]


@pytest.mark.parametrize(
    ("text", "jobs", "raw_id"),
    [
        ("6_1", TASKS, "7"),
        ("6_6", TASKS, "10"),
        ("6_20", TASKS, "10"),
        ("6_5", TASKS, None),
        ("6", TASKS[:1], "10"),
        ("7", TASKS[1:2], "7"),
        ("14", HET, "14"),
        ("14+1", HET, "15"),
        ("14+2", HET, None),
        ("15", HET[1:], "15"),
        ("1", [], None),
        ("3", [Job(raw_id="3", id="3"), Job(raw_id="3", id="3", node_list="n2")], "3"),
    ],
)
def test_choose(text, jobs, raw_id):
    found = choose(ids.parse(text), jobs)
    assert (found.raw_id if found else None) == raw_id


def test_the_newest_attempt_counts():
    attempts = [Job(raw_id="3", id="3"), Job(raw_id="3", id="3", node_list="n2")]
    assert choose(ids.parse("3"), attempts).node_list == "n2"


def test_tasks_of_an_array_are_named_those_that_wait_last():
    with pytest.raises(UsageError, match=r"6_1, 6_10, 6_\[4-8:2,20%2\]"):
        choose(ids.parse("6"), TASKS)


def test_merged_views_keep_what_only_one_knows():
    ours = Job(
        raw_id="1",
        requested=Request(Resources(cpus=2), mem_form="node", mem_form_bytes=0),
        allocated=Resources(gpus=0),
        steps=(Step("0", source="sstat"),),
        missing={"usage": "not yet", "cluster": "not told"},
    ).with_source("squeue")
    theirs = Job(
        raw_id="2",
        cluster="c",
        requested=Request(Resources(cpus=8, mem_bytes=5), constraint="a100"),
        allocated=Resources(gpus=4, cpus=3),
        steps=(Step("0", source="sacct"), Step("batch", source="sacct")),
    ).with_source("sacct")
    both = ours.merged(theirs)
    assert (both.raw_id, both.cluster) == ("1", "c")
    assert both.requested.resources == Resources(cpus=2, mem_bytes=5)
    assert both.requested.mem_form_bytes == 0
    assert both.requested.constraint == "a100"
    assert both.allocated == Resources(gpus=0, cpus=3)
    assert [(step.id, step.source) for step in both.steps] == [("0", "sstat"), ("batch", "sacct")]
    assert both.sources["cluster"] == "sacct"
    assert both.sources["raw_id"] == "squeue"
    assert both.missing == {"usage": "not yet"}
