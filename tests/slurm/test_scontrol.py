"""What the controller tells: jobs with their allocations, configuration, processes."""

from __future__ import annotations

from datetime import timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.text import clean
from gpumon.slurm import scontrol
from gpumon.slurm.job import ExitCode, Job
from tests.slurm import samples

GIB = 1 << 30
EARLIEST = 1795000000  # all samples are younger


def shown(cluster: str, kind: str, when: str = "running") -> list[Job]:
    return scontrol.parse(samples.read(cluster, f"{when}-job-{kind}.txt"), timezone.utc)


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_running_gpu_job(cluster):
    [job] = shown(cluster, "gpu")
    assert (job.id, job.raw_id, job.name, job.user, job.uid) == ("11", "11", "gpu", "alice", 20001)
    assert (job.state, job.reason, job.partition, job.exit_code) == ("RUNNING", "", "gpu", None)
    assert job.end == job.start + 600
    assert job.start > EARLIEST
    assert job.allocated.gpus == 2
    assert job.allocated.mem_bytes == 2 * GIB
    [share] = job.allocations
    assert share.node == job.batch_node == job.nodes[0]
    assert (share.cpus, share.mem_bytes, share.gpus) == (2, 2 * GIB, 2)
    assert (job.requested.mem_form, job.requested.mem_form_bytes) == ("node", 2 * GIB)
    assert (job.requested.gres, job.requested.gres_form) == ("gpu:a100:2", "node")
    assert (job.requested.tasks, job.requested.cpus_per_task) == (1, 2)
    assert set(job.sources.values()) == {"scontrol"}


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_gpus_of_two_nodes(cluster):
    [job] = shown(cluster, "gpun2")
    assert len(job.nodes) == 2
    assert [share.node for share in job.allocations] == list(job.nodes)
    assert [share.gpus for share in job.allocations] == [1, 1]


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_gpus_per_task_in_both_ways_of_writing(cluster):
    [job] = shown(cluster, "gpupertask")
    assert (job.requested.gres, job.requested.gres_form) == ("gpu:1", "task")
    assert job.allocations[0].gpus == 2


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_of_an_ended_job_the_gpus_of_a_node_are_unknown_not_0(cluster):
    [job] = shown(cluster, "gpu", "after")
    assert (job.state, job.exit_code, job.derived_exit_code) == (
        "COMPLETED",
        ExitCode(0),
        ExitCode(1),
    )
    assert job.allocated.gpus == 2
    assert [share.gpus for share in job.allocations] == [None]


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_job_without_gpus_has_0(cluster):
    [job] = shown(cluster, "cpuhog")
    assert job.allocated.gpus == 0
    assert [share.gpus for share in job.allocations] == [0]


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_pending_job_has_an_estimate_and_no_allocation(cluster):
    [job] = shown(cluster, "bigpend")
    assert job.is_pending
    assert job.reason in ("Priority", "Resources")
    assert (job.start, job.end, job.nodes, job.allocations) == (None, None, (), ())
    assert job.expected_start > EARLIEST
    assert job.expected_nodes in ("node[1-3]", "")
    assert (job.requested.mem_form, job.requested.mem_form_bytes) == ("node", 0)
    assert job.requested.resources.nodes == 3


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_arrays_het_jobs_and_memory_per_core(cluster):
    assert sorted(job.id for job in shown(cluster, "array")) == ["6_1", "6_2", "6_3", "6_4"]
    het = sorted(shown(cluster, "het"), key=lambda job: job.raw_id)
    assert [(job.id, job.raw_id) for job in het] == [("14+0", "14"), ("14+1", "15")]
    [job] = shown(cluster, "multistep")
    assert (job.requested.mem_form, job.requested.mem_form_bytes) == ("cpu", 200 << 20)


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_name_with_quotes_and_the_comment(cluster):
    [job] = shown(cluster, "longname")
    assert job.name == 'weird|name, with "quotes" é'
    assert job.comment == "a|b"


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
@pytest.mark.parametrize("when", ["running", "after"])
def test_all_jobs_at_once_are_the_same_as_one_by_one(cluster, when):
    together = scontrol.parse(
        samples.read(cluster, f"{when}-scontrol-show-job-all.txt"), timezone.utc
    )
    alone = [job for kind in samples.job_ids(cluster) for job in shown(cluster, kind, when)]
    assert len(together) == len(alone) == 22

    def facts(jobs: list[Job]) -> dict[str, tuple[object, ...]]:
        return {job.raw_id: (job.id, job.name, job.requested) for job in jobs}

    if when == "after":
        assert facts(together) == facts(alone)


RECORD = samples.read("24.11.7-cgroupv1", "running-job-gpu.txt").decode()


@given(st.text(st.characters(exclude_characters="\n"), max_size=60))
def test_no_name_of_one_line_shifts_a_field(name):
    for hostile in (name, f"{name} UserId=root(0) JobState=FAILED JobName={name}"):
        text = RECORD.replace("JobName=gpu\n", f"JobName={hostile}\n")
        text = text.replace("Comment=tensorflow", f"Comment={hostile} NodeList=evil")
        [job] = scontrol.parse(text.encode("utf-8", "surrogatepass"))
        assert (job.user, job.state, job.nodes) == ("alice", "RUNNING", ("node3",))
        assert job.allocations[0].gpus == 2
        assert job.name == clean(job.name)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data):
    scontrol.parse(b"JobId=1 JobName=" + data)
    scontrol.parse(data)
    scontrol.parse_config(data)


@pytest.mark.parametrize("release", samples.RELEASES)
def test_the_configuration(release):
    config = scontrol.parse_config(samples.read(f"{release}-cgroupv1", "scontrol-show-config.txt"))
    assert config.version == release
    assert config.cluster == "gpumon"
    assert config.gathered_by == "cgroup/v1"


def test_the_linux_plugin_is_named():
    config = scontrol.parse_config(samples.read("22.05.8-nocgroup", "scontrol-show-config.txt"))
    assert config.gathered_by == "linux"
