"""`gpumon once` and `gpumon doctor` inside a job: its GPUs by CUDA's numbers, its limits."""

from __future__ import annotations

import json

from gpumon.model.fields import FIELDS
from tests.slurm import jobs

MIB = 1 << 20
OVERLAP = ["--overlap", "--mem=0"]


def in_job(cluster, job, *command):
    return cluster.run("login", ["srun", f"--jobid={job}", *OVERLAP, *command]).stdout


def test_a_steps_gpus_and_limits(cluster):
    """Beside another job, so that its GPUs are not the node's first."""
    with cluster.job("sleep 600", "-w", "node2", "-p", "gpu", "--gres=gpu:1") as first:
        job = jobs.gpus(cluster, "-w", "node2")
        try:
            cluster.wait(job, "RUNNING")
            body = json.loads(in_job(cluster, job, "gpumon", "once", "--json"))
            other = json.loads(in_job(cluster, first, "gpumon", "once", "--json"))
            doctor = in_job(cluster, job, "gpumon", "doctor")
        finally:
            cluster.cancel(job)
    devices = body["devices"]
    minors = [device["minor"] for device in devices]
    assert [device["index"] for device in devices] == minors
    assert [device["cuda_index"] for device in devices] == [0, 1]
    assert [device["uuid"] for device in devices] == [cluster.uuid("node2", n) for n in minors]
    assert other["devices"][0]["uuid"] not in {device["uuid"] for device in devices}
    expected = {  # Slurm does not tell a step from outside the job's name
        "id": job, "name": "", "user": "alice", "partition": "gpu", "nodes": "node2",
        "cpus": 2, "mem_limit_bytes": 2048 * MIB, "gpus": 2,
    }  # fmt: skip
    assert {name: body["job"][name] for name in expected} == expected
    assert (body["node"], body["driver"]) == ("node2", "580.159.03")
    assert f"Slurm job                              {job}" in doctor
    assert "2 GPUs visible to CUDA" in doctor
    assert f"of {len(FIELDS['job'])} readings" in doctor


def test_outside_of_a_job_and_in_one_without_gpus(cluster):
    body = json.loads(cluster.run("node1", ["gpumon", "once", "--json"]).stdout)
    assert [device["uuid"] for device in body["devices"]] == [
        cluster.uuid("node1", minor) for minor in range(4)
    ]
    assert body["job"] is None
    with cluster.job("sleep 600", "--mem=500M", "-c2") as job:
        body = json.loads(in_job(cluster, job, "gpumon", "once", "--json"))
    assert body["devices"] == []
    assert (body["job"]["cpus"], body["job"]["mem_limit_bytes"]) == (2, 500 * MIB)
    body = json.loads(cluster.run("login", ["gpumon", "doctor", "--json"]).stdout)
    found = {check["name"]: (check["result"], check["detail"]) for check in body["checks"]}
    assert found["Slurm's commands"] == ("ok", "squeue, scontrol, srun, sstat, sacct")
    assert found["Slurm's controller"][1].endswith(f", cluster {cluster.name}")
    assert found["accounting"] == ("ok", "sacct works")
