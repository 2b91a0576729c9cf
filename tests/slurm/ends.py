"""Ends of dashboards at random times and of random kinds, on nodes made slow, and what they leave.

    python -m tests.slurm.ends [COUNT] [SEED]      # as root: 300 of them, on a cluster of its own

Each end has a job of its own. Afterwards every step of gpumon's must be COMPLETED 0:0, the job's
DerivedExitCode 0:0, and neither srun nor relay on the login host nor agents on the nodes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from typing import NamedTuple

from tests.slurm.cluster import FAULTY, Cluster, end
from tests.slurm.following import RELAY, Following, agents, gpumon_steps
from tests.support.waiting import until

#: a `python3` of the nodes that takes up to 8 s to start, every second time none
SLOW = """\
#!/bin/sh
n=$(($(od -An -N2 -tu2 /dev/urandom)))
[ $((n % 2)) = 0 ] || sleep $((n % 9))
exec /usr/bin/python3 "$@"
"""
NODES = ("node1", "node2", "node3")
#: what may happen to a dashboard, its agents, its relay or its nodes
KINDS = ("quit", "kill", "term", "stop", "once", "agent", "hung agent", "relay", "cable")
#: s; agents that nobody can reach end after 45
_GONE_S = 200.0


class End(NamedTuple):
    """One end: what happens, and how long after the start."""

    kind: str
    after_s: float


def ends(count: int, seed: int) -> list[End]:
    """Random ones, of all kinds alike."""
    chance = random.Random(seed)
    return [End(KINDS[at % len(KINDS)], chance.uniform(0.0, 14.0)) for at in range(count)]


def slow_path(cluster: Cluster) -> dict[str, str]:
    """The environment in which the nodes are slow."""
    folder = cluster.home() / "slow"
    folder.mkdir(exist_ok=True)
    cluster.write("slow/python3", SLOW)
    path = cluster.run("login", ["sh", "-c", "echo $PATH"]).stdout.strip()
    return {"PATH": f"{folder}:{path}"}


def run(cluster: Cluster, batch: list[End], faulty: str) -> list[str]:
    """All of these at once, the cable being this node's; what is wrong afterwards."""
    env = slow_path(cluster)
    jobs = [_submitted(cluster, each, at, faulty) for at, each in enumerate(batch)]
    try:
        for job in jobs:
            cluster.wait(job, "RUNNING")
        threads = [
            threading.Thread(target=_end, args=(cluster, job, each, env, faulty))
            for job, each in zip(jobs, batch)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = _left(cluster, jobs, faulty)
        found = [_wrong(cluster, job, each) for job, each in zip(jobs, batch)]
        return [*left, *filter(None, found)]
    finally:
        cluster.link(faulty, up=True)
        for job in jobs:
            cluster.cancel(job)


def _submitted(cluster: Cluster, each: End, at: int, faulty: str) -> str:
    first, second = NODES[at % 3], NODES[(at + 1) % 3]
    nodes = f"{first},{faulty if each.kind == 'cable' else second}"
    options = ["-p", "all", "-w", nodes, "-N2", "--mem=300M", "--no-requeue"]
    return cluster.submit("sleep 900", *options)


def _end(cluster: Cluster, job: str, each: End, env: dict[str, str], faulty: str) -> None:
    if each.kind == "once":
        argv = ["gpumon", "attach", "--json", "--via", "srun", job]
        cluster.run("login", argv, env=env, check=False, timeout_s=120)
        return
    with Following(cluster, job, "srun", env=env) as following:
        time.sleep(each.after_s)
        _happens(cluster, job, each.kind, following, faulty)
        if each.kind in ("stop", "agent", "hung agent", "relay", "cable"):
            time.sleep(5)
        if each.kind != "stop":  # else it is killed as it stands
            with contextlib.suppress(OSError):
                following.process.stdin.close()
            following.process.wait(60)


def _happens(cluster: Cluster, job: str, kind: str, following: Following, faulty: str) -> None:
    process = following.process
    if kind == "kill":
        end(process)
    elif kind in ("term", "stop"):
        os.killpg(process.pid, signal.SIGTERM if kind == "term" else signal.SIGSTOP)
    elif kind in ("agent", "hung agent"):
        signal_agents(cluster, job, is_killed=kind == "agent")
    elif kind == "relay":
        for pid in cluster.pids("login", RELAY):
            cluster.run("login", ["kill", "-9", str(pid)], "root", check=False)
    elif kind == "cable":
        cluster.link(faulty, up=False)
        time.sleep(5)
        cluster.link(faulty, up=True)


def signal_agents(cluster: Cluster, job: str, *, is_killed: bool) -> None:
    """Kill the agents, not the shells around them, or have them stand still for a while."""
    kill = "case $c in python* | gpumon-guest) kill -$n $p;; esac"
    script = f"for p; do read -r c </proc/$p/comm; {kill}; done"
    for number in (signal.SIGKILL,) if is_killed else (signal.SIGSTOP, signal.SIGCONT):
        for node, pids in agents(cluster, job, *NODES).items():
            words = ["sh", "-c", f"n={int(number)}; {script}", "sh", *map(str, pids)]
            if node != "login":
                cluster.run(node, words, "root", check=False)
        time.sleep(2)


def _left(cluster: Cluster, jobs: list[str], faulty: str) -> list[str]:
    """What stays of all of them, in words."""
    pattern = "|".join(jobs)
    deadline = time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        there = agents(cluster, pattern, *NODES, faulty)
        if not there and not cluster.pids("login", RELAY):
            return []
        time.sleep(1)
    return [f"left behind: {there}, {cluster.pids('login', RELAY)}"]


def _wrong(cluster: Cluster, job: str, each: End) -> str:
    def all_ended() -> bool:
        return not [row for row in gpumon_steps(cluster, job) if row["State"] == "RUNNING"]

    with contextlib.suppress(AssertionError):
        until(all_ended, "the steps end", 20)
    steps = gpumon_steps(cluster, job)
    bad = [row for row in steps if (row["State"], row["ExitCode"]) != ("COMPLETED", "0:0")]
    code = cluster.accounting(job, "DerivedExitCode")[0]["DerivedExitCode"]
    return f"{each}: job {job}: {bad}, {code}" if bad or code != "0:0" else ""


def main() -> int:
    from tests.slurm.sharing import shared_cluster

    words = sys.argv[1:]
    count, seed = int(words[0]) if words else 300, int(words[1]) if len(words) > 1 else 1
    todo, wrong, done, size = ends(count, seed), 0, 0, len(KINDS)
    with shared_cluster(f"ends {os.getpid()}") as cluster:
        while todo:
            batch, todo = todo[:size], todo[size:]
            try:
                found = run(cluster, batch, FAULTY[0])
            except AssertionError as error:  # of the cluster: its jobs do not start
                print(f"not run: {error}", flush=True)
                continue
            done, wrong = done + len(batch), wrong + len(found)
            print(f"{done} ends, {wrong} wrong", *found, sep="\n  ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
