"""The screens of `gpumon attach` while Slurm moves, stops and cuts the job."""

from __future__ import annotations

import re

import pytest

from tests.slurm.following import Following, gone
from tests.slurm.test_cluster_screen import attached, left, shows
from tests.support.waiting import until

pytestmark = pytest.mark.terminal


def control(cluster, *argv):
    cluster.run("ctl", ["scontrol", *argv], "root")


def sent_to(cluster, job, nodes):
    """A job that waits after a requeue begins on these nodes at once, and on no other."""
    cluster.wait(job, "PENDING")
    count = nodes.count(",") + 1
    where = [f"ReqNodeList={nodes}", f"NumNodes={count}-{count}"]
    control(cluster, "update", f"JobId={job}", *where)
    begin_now(cluster, job)


def begin_now(cluster, job):
    """Slurm lets a requeued job wait for two minutes, from when its last process has ended."""
    now = ["scontrol", "update", f"JobId={job}", "StartTime=now"]

    def runs():
        cluster.run("ctl", now, "root", check=False)
        return cluster.show(job)["JobState"] == "RUNNING"

    until(runs, f"job {job} runs again")


def test_a_job_through_suspension_requeue_hold_and_end(cluster):
    options = ["--requeue", "-p", "gpu", "-w", "node1", "--gres=gpu:1", "--mem=500M"]
    with cluster.job("srun sleep 900", *options) as job, left(attached(cluster, job)) as screen:
        shows(screen, f"gpumon  {job}", "RUNNING", "node1", "1/1")

        control(cluster, "suspend", job)
        shows(screen, "SUSPENDED", "suspended", " left")
        control(cluster, "resume", job)
        shows(screen, "RUNNING", "1/1")

        control(cluster, "requeue", job)
        sent_to(cluster, job, "node2")
        shows(screen, "RUNNING · restart 1 · node2", "1/1")
        text = screen.text()
        assert "lost" not in text
        assert "gone" not in text
        screen.keys("4")
        shows(screen, "1 node, 1 GPUs (+1 former)", "node1", "node2")
        screen.keys("1")

        control(cluster, "requeuehold", job)
        shows(screen, "restart 2", "Its GPUs appear here when it starts")
        control(cluster, "release", job)
        sent_to(cluster, job, "node1")
        shows(screen, "RUNNING · restart 2 · node1", "1/1")

        cluster.cancel(job)
        shows(screen, "CANCELLED", "ended")


def test_a_job_that_shrinks_and_loses_a_node(cluster):
    """By srun, whose step is cut with the job; the node that stays is followed throughout."""
    with cluster.faulty() as node:
        options = ["--requeue", "-p", "all", "-w", f"node1,node2,{node}", "--gres=gpu:1"]
        with (
            cluster.job("srun --no-kill sleep 900", *options, "--mem=500M") as job,
            Following(cluster, job) as following,
        ):
            following.live("node1", "node2", node)
            control(cluster, "update", f"JobId={job}", f"NodeList=node1,{node}")
            following.until(lambda f: f.states("node2")[-1] == "left")
            assert following.last("node2")[1] == "no longer part of the job"
            following.until(lambda f: f.states("node1")[-1] == f.states(node)[-1] == "live")

            control(cluster, "update", f"NodeName={node}", "State=DOWN", "Reason=test")
            try:
                following.until(lambda f: f.states("node1")[-1] == f.states(node)[-1] == "left")
                following.until(lambda f: f.job_states[-1] == "PENDING")
            finally:  # it may have come back by itself
                resume = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
                cluster.run("ctl", resume, "root", check=False)
            sent_to(cluster, job, f"node2,{node}")
            known = len(following.of("sample", "node2"))
            following.until(lambda f: len(f.of("sample", "node2")) > known)
            following.until(lambda f: f.states(node)[-1] == "live")
            why = rf"restart 1, because ({node}|a node) failed"
            following.until(lambda f: re.fullmatch(why, f.of("job", "")[-1][1]))
            following.until(lambda f: f.states("node1")[-1] == "left")
            following.stop()
        gone(cluster, job, "node1", "node2", node)
