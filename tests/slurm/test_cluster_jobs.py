"""The jobs of `jobs.py` meet their fates, as Slurm's accounting has it."""

from __future__ import annotations

from tests.slurm import jobs
from tests.support.waiting import until


def states(cluster, job):
    """(step or job, state) without who cancelled it, once all have ended."""

    def rows():
        found = cluster.accounting(job, "State", "ExitCode", "End")
        assert found
        return all(row["End"] != "Unknown" for row in found) and found

    return {
        row["JobID"].partition(".")[2]: (row["State"].split()[0], row["ExitCode"])
        for row in until(rows, f"sacct of {job}", 120)
    }


def test_jobs_that_end_by_themselves_or_by_slurm(cluster):
    timeout = jobs.timeout(cluster)
    oom, oom_step = jobs.oom_in_script(cluster), jobs.oom_in_step(cluster)
    failed, segv, cancelled = jobs.failed(cluster), jobs.segv(cluster), jobs.cancelled(cluster)

    found = states(cluster, oom)
    assert (found[""], found["batch"]) == (("OUT_OF_MEMORY", "0:125"),) * 2
    found = states(cluster, oom_step)
    assert (found[""], found["0"][0]) == (("FAILED", "1:0"), "OUT_OF_MEMORY")
    assert states(cluster, failed)[""] == ("FAILED", "3:0")
    assert states(cluster, segv)[""] == ("FAILED", "0:11")
    assert states(cluster, cancelled)[""] == ("CANCELLED", "0:0")
    assert states(cluster, timeout)[""][0] == "TIMEOUT"


def test_jobs_of_several_parts(cluster):
    array, het, wide = jobs.array(cluster), jobs.heterogeneous(cluster), jobs.two_nodes(cluster)
    try:
        for task in "1", "2", "3":
            cluster.wait(f"{array}_{task}", "RUNNING")
        until(lambda: len(cluster.accounting(het, "State")) >= 5)  # +0 batch extern 0, +1 extern 0
        assert {row["JobID"].partition(".")[0] for row in cluster.accounting(het)} == {
            f"{het}+0", f"{het}+1",
        }  # fmt: skip
        cluster.wait(wide, "RUNNING")
        assert len(cluster.nodes(wide)) == 2
        cpus = cluster.accounting(wide, "AllocCPUS")[0]["AllocCPUS"]
        assert cpus == "4"
    finally:
        for job in array, het, wide:
            cluster.cancel(job)


def test_a_job_with_gpus_opens_its_own_alone(cluster):
    job = jobs.gpus(cluster, "-w", "node2")
    try:
        cluster.wait(job, "RUNNING")
        tries = "for n in 0 1 2 3; do (exec 3</dev/nvidia$n) 2>&1; done"
        overlap = ["srun", f"--jobid={job}", "--overlap", "bash", "-c", tries]
        said = cluster.run("login", overlap, check=False).stdout
        assert said.count("No such device or address") == 2  # allowed, and no driver behind
        assert said.count("Operation not permitted") == 2
    finally:
        cluster.cancel(job)


def test_a_requeued_job_runs_again(cluster):
    job = jobs.requeued(cluster)
    try:
        show = until(lambda: (s := cluster.show(job))["Restarts"] == "1" and s)
        assert show["Requeue"] == "1"
    finally:
        cluster.cancel(job)
