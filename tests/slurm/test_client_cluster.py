"""Slurm asked for real: a running cluster, jobs with hostile names, other people's jobs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpumon.errors import NotFoundError
from gpumon.model.text import clean
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import LocalRunner, Result, SlurmError
from gpumon.transport.sstat import steps_of
from tests.slurm import jobs
from tests.slurm.cluster import Cluster
from tests.support.waiting import HANGS_S, until

#: forges a record, fields, rows and colours wherever they are not kept apart
HOSTILE = (
    "x\x1f1\x1f|a UserId=root(0) JobState=FAILED\n   UserId=root(0)\n\n"
    "JobId=1 JobName=evil\n   UserId=bob(20002)\n1|1|FAILED|\x1b[31m é"
)
#: a step on all nodes
WIDE = "srun sleep 600"


class OnLogin:
    """Runs Slurm's commands on the cluster's login host."""

    def __init__(self, cluster: Cluster, user: str) -> None:
        self._cluster = cluster
        self._user = user

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        command = self._cluster.command("login", argv, self._user, env)
        number = {"GPUMON_CLUSTER_ID": self._cluster.folder.name.rpartition("-")[2]}
        return LocalRunner().run(command, env=number, timeout_s=HANGS_S)


def slurm(cluster: Cluster, user: str = "alice") -> Slurm:
    return Slurm(OnLogin(cluster, user))


def test_a_running_job_with_a_hostile_name(cluster):
    options = ("-p", "gpu", "--gres=gpu:a100:1", "-c2", "--mem-per-cpu=100M", "-t", "5")
    id = cluster.submit("srun sleep 600", "-J", HOSTILE, "--comment=c|d", *options)
    try:

        def measured():
            asked = slurm(cluster)
            job = asked.with_usage(asked.job(id))
            steps = [step.usage.total.get("mem") for step in job.steps if step.source == "sstat"]
            there = job.is_running and len(steps) >= 3 and any(steps)  # batch, extern, 0
            return there and (asked, job)

        asked, job = until(measured)
        assert (job.id, job.user, job.state, job.partition) == (id, "alice", "RUNNING", "gpu")
        assert job.name == clean(HOSTILE)
        assert job.comment == "c|d"
        assert (job.allocated.cpus, job.allocated.gpus) == (2, 1)
        assert (job.requested.mem_form, job.requested.mem_form_bytes) == ("cpu", 100 << 20)
        assert (job.requested.gres, job.requested.gres_form) == ("gpu:a100:1", "node")
        [share] = job.allocations
        assert (share.node, share.gpus) == (job.nodes[0], 1)
        assert job.end - job.start == 300
        assert "usage" not in job.missing
        assert [job.name for job in asked.queue([id])] == [clean(HOSTILE)]
        assert "srun sleep 600" in asked.batch_script(id)
    finally:
        cluster.cancel(id)


def test_what_sstat_tells_of_a_node(cluster):
    """Of steps on one node all, of a step on several nothing."""
    script = (
        f"srun -N1 -n1 -w node1 {jobs.hold(60, 600).strip()} & srun -N1 -n1 -w node2 sleep 600 &"
    )
    options = ("-w", "node1,node2", "--mem=500M")
    with cluster.job(f"{script}\nwait\n", *options) as id, cluster.job(WIDE, *options) as wide:

        def told(id, enough):
            asked = slurm(cluster)
            job, steps = asked.job(id), asked.usage([id]).get(id, ())
            there = {step.id for step in steps} >= enough
            return there and [
                {step.id: step.usage.total.get("mem") for step in steps_of(job, node, steps)}
                for node in job.nodes
            ]

        def measured():
            steps = told(id, {"batch", "0", "1"})
            if not steps:
                return False
            first, second = steps
            assert "extern" not in {**first, **second}
            own = first.get("0") or first.get("1") or 0
            return own > 60 << 20 and (set(first), set(second))

        assert until(measured) in (({"batch", "0"}, {"1"}), ({"batch", "1"}, {"0"}))
        until(lambda: "0" in {step.id for step in slurm(cluster).usage([wide]).get(wide, ())})
        with pytest.raises(SlurmError, match="step 0 runs on several nodes"):
            told(wide, {"0"})


def test_somebody_elses_job(cluster):
    with cluster.job("sleep 600", "--mem=100M") as id:
        asked = slurm(cluster, "bob")
        assert asked.job(id).user == "alice"
        with pytest.raises(SlurmError, match="owner"):
            asked.usage([id])
        with pytest.raises(NotFoundError, match="script"):
            asked.batch_script(id)


def test_the_cluster(cluster):
    asked = slurm(cluster)
    assert asked.version() == asked.config().version
    assert asked.idle_gpus()
    with pytest.raises(NotFoundError):
        asked.job("99999999")
