"""The dashboard of `gpumon attach` on a real cluster, in a real terminal, as users work with it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal

import pytest

from screenshots.terminal_png import Session
from tests.e2e.program import GPUMON
from tests.slurm.following import QUICKLY, agents, gone, laptop
from tests.support.waiting import HANGS_S, until

pytestmark = pytest.mark.terminal


def dashboard(cluster, *argv, host="login"):
    env = {**os.environ, "GPUMON_CLUSTER_ID": cluster.folder.name.rpartition("-")[2]}
    return Session(cluster.command(host, argv, env={"TERM": "xterm-256color"}), (120, 40), env)


def attached(cluster, job, *args):
    """`gpumon attach`, which looks at the job more often than it usually may."""
    python = cluster.folder / "venv" / "bin" / "python"
    program = f"{QUICKLY}import sys\nfrom gpumon.cli import main\nsys.exit(main())\n"
    path = cluster.write(f"gpumon-{os.getpid()}", program)  # nobody else writes it meanwhile
    return dashboard(cluster, python, path, "attach", "--no-record", job, *args)


def shows(screen, *texts):
    for text in texts:
        screen.wait_for(text, HANGS_S)
    assert all(text in screen.text() for text in texts), screen.text()


@contextlib.contextmanager
def left(screen):
    """Quit at the end, and expect that all went well."""
    with screen:
        yield screen
        screen.keys("q")
        assert screen.wait_exit(HANGS_S) == 0


@pytest.fixture(scope="module")
def wide(cluster):
    """A job on two nodes with a GPU each, which writes to both its files."""
    script = "echo to-the-out; echo to-the-err >&2; srun sleep 900"
    options = ["-w", "node1,node2", "-p", "gpu", "--gres=gpu:1", "--mem=1G", "-e", "err-%j"]
    with cluster.job(script, *options) as job:
        yield job, cluster.nodes(job)


# -- which job ---------------------------------------------------------------------------------
def test_an_array_has_a_row_for_each_task_and_enter_opens_one(cluster):
    array = cluster.submit("sleep 600", "-a", "1-2", "--mem=100M", "-p", "gpu", "--gres=gpu:1")
    try:
        cluster.wait(f"{array}_2", "RUNNING")
        with left(attached(cluster, array)) as screen:
            shows(screen, f"array {array}", "2 of 2 tasks running", "1/1")
            screen.keys("s", "Home", "Down", "Enter")  # by number
            shows(screen, f"gpumon  {array}_2", "A100", "b Array")
            screen.keys("b")
            shows(screen, f"array {array}")
    finally:
        cluster.cancel(array)


def test_a_job_that_waits_says_why_and_opens_when_it_starts(cluster):
    job = cluster.submit("sleep 600", "-H", "--mem=100M", "-p", "gpu", "--gres=gpu:1")
    try:
        with left(attached(cluster, job)) as screen:
            shows(screen, "JobHeldUser: held by its user", "the scheduler has no estimate yet")
            cluster.run("login", ["scontrol", "release", job])
            shows(screen, "RUNNING", "A100")
    finally:
        cluster.cancel(job)


def test_before_the_first_sample_it_says_how_far_it_is(cluster):
    with cluster.faulty() as node, cluster.job("sleep 600", "-p", "faults") as job:
        cluster.link(node, up=False)
        try:
            with left(attached(cluster, job)) as screen:
                shows(screen, f"gpumon  {job}", f"{node}  connecting by ssh")
        finally:
            cluster.link(node, up=True)


# -- while it runs -----------------------------------------------------------------------------
def test_every_screen_of_a_running_job(cluster, wide):
    job, nodes = wide
    with left(attached(cluster, job, "--via", "srun")) as screen:
        shows(screen, f"gpumon  {job}", *(f"{node}:" for node in nodes), "GPU mem")
        screen.keys("4")
        shows(screen, "2 nodes, 2 GPUs", *nodes)
        screen.keys("3")
        shows(screen, "sleep 900")
        screen.keys("5")
        shows(screen, "the report as if the job ended now")


def test_the_job_s_output_is_followed(cluster, wide):
    job, _ = wide
    with left(attached(cluster, job)) as screen:
        shows(screen, "A100")
        screen.keys("o")
        shows(screen, f"slurm-{job}.out", "to-the-out")
        with (cluster.home() / f"slurm-{job}.out").open("a") as file:
            file.write("a line more\n")
        shows(screen, "a line more")
        screen.keys("o")
        shows(screen, f"err-{job}", "to-the-err")


def test_from_a_laptop_the_job_and_its_output_are_seen_through_the_login_host(
    cluster, wide, tmp_path
):
    job, nodes = wide
    env = laptop(cluster, tmp_path)
    foreign = [f"--unset={name}" for name in os.environ if name not in env]
    command = [*GPUMON, "attach", job, "--no-record", "--login", "login"]
    with left(Session(["env", *foreign, *command], (120, 40), env)) as screen:
        shows(screen, f"gpumon  {job}", *(f"{node}:" for node in nodes))
        screen.keys("o")
        shows(screen, f"slurm-{job}.out", "to-the-out")
    gone(cluster, job, *nodes)


def test_what_is_shown_is_recorded(cluster, wide):
    job, nodes = wide
    with dashboard(cluster, "gpumon", "attach", job, "--via", "srun") as screen:
        shows(screen, "recording to")
        folder = cluster.home() / ".local" / "state" / "gpumon" / "jobs" / cluster.name / job
        until(lambda: len(list(folder.glob("*.gpumon"))) == 2, "a recording of each node")
        screen.keys("q")
        screen.wait_exit(HANGS_S)
    done = cluster.run("login", ["gpumon", "export", job, "--to", "json"])
    assert {json.loads(line).get("node") for line in done.stdout.splitlines()} >= set(nodes)


def test_gpumon_in_an_allocation_of_several_nodes_shows_them_all(cluster):
    name = f"several{os.getpid()}"
    argv = ["salloc", "-N2", "-J", name, "-p", "gpu", "--gres=gpu:1", "gpumon", "--no-record"]
    with dashboard(cluster, *argv) as screen:
        listed = ["squeue", "-h", "-n", name, "-t", "RUNNING", "-o", "%i"]
        job = until(lambda: cluster.run("login", listed).stdout.strip(), "it is allocated")
        nodes = cluster.nodes(job)
        shows(screen, *(f"{node}:" for node in nodes))
        screen.keys("q")
        gone(cluster, job, *nodes)


# -- its end -----------------------------------------------------------------------------------
@pytest.mark.parametrize("via", ["ssh", "srun"])
def test_a_job_that_ends_says_how_and_what_the_report_knows(cluster, via):
    with cluster.job("srun sleep 900", "-w", "node1", "-p", "gpu", "--gres=gpu:1") as job:
        with left(attached(cluster, job, "--via", via)) as screen:
            shows(screen, "RUNNING", "node1", "job CPU" if via == "ssh" else "busy")
            cluster.cancel(job)
            shows(screen, "CANCELLED", "ended", "below: the last samples")
            assert "lost" not in screen.text()
            screen.keys("5")
            shows(screen, "the report as if the job ended now", "CANCELLED", "live samples")
        gone(cluster, job, "node1")


@pytest.mark.parametrize(
    ("how", "via"),
    [
        *itertools.product(["q", signal.SIGKILL], ["ssh", "openssh", "srun"]),
        *itertools.product([signal.SIGTERM, signal.SIGHUP], ["srun"]),  # as by q from then on
    ],
)
def test_nothing_is_left_however_it_ends(cluster, wide, how, via):
    job, nodes = wide
    with attached(cluster, job, "--via", via) as screen:
        until(lambda: set(agents(cluster, job, *nodes)) >= set(nodes), "agents run")
        if how == "q":
            screen.keys("q")
        else:
            pids = cluster.pids("login", f"/gpumo[n]-[0-9]* attach --no-record {job} ")
            cluster.kill("login", how, *pids)
        gone(cluster, job, *nodes)
