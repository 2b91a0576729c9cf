"""The queue, usage of running steps, and the nodes with their GPUs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.text import clean
from gpumon.slurm import records, sinfo, squeue, sstat
from gpumon.slurm.job import Step
from tests.slurm import samples

RUNNING = {
    "JobID": "20",
    "JobArrayID": "6_1",
    "State": "RUNNING",
    "NumNodes": "1",
    "NumCPUs": "2",
    "tres-alloc": "cpu=2,mem=2G,node=1,billing=2,gres/gpu=2,gres/gpu:a100=2",
    "StartTime": "1795202365",
    "EndTime": "1795202965",
    "SubmitTime": "1795202364",
    "EligibleTime": "1795202364",
    "TimeLimit": "10:00",
    "TimeUsed": "0:18",
    "UserName": "alice",
    "UserID": "20001",
    "Account": "research",
    "Partition": "gpu",
    "QOS": "normal",
    "NodeList": "node[2-3]",
    "SchedNodes": "(null)",
    "BatchHost": "node2",
    "Feature": "(null)",
    "Reason": "None",
    "Name": "train",
}
PENDING = {
    **RUNNING,
    "JobID": "21",
    "JobArrayID": "21",
    "State": "PENDING",
    "StartTime": "1795209999",
    "NodeList": "",
    "BatchHost": "n/a",
    "SchedNodes": "node[1-3]",
    "Feature": "a100|h100",
    "Reason": "Priority",
    "TimeLimit": "UNLIMITED",
}


def printed(delimiter: str, *rows: dict[str, str]) -> bytes:
    """As `squeue -O` prints them: the delimiter behind each field."""
    lines = ("".join(row.get(name, "") + delimiter for name in squeue.FIELDS) for row in rows)
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")


def test_the_queue():
    running, pending = squeue.parse(printed("\x1fx\x1f", RUNNING, PENDING), "\x1fx\x1f")
    assert (running.id, running.raw_id, running.array_job_id) == ("6_1", "20", "6")
    assert (running.state, running.user, running.uid) == ("RUNNING", "alice", 20001)
    assert running.nodes == ("node2", "node3")
    assert (running.allocated.gpus, running.allocated.mem_bytes) == (2, 2 << 30)
    assert (running.end - running.start, running.time_limit_s, running.elapsed_s) == (600, 600, 18)
    assert pending.is_pending
    assert pending.reason == "Priority"
    assert (pending.expected_start, pending.start, pending.end) == (1795209999, None, None)
    assert pending.expected_nodes == "node[1-3]"
    assert pending.requested.resources.gpus == 2
    assert pending.requested.constraint == "a100|h100"
    assert pending.allocated.gpus is None
    assert (pending.time_limit_s, pending.time_limit_words) == (None, "UNLIMITED")


@given(st.text(max_size=60), st.text(alphabet="\n |\x1fR20,", max_size=30))
def test_no_name_shifts_a_field_or_makes_a_job(name, comment):
    delimiter = records.new_delimiter()
    rows = [
        {**row, "Name": name, "Comment": comment, "WorkDir": name} for row in (RUNNING, PENDING)
    ]
    found = squeue.parse(printed(delimiter, *rows), delimiter)
    assert [(job.id, job.user) for job in found] == [("6_1", "alice"), ("21", "alice")]
    assert all(job.name == clean(job.name) for job in found)


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_every_field_is_known_to_every_release(cluster):
    """The releases print a heading of the same name for what we ask."""
    command = samples.commands(cluster)["running-squeue-O.txt"].command
    asked = re.findall(r"([\w-]+):\|", command)
    heading = samples.read(cluster, "running-squeue-O.txt").decode().split("\n")[0].split("|")
    assert len(heading) == len(asked) + 1
    assert {"tres-alloc", "JobArrayID", "NodeList", "TimeLimit"} <= set(asked) & set(squeue.FIELDS)


def usage(cluster: str, name: str) -> dict[str, dict[str, Step]]:
    text = samples.read(cluster, name).decode()
    header, _, body = text.partition("\n")
    found = sstat.parse(body.encode(), header.split("|"))
    return {job: {step.id: step for step in steps} for job, steps in found.items()}


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_usage_of_running_steps(cluster):
    [steps] = usage(cluster, "running-sstat-twonode.txt").values()
    assert {"batch", "extern"} <= set(steps)
    batch = steps["batch"]
    assert batch.tasks == 1
    assert batch.max_rss_bytes > 0
    assert batch.cpu_s is not None
    assert batch.source == "sstat"
    assert batch.node_list.startswith("node")


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_an_extern_step_has_figures_or_none_but_no_sentinel(cluster):
    [steps] = usage(cluster, "running-sstat-cpuhog.txt").values()
    extern = steps["extern"]
    if cluster.startswith(("25.05", "26.05")):
        assert (extern.cpu_s, extern.max_rss_bytes) == (None, None)
    else:
        assert extern.cpu_s == 0


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_foreign_job_gives_a_header_and_no_steps(cluster):
    assert samples.commands(cluster)["running-sstat-bob.txt"].code == 0
    assert usage(cluster, "running-sstat-bob.txt") == {}


def test_gpu_figures_are_sums_over_the_gpus():
    text = samples.read("25.05.8-fakenvml", "running-sstat.txt").decode()
    header, _, body = text.partition("\n")
    found = sstat.parse(body.encode(), header.split("|"))
    numbered = {step.id: step for step in found["1"]}["0"]
    assert numbered.usage.total["gres/gpuutil"] == 170
    assert numbered.usage.total["gres/gpumem"] == 60000 << 20
    two_nodes = {step.id: step for step in found["4"]}["0"]
    assert two_nodes.usage.maximum["gres/gpuutil"] == 80


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data):
    squeue.parse(data, "|")
    sstat.parse(data, sstat.FIELDS)
    sinfo.parse(data, "|")
    sinfo.parse(b"n1|idle|gpu:a100:4|" + data, "|")


def idle(*rows: str) -> dict[str, int]:
    return sinfo.parse("".join(row + "|\n" for row in rows).encode(), "|")


def test_idle_gpus():
    found = idle(
        "n1|idle|gpu:a100:4|gpu:a100:0(IDX:N/A)",
        "n1|idle|gpu:a100:4|gpu:a100:0(IDX:N/A)",  # in another partition
        "n2|mixed|gpu:a100:4|gpu:a100:3(IDX:0-2)",
        "n3|drained|gpu:a100:4|gpu:a100:0(IDX:N/A)",
        "n4|idle*|gpu:h100:8(S:0-1)|gpu:h100:0(IDX:N/A)",
        "n5|allocated|(null)|gpu:0",
        "n6|idle|gpu:2|gpu:1",
    )
    assert found == {"a100": 5, "h100": 0, "": 1}


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_gpus_of_the_sampled_nodes(cluster):
    """Rows of our call, written from those of the recorded one."""
    lines = samples.read(cluster, "running-sinfo-O.txt").decode().splitlines()
    recorded = [dict(zip(lines[0].split("|"), line.split("|"))) for line in lines[1:]]
    rows = (
        f"{row['NODELIST']}|{row['STATE']}|{row['GRES']}|{row['GRES_USED']}" for row in recorded
    )
    assert idle(*rows) == {"a100": 12 - 6}
