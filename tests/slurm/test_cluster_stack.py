"""`gpumon stack` on a real cluster: the ranks of a job on all its nodes, by every way."""

from __future__ import annotations

import json

from tests.e2e.program import gpumon
from tests.slurm.following import gone, gpumon_steps, laptop
from tests.support.waiting import until

#: each rank waits in one function, but rank 1 in another one
PROGRAM = """
import os, time

def all_reduce():
    print("here", flush=True)
    time.sleep(900)

def item():
    all_reduce()

def main(password):
    item() if os.environ["SLURM_PROCID"] == "1" else all_reduce()

main("hunter2")
"""
#: and number on its node
RANKS = [(0, 0), (1, 1), (2, 0), (3, 1)]


def test_every_rank_on_every_node_by_each_way(cluster, tmp_path):
    """Four ranks on two nodes, all of which stand still."""
    program = cluster.write("stands.py", PROGRAM)
    options = ["-w", "node1,node2", "-n4", "--ntasks-per-node=2", "--mem=500M"]
    with cluster.job(f"srun python3 -u {program}", *options) as job:
        until(lambda: cluster.log(job).count("here") == 4)
        nodes = cluster.nodes(job)
        for via in ("ssh", "srun"):
            done = cluster.run("login", ["gpumon", "stack", job, "--via", via, "--json"])
            assert done.stderr == ""
            told = json.loads(done.stdout)["stacks"]
            assert [(each["rank"], each["local_rank"]) for each in told] == RANKS
            assert [each["node"] for each in told] == [nodes[0]] * 2 + [nodes[1]] * 2
            calls = [[frame["function"] for frame in each["threads"][0]["frames"]] for each in told]
            straight = ["all_reduce", "main", "<module>"]
            crooked = ["all_reduce", "item", "main", "<module>"]
            assert calls == [straight, crooked, straight, straight]
            assert "hunter2" not in done.stdout
            gone(cluster, job, *nodes)
        (step,) = until(lambda: ended(gpumon_steps(cluster, job)), "the step ends")
        assert step["ExitCode"] == "0:0"

        done = cluster.run("login", ["gpumon", "stack", job, "--nodes", nodes[1]])
        first, *frames = done.stdout.splitlines()
        assert first == "ranks 2–3: stands.py:6  (py-spy)"
        assert frames[0].split() == [">", "stands.py:6", "all_reduce"]
        done = gpumon("stack", job, "--login", "login", env=laptop(cluster, tmp_path))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert done.stdout.startswith("ranks 0–3 on ")
        done = cluster.run("login", ["gpumon", "stack", job], "bob", check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "alice's" in done.stderr


def ended(steps):
    return steps if all(row["State"] == "COMPLETED" for row in steps) else []
