"""gpumon's steps in Slurm's accounting: few, shared, and COMPLETED 0:0 however they end."""

from __future__ import annotations

import contextlib
import json

from tests.slurm import ends
from tests.slurm.cluster import end
from tests.slurm.ends import KINDS, End
from tests.slurm.following import RELAY, Following, agents, attach, gone, gpumon_steps
from tests.support.waiting import until

NODES = ("node1", "node2")


def test_however_dashboards_end_their_steps_end_with_0(cluster):
    """On nodes whose Python takes seconds to start; also where the input ends before the agents'
    modules have come, or before Python runs. `python -m tests.slurm.ends` has 300 more.
    """
    with cluster.faulty() as node:
        batch = ends.ends(len(KINDS), seed=24)
        assert {each.kind for each in batch} == set(KINDS)
        assert ends.run(cluster, [*batch, End("kill", 0.8), End("kill", 2.0)], node) == []


def test_dashboards_share_one_step_and_one_that_leaves_leaves_the_others_alone(cluster):
    """Whoever it is, and however; whoever comes later has whole samples from the first one on."""
    options = ["-w", ",".join(NODES), "-p", "gpu", "--gres=gpu:1", "--mem=500M"]
    with cluster.job("srun sleep 600", *options) as job, contextlib.ExitStack() as stack:
        first, second, third = dashboards = [
            stack.enter_context(Following(cluster, job, "srun")) for _ in range(3)
        ]
        for each in dashboards:
            each.live(*NODES)
        end(first.process)  # which may have started the relay
        known = {each: len(each.of("sample", "node1")) for each in (second, third)}
        done = attach(cluster, job, "--via", "srun", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(each["job"]["id"], len(each["devices"])) for each in told] == [(job, 1)] * 2
        for each, count in known.items():
            each.until(lambda f, count=count: len(f.of("sample", "node1")) > count + 2)
        late = stack.enter_context(Following(cluster, job, "srun"))
        late.live(*NODES)
        for node in NODES:
            (_, devices, pid), *_ = late.of("header", node)
            assert (len(devices), pid) == (1, second.of("header", node)[0][2])
        second.stop()
        so_far = len(late.of("sample", "node2"))
        late.until(lambda f: len(f.of("sample", "node2")) > so_far + 2)
        assert len(gpumon_steps(cluster, job)) == 1
        for each in (third, late):
            assert [each.states(node)[-1] for node in NODES] == ["live", "live"]
            assert not {"lost"} & {state for node in NODES for state in each.states(node)}
            each.stop()
        gone(cluster, job, *NODES)
        (step,) = until(lambda: completed(cluster, job), "the step ends")
        assert step["ExitCode"] == "0:0"
    assert cluster.accounting(job, "DerivedExitCode")[0]["DerivedExitCode"] == "0:0"


def test_srun_does_not_outlive_its_step_when_its_node_is_gone(cluster):
    """srun waits for ever for the node, whose job has long failed."""
    with cluster.faulty() as node:
        options = ["-p", "all", "-w", f"node1,{node}", "--mem=300M", "--no-requeue"]
        update = ["scontrol", "update", f"NodeName={node}"]
        with cluster.job("sleep 600", *options) as job:
            with Following(cluster, job, "srun") as following:
                following.live("node1", node)
                cluster.link(node, up=False)
                end(following.process)
            cluster.run("ctl", [*update, "State=DOWN", "Reason=test"], "root")
            until(lambda: not agents(cluster, job, "node1").get("login"), "srun ends", 200)
            until(lambda: not cluster.pids("login", RELAY), "and the relay with the last one")
            cluster.link(node, up=True)
            cluster.run("ctl", [*update, "State=RESUME"], "root")
            (step,) = until(lambda: completed(cluster, job), "the step ends")
            assert step["ExitCode"] == "0:0"


def completed(cluster, job):
    steps = gpumon_steps(cluster, job)
    return steps if all(row["State"] == "COMPLETED" for row in steps) else []
