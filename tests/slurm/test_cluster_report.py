"""`gpumon report` on jobs of a real Slurm: by accounting alone, with a recording, so far.

The jobs are short, so a site's file (`GPUMON_SITE`) lowers the times from which the catalogue
judges; it also lets a core that the machine shares count as one, and a job of four cores not count
as a whole node where the machine has two. What is judged, and how, stays the catalogue's.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from gpumon.analysis.finding import Change
from gpumon.analysis.rightsize.directives import apply
from tests.slurm import jobs
from tests.slurm.recorded import begun, go_on_as_whole, waits
from tests.slurm.test_client_cluster import HOSTILE
from tests.support.waiting import until

MIB = 1 << 20
GIB = 1 << 30
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
#: longer than Slurm's period of looking at a step's memory, and than half a minute, twice
LONG_S = 65


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


def recorded(line):
    """A line of a script, recorded."""
    return f"gpumon record --quiet -- sh -c {shlex.quote(line.strip())}\n"


def ids(body):
    return {each["id"] for each in body["findings"] if not each["suppressed_by"]}


def changes(body):
    return {each["directive"]: (each["before"], each["after"]) for each in body["recommendations"]}


def finding(body, id):
    (found,) = [each for each in body["findings"] if each["id"] == id]
    return found


# -- over-requested, and the advice followed ------------------------------------------------------
def test_following_the_advice_works(cluster, report, site):
    """Four cores, 16 GiB and two hours for one core, 90 MiB and a minute; then what it advises."""
    work = waits("gpumon record --quiet --", beside=[jobs.hold(90, 600), jobs.dabble(600)])
    script = (
        "#!/bin/bash\n#SBATCH -J overreq\n#SBATCH --cpus-per-task=4\n#SBATCH --mem=16G\n"
        f"#SBATCH --time=2:00:00\n{work}"
    )
    job = cluster.submit(script)
    bare = jobs.over_requested(cluster, seconds=LONG_S)
    go_on_as_whole(cluster, job, least_s=30)
    cluster.wait(job, "COMPLETED")
    cluster.accounted(job)

    body = report(job)
    assert body["coverage"]["source"] == "recording"
    assert body["coverage"]["covered_percent"] > 80
    assert {"mem-over", "time-over"} < ids(body)
    assert ids(body) & {"serial-many-cores", "cpu-low", "cpu-underused"}
    assert changes(body)["--mem"] == ("16G", "1G")
    assert changes(body)["--time"] == ("02:00:00", "00:15:00")
    if "--cpus-per-task" in changes(body):  # beside other work it may seem to work in bursts
        before, cores = changes(body)["--cpus-per-task"]
        assert (before, int(cores) < 4) == ("4", True)
    assert 90 * MIB < body["used"]["mem_peak_bytes"] < GIB
    assert body["efficiency"]["gpu_busy_percent"] is None
    assert body["missing"]["gpu_busy_percent"] == "the job had no GPUs"

    env = {"GPUMON_SITE": str(site)}
    diff = cluster.run("login", ["gpumon", "report", "--diff", job], env=env).stdout
    assert {"-#SBATCH --mem=16G", "+#SBATCH --mem=1G"} <= set(diff.splitlines())
    asked = [Change(each["directive"], each["before"], each["after"] or None)
             for each in body["recommendations"]]  # fmt: skip
    changed = apply(script, asked)  # as `patch` does with the diff
    added = {line[1:] for line in diff.splitlines()[2:] if line.startswith("+")}
    assert added == set(changed.splitlines()) - set(script.splitlines())
    again = cluster.submit(changed)
    go_on_as_whole(cluster, again, least_s=10)
    assert cluster.wait(again) == "COMPLETED"
    cluster.accounted(again)
    after = report(again)
    assert not ids(after) & {"mem-over", "time-over"}
    assert not {"--mem", "--time"} & set(changes(after))
    assert after["allocated"]["mem_bytes"] == GIB

    # the same job, by accounting alone
    cluster.wait(bare, "COMPLETED")
    cluster.accounted(bare)
    body = report(bare)
    assert body["coverage"]["source"] == "sacct"
    assert {"mem-over", "time-over"} <= ids(body)
    assert ids(body) & {"serial-many-cores", "cpu-low"}
    # a mean proves no peak, and memory that Slurm looked at now and then no more
    assert not {"--cpus-per-task", "--mem"} & set(changes(body))
    assert "a peak needs a recording" in body["not_evaluable"]["cpu-underused"]
    assert finding(body, "mem-over")["confidence"] == "low"
    assert body["used"]["cpu_cores_peak"] is None


# -- how jobs end ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("submit", "kind", "words"),
    [
        (jobs.oom_in_script, "oom-killed", "job OUT_OF_MEMORY (0:125)"),
        (jobs.oom_in_step, "oom-killed", "OUT_OF_MEMORY (0:125)"),
        (jobs.timeout, "timed-out", "time limit of 60 s"),
        (jobs.failed, "ended-badly", "exit code 3:0: the program reported an error"),
        (jobs.segv, "ended-badly", "segmentation fault"),
    ],
)
def test_how_a_job_ended(cluster, report, submit, kind, words):
    job = submit(cluster)
    cluster.wait(job, timeout_s=120)
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


def test_the_owners_own_scancel_is_no_finding(cluster, report):
    job = jobs.cancelled(cluster)
    cluster.wait(job)
    cluster.accounted(job)
    body = report(job)
    assert "ended-badly" not in ids(body)
    assert body["recommendations"] == []


def test_out_of_memory_with_a_recording(cluster, report):
    job = cluster.submit(recorded(jobs.hold(1200, 30)), "--mem=600M")
    cluster.wait(job, "OUT_OF_MEMORY")
    cluster.accounted(job)
    body = report(job)
    assert body["coverage"]["source"] == "recording"
    assert "oom-killed" in ids(body)
    assert changes(body)["--mem"] == ("600M", "1G")


# -- cores ----------------------------------------------------------------------------------------
def test_one_of_many_cores(cluster, report):
    script = waits("gpumon record --quiet --", beside=[jobs.spin(600)])
    job = cluster.submit(script, "-c8", "--mem=500M")
    go_on_as_whole(cluster, job, least_s=60)  # half a minute of the clock lies in it
    cluster.wait(job, "COMPLETED")
    cluster.accounted(job)
    body = report(job)
    assert "serial-many-cores" in ids(body)
    before, after = changes(body)["--cpus-per-task"]
    assert before == "8"
    assert int(after) < 8  # 1, where the busy process got a whole core
    assert body["used"]["cpu_cores_peak"] < 1.3
    assert "cpu_percent" in body["seff"]


# -- GPUs -----------------------------------------------------------------------------------------
def test_a_gpu_that_nobody_used(cluster, report):
    """One of two, by a recording; by accounting alone nobody knows of any GPU."""
    with cluster.faulty() as node:
        idle = "[gpu 1]\nutil = 0\nmem = 0\n"
        with cluster.gpus(node, idle):
            job = cluster.submit(
                waits("srun gpumon record --quiet --"),
                *("-p", "faults", "--gres=gpu:a100:2", "-c2", "--mem=2G"),
            )
            bare = cluster.submit("sleep 5\n", "-p", "faults", "--gres=gpu:a100:2", "--mem=2G")
            go_on_as_whole(cluster, job, least_s=15)
            cluster.wait(job, "COMPLETED")
            cluster.wait(bare, "COMPLETED")
    cluster.accounted(job)
    body = report(job)
    assert "gpus-partly-idle" in ids(body)
    assert changes(body)["--gres"] == ("gpu:a100:2", "gpu:a100:1")
    assert 0 < body["waste_gpu_hours"] < body["gpu_hours"]
    busy = sorted(device["busy_mean"] for device in body["devices"])
    assert busy[0] == 0 < busy[1]

    cluster.accounted(bare)
    body = report(bare)
    assert body["devices"] == []
    assert body["allocated"]["gpus"] == 2
    assert body["efficiency"]["gpu_busy_percent"] is None
    assert body["missing"]["gpu_busy_percent"] == "Slurm's accounting has no GPU usage"
    assert not {each for each in ids(body) if each.startswith("gpu")}
    assert body["waste_gpu_hours"] == 0
    page = cluster.run("login", ["gpumon", "report", bare]).stdout
    assert "2 GPUs: Slurm's accounting has no GPU usage" in page
    assert not re.search(r"busy.* 0 %", page)


# -- arrays, nodes, components, attempts ----------------------------------------------------------
def test_an_array_has_one_report(cluster, report):
    job = cluster.submit(jobs.hold(90, 5), "-a", "1-6", "--mem=2G", "-t", "1:00:00")
    for task in range(1, 7):
        cluster.wait(f"{job}_{task}", "COMPLETED", timeout_s=120)
    until(lambda: all(row["End"] != "Unknown" for row in cluster.accounting(job, "End")))
    body = report(job)
    assert body["job"]["id"] == job
    assert body["tasks"]["states"] == {"COMPLETED": 6}
    assert body["tasks"]["measured"] == 6
    assert changes(body)["--time"] == ("01:00:00", "00:15:00")
    assert "array-time-over" in ids(body)
    one = report(f"{job}_3")
    assert one["job"]["id"] == f"{job}_3"
    assert "tasks" not in one


def test_the_node_that_needed_most_decides(cluster, report):
    held = f"[ $SLURM_NODEID != 0 ] || exec {jobs.hold(300, 600)}"
    script = waits("srun gpumon record --quiet --", beside=[held])
    job = cluster.submit(script, "-N2", "--ntasks-per-node=1", "--mem=4G")
    go_on_as_whole(cluster, job, 2, least_s=10)
    cluster.wait(job, "COMPLETED")
    cluster.accounted(job)
    body = report(job)
    assert len(body["job"]["nodes"]) == 2
    assert 300 * MIB < body["used"]["mem_max_node_bytes"] < 600 * MIB
    assert body["used"]["mem_peak_bytes"] > body["used"]["mem_max_node_bytes"]
    assert "on a node" in finding(body, "mem-over")["title"]
    assert changes(body)["--mem"] == ("4G", "1G")


def test_the_node_that_needed_most_decides_by_accounting_alone_too(cluster, report):
    line = f"[ $SLURM_NODEID = 0 ] || exec sleep {LONG_S}\n{jobs.hold(1300, LONG_S)}"
    script = f"srun sh -c {shlex.quote(line)}\n"
    job = cluster.submit(script, "-N2", "--ntasks-per-node=1", "--mem=8G")
    cluster.wait(job, "COMPLETED", timeout_s=180)
    cluster.accounted(job)
    body = report(job)
    assert body["coverage"]["source"] == "sacct"
    assert body["used"]["mem_max_node_bytes"] >= 1300 * MIB
    assert "on a node (16 %)" in finding(body, "mem-over")["title"]
    assert "--mem" not in changes(body)  # Slurm looked at it now and then


def test_a_het_job_has_a_report_for_each_component(cluster, report):
    job = jobs.heterogeneous(cluster, seconds=3)
    cluster.wait(job, "COMPLETED")
    for component in f"{job}+0", f"{job}+1":
        cluster.accounted(component)
    bodies = report(job)
    assert [body["job"]["id"] for body in bodies] == [f"{job}+0", f"{job}+1"]
    assert [body["allocated"]["cpus"] for body in bodies] == [1, 2]
    assert report(f"{job}+1")["allocated"]["cpus"] == 2


def test_attempts_of_a_requeued_job_stand_apart(cluster, report):
    job = jobs.requeued(cluster, seconds=600)
    try:
        until(lambda: len(report(job).get("attempts", ())) == 2, "two attempts")
        body = report(job)
        assert [each["name"] for each in body["attempts"]] == ["1", "2"]
        assert body["attempts"][0]["state"] == "REQUEUED"
        assert body["job"]["restarts"] == 1
    finally:
        cluster.cancel(job)


# -- while it runs --------------------------------------------------------------------------------
def test_a_running_job_so_far(cluster, report):
    work = f"{jobs.hold(120, 600).strip()} & {jobs.spin(600)}"
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


def test_a_running_job_with_its_recording(cluster, report):
    with cluster.job(f"gpumon record --quiet &\n{jobs.hold(150, 600)}", "--mem=500M") as job:
        begun(cluster, job)
        until(lambda: (report(job)["used"]["mem_peak_bytes"] or 0) > 150 * MIB)
        body = report(job)
        assert body["coverage"]["source"] in ("recording", "live")
        assert body["job"]["state"] == "RUNNING"


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
