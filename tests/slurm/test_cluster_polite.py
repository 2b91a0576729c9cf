"""What gpumon asks of a real slurmctld, by its own counts, and what it does without answers."""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.cluster import end
from tests.support.waiting import HANGS_S

#: users without a name: slurmctld's counts of their questions are ours alone
ALONE, TOGETHER = 1, 2

#: looks at a job for some seconds as a dashboard does in minutes
FOLLOW = """\
import sys, time
from gpumon.services.asking import shared_answers
from gpumon.slurm import pace
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import LocalRunner

pace.LEAST_PERIOD_S = 0.3
slurm = Slurm(LocalRunner(), answers=shared_answers(), controller_period_s=0.3)
until = time.monotonic() + 6
while time.monotonic() < until:
    [job] = slurm.live(sys.argv[1])
    assert (job.state, len(job.allocations)) == ("RUNNING", 1), job
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def job(cluster):
    with cluster.job("srun sleep 600", "-w", "node1", "--gres=gpu:1", "-p", "gpu") as job:
        yield job


def as_user(uid, *words):
    """`words` as a user of this number, with a runtime folder of its own."""
    make = "mkdir -p -m 700 /run/u$0 && chown $0 /run/u$0"
    start = f'{make} && exec setpriv --reuid "$0" --clear-groups "$@"'
    own = [f"HOME=/run/u{uid}", f"XDG_RUNTIME_DIR=/run/u{uid}"]
    return ["bash", "-c", start, str(uid), "env", *own, *map(str, words)]


def questions(cluster, uid):
    """How many slurmctld has had from this user."""
    found = re.search(rf"\(\s*{uid}\)\s+count:(\d+)", cluster.ask("sdiag"))
    return int(found[1]) if found else 0


def test_five_that_follow_a_job_ask_as_often_as_one(cluster, job):
    def follow(uid, number):
        argv = as_user(uid, cluster.folder / "venv" / "bin" / "python", "-c", FOLLOW, job)
        before = questions(cluster, uid)
        running = [cluster.popen("login", argv, "root", text=True) for _ in range(number)]
        try:
            for process in running:
                _, err = process.communicate(timeout=HANGS_S)
                assert process.returncode == 0, err
        finally:
            for process in running:
                end(process)
        return questions(cluster, uid) - before

    one = follow(cluster.nameless_uid(ALONE), 1)
    five = follow(cluster.nameless_uid(TOGETHER), 5)
    assert one > 3
    assert five < 2.5 * one + 10


def test_a_command_that_hangs_does_not_keep_us_from_the_job(cluster, job):
    """Either of the two; both are waited for at the same time."""
    running = {}
    for hanging in ("scontrol", "squeue"):
        folder = cluster.home() / f"hangs-{hanging}"
        folder.mkdir(exist_ok=True)
        cluster.write(f"{folder.name}/{hanging}", "#!/bin/sh\nexec sleep 600\n")
        path = f"PATH={folder}:{cluster.folder}/bin:/usr/local/bin:/usr/bin:/bin"
        argv = ["env", path, "gpumon", "attach", "--no-record", "--json", job]
        running[hanging] = cluster.popen("login", argv, text=True)
    try:
        for hanging, process in running.items():
            out, err = process.communicate(timeout=HANGS_S)
            assert process.returncode == 0, (hanging, err)
            sample = json.loads(out)
            assert (sample["node"], sample["job"]["id"], sample["job"]["gpus"]) == ("node1", job, 1)
            assert len(sample["devices"]) == 1, (hanging, sample, err)
    finally:
        for process in running.values():
            end(process)


def test_under_a_limit_of_processes_a_command_says_so_or_works(cluster):
    def run(*words):
        argv = as_user(cluster.nameless_uid(ALONE), "prlimit", "--nproc=1", *words)
        return cluster.run("login", argv, "root", check=False)

    done = run("gpumon", "once")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpumon: cannot start another process or thread; 'ulimit -u' allows you")
    done = run("gpumon", "record", "--", "sh", "-c", "echo hi; exit 3")
    assert (done.returncode, done.stdout) == (3, "hi\n")
