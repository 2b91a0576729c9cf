"""`gpumon report` on jobs of a real Slurm: how they ended, what a running one uses so far.

Recommendations, and whether following them works, are in `test_cluster_followed.py`.
"""

from __future__ import annotations

import json
import re

import pytest

from gpumon.collect.cgroup.room import LEFT
from tests.slurm import jobs
from tests.slurm.recorded import ended, events, paths, samples
from tests.slurm.test_client_cluster import HOSTILE
from tests.support.waiting import until

MIB = 1 << 20
#: The jobs are short, so a site's file (`GPUMON_SITE`) lowers the times from which the catalogue
#: judges; it also lets a core that the machine shares count as one, and a job of four cores not
#: count as a whole node where the machine has two. What is judged, and how, stays the catalogue's.
SHORT = """
[thresholds]
"mem-over.elapsed_s" = 3
"mem-over.node_share" = 99
"cpu-low.elapsed_s" = 3
"cpu-never-used.elapsed_s" = 1e9
"time-over.elapsed_s" = 3
"time-over.warning_s" = 3
"cpu-underused.recorded_s" = 3
"serial-many-cores.recorded_s" = 3
"serial-many-cores.low" = 0.002
"gpu-never-used.seconds" = 10
"gpus-partly-idle.seconds" = 10
"array.elapsed_s" = 3
"""


@pytest.fixture(scope="module")
def site(cluster):
    return cluster.write("site.toml", SHORT)


@pytest.fixture
def report(cluster, site):
    """Runs `gpumon report` on the login host; its JSON."""

    def ask(*args, user="alice", code=0):
        argv = ["gpumon", "report", "--format", "json", *args]
        env = {"GPUMON_SITE": str(site)}
        done = cluster.run("login", argv, user, env=env, check=False)
        print(done.stdout)  # shown where the test fails
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return ask


def ids(body):
    return {each["id"] for each in body["findings"] if not each["suppressed_by"]}


def changes(body):
    return {each["directive"]: (each["before"], each["after"]) for each in body["recommendations"]}


def finding(body, id):
    (found,) = [each for each in body["findings"] if each["id"] == id]
    return found


# -- how jobs end ---------------------------------------------------------------------------------
#: how it ends, the finding, its words
ENDS = [
    (jobs.oom_in_script, "oom-killed", "job OUT_OF_MEMORY (0:125)"),
    (jobs.oom_in_step, "oom-killed", "OUT_OF_MEMORY (0:125)"),
    (jobs.timeout, "timed-out", "time limit of 60 s"),
    (jobs.failed, "ended-badly", "exit code 3:0: the program reported an error"),
    (jobs.segv, "ended-badly", "segmentation fault"),
]


def test_how_jobs_ended(cluster, report):
    submitted = [submit(cluster) for submit, _, _ in ENDS]
    cancelled = jobs.cancelled(cluster)
    recorded = cluster.submit(f"gpumon record -- {jobs.grow(1200)}", "--mem=600M")
    for job, (_, kind, words) in zip(submitted, ENDS):
        cluster.wait(job)
        cluster.accounted(job)
        body = report(job)
        found = finding(body, kind)
        assert words in found["title"]
        assert found["why"]
        if kind == "oom-killed":
            assert changes(body)["--mem"] == ("200M", "1G")
            assert "mem-over" not in ids(body)
        if kind == "timed-out":
            assert changes(body)["--time"] == ("00:01:00", "00:02:00")
            assert body["efficiency"]["time_percent"] <= 100

    cluster.wait(cancelled)
    cluster.accounted(cancelled)
    body = report(cancelled)  # by its owner: no finding
    assert "ended-badly" not in ids(body)
    assert body["recommendations"] == []

    cluster.wait(recorded, "OUT_OF_MEMORY")
    cluster.accounted(recorded)
    (path,) = paths(cluster, recorded)  # whole: the recorder leaves the last of the memory
    assert until(lambda: ended(path), "its end")
    assert events(path, "end")[-1].text == LEFT
    assert samples(path)[-1].rows["job"][""]["mem_limit_bytes"] == 600 * MIB
    assert LEFT in cluster.log(recorded)
    body = report(recorded)
    assert body["coverage"]["source"] == "recording"
    assert "oom-killed" in ids(body)
    assert changes(body)["--mem"] == ("600M", "1G")


# -- while it runs --------------------------------------------------------------------------------
def test_a_running_job_so_far(cluster, report):
    work = f"{jobs.hold(120, 600).strip()} & {jobs.dabble(600)}"
    with cluster.job(work, "--mem=500M", "-c2") as job:

        def measured():
            body = report(job)
            used = body["used"]
            there = (used["mem_peak_bytes"] or 0) > 100 * MIB and used["cpu_core_s"]
            return body if there else None

        body = until(measured, "sstat's figures of the job")
        assert body["job"]["state"] == "RUNNING"
        assert body["used"]["cpu_cores_peak"] is None
        assert body["recommendations"] == []
        page = cluster.run("login", ["gpumon", "report", job]).stdout
        assert "(so far)" in page
        others = cluster.run("login", ["gpumon", "report", job], "bob").stdout
        assert "only to its owner" in others
        assert "GiB" not in others.replace("500 MiB", "")


# -- many jobs, gates, hostile names --------------------------------------------------------------
def test_a_users_jobs_and_a_gate_on_them(cluster):
    for _ in range(2):  # of one alone the page is shown
        job = cluster.submit("sleep 1", "-w", "node2", "-J", HOSTILE, "--mem=100M", user="bob")
        cluster.accounted(job)
    argv = ["gpumon", "report", "--user", "bob", "--since", "now-1hour"]
    found = rf"^{job} +bob +COMPLETED"

    def listed():  # a record whose end came before its start is in no window for a while
        table = cluster.run("login", argv, "bob", check=False).stdout
        assert "\x1b" not in table
        return re.search(found, table, re.M)

    until(listed, f"job {job} in the table")
    for form in "text", "md", "html", "json":
        page = cluster.run("login", ["gpumon", "report", "--format", form, job], "bob").stdout
        assert "\x1b" not in page
        assert "\n   UserId=root" not in page
    for gate, code in (("time.percent<50", 3), ("time.percent>99", 0)):
        done = cluster.run(
            "login", ["gpumon", "report", job, "--fail-if", gate], "bob", check=False
        )
        assert done.returncode == code, done.stderr
    done = cluster.run("login", ["gpumon", "report", "99999999"], check=False)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
