"""The fact `job_cpus`: which CPUs of the node are the job's, for whoever compares with its GPUs."""

from __future__ import annotations

import os

import pytest

from gpumon.collect.agent import Agent
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import find_job_cgroup
from gpumon.collect.procfs import parse_cpu_list
from gpumon.model.reading import Missing
from tests.collect.trees import SLUID, V2_STEP_CGROUP, plant_v2

IN_JOB = {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "gpu07"}


def told(environ, cgroup=None):
    agent = Agent(1.0, environ)
    if cgroup is not None:
        agent.cgroup = cgroup
    return agent.header().facts.get("job_cpus")


def test_the_cgroup_s_are_the_job_s(tmp_path):
    path = find_job_cgroup(V2_STEP_CGROUP, {"SLURM_JOB_SLUID": SLUID, **IN_JOB})
    cgroup = JobCgroup(path, mounts=plant_v2(tmp_path))
    assert told({**IN_JOB, "SLURM_JOB_SLUID": SLUID}, cgroup) == "0-3,8"


def test_without_a_cpuset_those_that_we_may_use():
    own = told({**IN_JOB, "SLURM_JOB_CPUS_PER_NODE": "1"})
    assert set(parse_cpu_list(own)) == os.sched_getaffinity(0)


@pytest.mark.parametrize("count", ["65536", "65536(x2)", ""])
def test_what_may_be_fewer_than_the_job_has_are_one_task_s(count):
    """Bound to its own CPUs, it may stand far from GPUs next to which the job has others."""
    reading = told({**IN_JOB, "SLURM_JOB_CPUS_PER_NODE": count})
    assert isinstance(reading, Missing)


def test_outside_of_a_job_there_are_none():
    assert told({}) is None
