"""Watching never takes the memory of a job: jobs that hold nearly all of it, watched by everybody.

By hand, with figures: `python -m tests.slurm.test_cluster_memory NUMBER_OF_JOBS`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

from gpumon.slurm.job import OWN_STEP
from tests.slurm.cluster import Cluster
from tests.slurm.following import Following, attach, gone, heads
from tests.support.waiting import until

#: as soon as it may, holds so many MiB, taken as a program that loads a model takes them; then
#: steps until it may end
HOLDING = """\
import os, sys, time
size, go_on, grow = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
held = []
while grow and not os.path.exists(grow[0]):
    time.sleep(0.05)
for _ in range(size // 8):
    held.append(b"x" * (8 << 20))
    time.sleep(0.02)
steps = 0
while not os.path.exists(go_on):
    time.sleep(0.2)
    steps += 1
    print("step", steps, flush=True)
print("finished", len(held), flush=True)
"""
#: of 300 MiB; python and Slurm's own share make it 98 %
HELD_MIB, LIMIT_MIB = 280, 300
LACKING = "too little memory is free under the job's limit"


class Held:
    """A job that holds 98 % of its memory until it may end; where it `waits`, from `grow` on."""

    def __init__(self, cluster, node, *, recorded=False, waits=False, user="alice"):
        self.cluster, self.node, self.user = cluster, node, user
        program = cluster.write("holding.py", HOLDING, user)
        self._word = cluster.home(user) / f"go-on-{node}-{time.monotonic_ns()}"
        grow = f" {self._word}.grow" if waits else ""
        command = f"python {program} {HELD_MIB} {self._word}{grow}"
        if recorded:
            command = f"gpumon record -o {self._word}.gpumon -- {command}"
        options = ["-w", node, f"--mem={LIMIT_MIB}M", "-t", "10"]
        self.job = cluster.submit(f"{command}\necho code $?", *options, user=user)
        cluster.wait(self.job, "RUNNING")

    def steps(self):
        return self.cluster.log(self.job, self.user).count("step ")

    def goes_on(self):
        """It makes another step."""
        before = self.steps()
        until(lambda: self.steps() > before, f"job {self.job}: {self.cluster.log(self.job)}")

    def grow(self):
        self.cluster.write(f"{self._word.name}.grow", "", self.user)

    def end(self):
        """Its rows of sacct but for gpumon's own steps, and those; what it wrote last."""
        self.cluster.write(self._word.name, "", self.user)
        self.cluster.wait(self.job)
        self.cluster.accounted(self.job)
        names = ("State", "ExitCode", "DerivedExitCode")
        rows: list[tuple[str, ...]] = []
        ours: list[tuple[str, ...]] = []
        for row in self.cluster.accounting(self.job, "JobName", *names):
            told = (row["JobID"].replace(self.job, "job"), *(row[name] for name in names))
            (ours if row["JobName"] == OWN_STEP else rows).append(told)
        return rows, ours


def is_well(held):
    """It ran to its end as if nobody had watched; gpumon's steps, all of which ended well."""
    rows, ours = held.end()
    log = held.cluster.log(held.job, held.user)
    assert f"finished {HELD_MIB // 8}\n" in log, log
    assert "code 0\n" in log, log
    assert [row[0] for row in rows] == ["job", "job.batch", "job.extern"]
    assert {row[1:3] for row in rows} == {("COMPLETED", "0:0")}
    assert rows[0][3] == "0:0"
    assert {row[1:3] for row in ours} <= {("COMPLETED", "0:0")}
    return ours


def lacks(following):
    """It says that there is no room."""
    return any(LACKING in detail for _, detail, _ in following.of("status", "node2"))


def test_in_a_job_without_room_no_step_is_started_by_three_dashboards(cluster):
    """One dashboard killed a job with 11 MiB left within 2 s, three one with 20 MiB."""
    held = Held(cluster, "node2")
    held.goes_on()
    done = attach(cluster, held.job, "--via", "srun")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(LACKING) == 1
    assert "srun, srun-host: " in done.stderr
    with contextlib.ExitStack() as stack:
        all_of_them = [
            stack.enter_context(Following(cluster, held.job, via)) for via in ("srun", "ssh", None)
        ]
        for following in all_of_them[1:]:
            following.live("node2")
        all_of_them[0].until(lacks)
        for _ in range(5):
            held.goes_on()
        for following in all_of_them:
            following.stop()
    assert is_well(held) == []
    gone(cluster, held.job, "node2")


def test_ssh_that_leads_into_the_job_has_no_room_either(cluster):
    """carol's: on node3 an ssh session goes into the newest job that its user has there."""
    with cluster.carol():
        held = Held(cluster, "node3", user="carol")
        held.goes_on()
        for via in ("ssh", "openssh"):
            done = attach(cluster, held.job, "--via", via, user="carol")
            assert (done.returncode, done.stdout) == (1, "")
            assert LACKING in done.stderr
        held.goes_on()
        rows, _ = held.end()
        assert {row[1:3] for row in rows} == {("COMPLETED", "0:0")}


def test_agents_leave_a_job_that_grows(cluster):
    """They came when there was room; none is ended by the kernel, so every step is COMPLETED."""
    held = Held(cluster, "node2", waits=True)
    with contextlib.ExitStack() as stack:
        three = [stack.enter_context(Following(cluster, held.job, "srun")) for _ in range(3)]
        for following in three:
            following.live("node2")
        held.grow()
        for following in three:
            following.until(lambda f: "lost" in f.states("node2"))
        for _ in range(5):
            held.goes_on()
        for following in three:
            following.stop()
    assert len(is_well(held)) <= 3


def test_a_recorder_beside_it_leaves_in_time(cluster):
    held = Held(cluster, "node2", recorded=True)
    for _ in range(5):
        held.goes_on()
    assert is_well(held) == []
    log = cluster.log(held.job)
    assert "MiB was free under the job's memory limit" in log or LACKING in log


def test_the_steps_own_shell_finds_what_sstat_does_not_tell(cluster):
    """As where Slurm gathers nothing, or counts page cache: the step ends before Python starts."""
    held = Held(cluster, "node2")
    held.goes_on()
    path = cluster.run("login", ["sh", "-c", "command -v sstat; echo $PATH"]).stdout.split()
    cluster.write(f"{held._word.name}.sstat", "#!/bin/sh\nexit 1\n")
    folder = cluster.home() / f"bin-{held.job}"
    folder.mkdir()
    (cluster.home() / f"{held._word.name}.sstat").rename(folder / "sstat")
    env = {"PATH": f"{folder}:{path[1]}"}
    with Following(cluster, held.job, "srun", env=env) as following:
        following.until(lacks)
        for _ in range(5):
            held.goes_on()
        following.stop()
    ours = is_well(held)
    assert len(ours) == 1


def test_where_there_is_room_the_agents_are_not_the_jobs(cluster):
    """A job that sleeps has no 14 MiB, by the cgroup or by accounting, whoever watches."""
    job = cluster.submit("sleep 600", "-w", "node2", f"--mem={LIMIT_MIB}M")
    cluster.wait(job, "RUNNING")
    try:
        with Following(cluster, job, "srun") as one, Following(cluster, job, "srun") as two:
            one.live("node2")
            two.live("node2")
            known = len(one.of("sample", "node2"))
            one.until(lambda f: len(f.of("sample", "node2")) > known + 14)
            told = [each[1] for each in one.of("sample", "node2")]
            assert 8 << 20 < told[-1]["mem_gpumon_bytes"] < 16 << 20  # one agent serves both
            assert max(each["mem_used_bytes"] for each in told[-5:]) < 6 << 20
            one.stop()
            two.stop()
        assert heads(attach(cluster, job, "--via", "srun")) == ["node2"]
    finally:
        cluster.cancel(job)
    cluster.accounted(job)
    report = json.loads(cluster.run("login", ["gpumon", "report", "--format", "json", job]).stdout)
    assert (report["used"]["mem_peak_bytes"] or 0) < 6 << 20


def main(count: int, number: int) -> None:
    """So many jobs, each watched by three dashboards by each transport, and recorded."""
    cluster = Cluster(number)
    well = steps = 0
    for place in range(count):
        recorded, waits = place % 2 == 1, place % 4 > 1
        held = Held(cluster, "node2", recorded=recorded, waits=waits)
        with contextlib.ExitStack() as stack:
            if not waits:
                held.goes_on()
            sources = [
                stack.enter_context(Following(cluster, held.job, via))
                for via in ("srun", "ssh", "openssh") * 3
            ]
            if waits:
                for each in sources:
                    each.live("node2")
                held.grow()
            for _ in range(25):
                held.goes_on()
        try:
            steps += len(is_well(held))
            well += 1
        except AssertionError as error:
            print(held.job, recorded, error)
        print(f"{place + 1} jobs, {well} well, {steps} steps", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
