"""What recording leaves in Slurm's books: nothing, or one step that ended well.

Each form of docs/recording.md beside the same job without gpumon, by every end.
"""

from __future__ import annotations

import json

from gpumon.slurm.job import OWN_STEP
from tests.slurm import jobs
from tests.slurm.recorded import begun, ended, go_on, header, paths, waits
from tests.support.waiting import until

WRAPPED = ["srun gpumon record -- {}", "exec gpumon record -- {}", "gpumon record -- {}"]
BESIDE = ["gpumon record &", "gpumon record --all-nodes &"]
KILL = "kill %1; wait"
SMALL = ["-N2", "--ntasks-per-node=1", "--mem=300M"]


def books(cluster, job):
    """The job's row of sacct, and those of its steps, without those of gpumon's own."""
    fields = ("State", "ExitCode", "DerivedExitCode", "JobName")
    cluster.accounted(job, *fields)
    rows = cluster.accounting(job, *fields)
    own = [row for row in rows if row["JobName"] == OWN_STEP]
    assert [(row["State"], row["ExitCode"]) for row in own] in ([], [("COMPLETED", "0:0")])
    left = [row for row in rows if row not in own]
    return [(row["State"], row["ExitCode"], row["DerivedExitCode"]) for row in left], len(own)


def bad_end(cluster, job):
    """What the report says of the job's end, if that was not good; and its notes."""
    done = cluster.run("login", ["gpumon", "report", job, "--format", "json"], check=False)
    findings = json.loads(done.stdout)["findings"]
    return [each["title"] for each in findings if each["id"] == "ended-badly"], done.stderr


def compared(cluster, watched, alone, *args, end=None):
    """Each of these scripts beside its twin: the same in the books, every file whole."""
    pairs = [tuple(cluster.submit(each, *args) for each in pair) for pair in zip(watched, alone)]
    for (job, twin), script in zip(pairs, watched):
        begun(cluster, job, 2 if "srun" in script or "--all-nodes" in script else 1)
        for each in job, twin:
            cluster.wait(each, "RUNNING")
            (end or go_on)(cluster, each)
    for (job, twin), script in zip(pairs, watched):
        cluster.wait(job)
        cluster.wait(twin)
        found, own = books(cluster, job)
        assert (found, own) == (books(cluster, twin)[0], int("--all-nodes" in script)), script
        yield job, script


# -- by itself ------------------------------------------------------------------------------------
def test_a_recorded_job_that_ends_is_in_the_books_as_without_gpumon(cluster):
    """By every form, also where the script does not end its recorder, and after a failure."""
    command = waits("").strip()
    fails = waits("", "exit 7").strip()
    words = [f"{WRAPPED[0].format(command)}\n", f"{WRAPPED[1].format(fails)}\n"]
    words += [
        f"{WRAPPED[2].format(command)}\n",
        *(f"{each}\n{command}\n{KILL}\n" for each in BESIDE),
    ]
    words += [f"{BESIDE[1]}\n{command}\n"]
    alone = [f"srun {command}\n", f"exec {fails}\n", *[f"{command}\n"] * 4]
    for job, script in compared(cluster, words, alone, *SMALL):
        until(lambda job=job: all(map(ended, paths(cluster, job))), script)
        titles, notes = bad_end(cluster, job)
        assert (titles == []) != ("exit 7" in script), script
        assert notes == "" or script == words[-1], script
    assert {header(path).job.step for path in paths(cluster, job)} == {"0"}


# -- by Slurm -------------------------------------------------------------------------------------
def test_a_recorded_job_that_is_cancelled_is_in_the_books_as_without_gpumon(cluster):
    words = [*(each.format("sleep 600") for each in WRAPPED), f"{BESIDE[1]}\nsleep 600"]
    alone = ["srun sleep 600", *["sleep 600"] * 3]
    for job, script in compared(cluster, words, alone, *SMALL, end=lambda c, job: c.cancel(job)):
        if script != WRAPPED[2].format("sleep 600"):  # which is killed outright
            until(lambda job=job: all(map(ended, paths(cluster, job))), script)


def test_at_the_time_limit_every_node_is_whole(cluster):
    words, alone = [f"{BESIDE[1]}\nsrun sleep 600\n"], ["srun sleep 600\n"]
    for job, _ in compared(cluster, words, alone, *SMALL, "-t1", end=jobs.end_soon):
        until(lambda job=job: all(map(ended, paths(cluster, job))))


# -- whose a step is ------------------------------------------------------------------------------
def test_a_step_counts_by_what_ran_in_it_and_not_by_its_name(cluster):
    """Both are named gpumon and end CANCELLED: one is the user's program, one is the recorder."""
    wait = waits("").strip()
    user = cluster.submit(f"srun gpumon record -- sleep 600\n{wait}\n", *SMALL)
    own = cluster.submit(f"srun --overlap gpumon record &\n{wait}\n{KILL}\n", *SMALL)
    for job in user, own:
        begun(cluster, job, 2)
    cluster.run("login", ["scancel", f"{user}.0"])
    for job in user, own:
        go_on(cluster, job)
        cluster.wait(job, "COMPLETED")
        fields = ("JobName", "State")
        cluster.accounted(job, *fields)
        (step,) = [row for row in cluster.accounting(job, *fields) if row["JobName"] == "gpumon"]
        assert step["State"].startswith("CANCELLED")
    (title,), _ = bad_end(cluster, user)
    assert "step 0 CANCELLED" in title
    titles, notes = bad_end(cluster, own)
    assert titles == []
    assert "step 0 was gpumon's recorder, not your program; it ended CANCELLED 0:9" in notes
