"""seff's arithmetic beside what seff itself printed on the same clusters."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timezone

import pytest

from gpumon.slurm import saved
from gpumon.slurm.job import Job, Resources, Step, Usage
from gpumon.slurm.seff import rule, seff
from tests.slurm import samples

WITH_SEFF = [c for c in samples.CLUSTERS if "after-seff-gpu.txt" in samples.files(c)]
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def printed(cluster: str, kind: str) -> tuple[float, float, float] | None:
    """(CPU %, memory %, memory used in bytes) as seff printed them, or None."""
    text = samples.read(cluster, f"after-seff-{kind}.txt").decode()
    cpu = re.search(r"CPU Efficiency: ([\d.]+)%", text)
    mem = re.search(r"Memory Utilized: ([\d.]+) (\w+)", text)
    share = re.search(r"Memory Efficiency: ([\d.]+)%", text)
    if not (cpu and mem and share):
        return None
    return float(cpu[1]), float(share[1]), float(mem[1]) * _UNITS.get(mem[2], 1)


@pytest.mark.parametrize("cluster", WITH_SEFF)
def test_the_same_percentages_as_seff(cluster):
    jobs = {
        job.raw_id: job
        for job in saved.parse(samples.read(cluster, "after-sacct-P-all.txt"), timezone.utc)
    }
    compared = 0
    for kind, id in samples.job_ids(cluster).items():
        expected = printed(cluster, kind)
        if expected is None or kind == "array":  # of an array seff takes another task's record
            continue
        found = seff(jobs[id], cluster.partition("-")[0])
        cpu, mem, used = expected
        if jobs[id].elapsed_s == 0:
            assert (found.cpu_percent, cpu) == (None, 0)  # seff prints 0 % of no time
        else:
            assert found.cpu_percent == pytest.approx(cpu, abs=0.006), kind
        assert found.mem_bytes == pytest.approx(used, rel=0.01, abs=600), kind
        assert found.mem_percent == pytest.approx(mem, abs=0.006), kind
        compared += 1
    assert compared >= 15


def test_all_releases_were_compared():
    assert {cluster.partition("-")[0] for cluster in WITH_SEFF} == set(samples.RELEASES)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("20.11.9", "22.05"),
        ("22.05.8", "22.05"),
        ("23.02.0", "23.02"),
        ("23.11.11", "23.02"),
        ("24.05.8", "23.02"),  # the change of 24.05.5 was taken back
        ("24.11.0", "24.11"),
        ("26.05.3", "24.11"),
        ("", ""),
    ],
)
def test_rules(version, name):
    assert rule(version) == name


GIB = float(1 << 30)
TWO_TASKS = Step(
    "0", tasks=2, usage=Usage(total={"mem": 5 * GIB}, maximum={"mem": 4 * GIB}), state="COMPLETED"
)
JOB = Job(
    raw_id="1",
    state="COMPLETED",
    elapsed_s=100,
    cpu_s=150.0,
    allocated=Resources(cpus=2, mem_bytes=16 << 30),
    steps=(TWO_TASKS, replace(TWO_TASKS, id="1", usage=Usage(total={"mem": GIB}))),
)


def test_tasks_that_differ_are_counted_differently():
    assert seff(JOB, "23.11.1").mem_percent == 50
    assert seff(JOB, "24.11.0").mem_percent == 31.25
    assert seff(JOB, "24.11.0").cpu_percent == 75


def test_before_23_02_the_share_is_of_the_request():
    asked = replace(JOB, requested=replace(JOB.requested, resources=Resources(mem_bytes=8 << 30)))
    assert seff(asked, "22.05.8").mem_percent == 100
    assert seff(JOB, "22.05.8").mem_percent is None


def test_nothing_divides_by_0():
    found = seff(replace(JOB, elapsed_s=0), "24.11.0")
    assert found.cpu_percent is None
    assert seff(Job(), "24.11.0").cpu_percent is None
