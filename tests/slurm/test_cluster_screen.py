"""The dashboard of `gpumon attach` on a real cluster, in a real terminal, as users work with it."""

from __future__ import annotations

import contextlib
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
def test_a_job_that_waits_says_why_and_opens_when_it_starts(cluster):
    job = cluster.submit("sleep 600", "-H", "--mem=100M", "-p", "gpu", "--gres=gpu:1")
    try:
        with left(attached(cluster, job)) as screen:
            shows(screen, "JobHeldUser: held by its user", "the scheduler has no estimate yet")
            cluster.run("login", ["scontrol", "release", job])
            shows(screen, "RUNNING", "A100")
    finally:
        cluster.cancel(job)


# -- while it runs -----------------------------------------------------------------------------
def test_every_screen_of_a_running_job_which_is_recorded(cluster, wide):
    job, nodes = wide
    with left(dashboard(cluster, "gpumon", "attach", job, "--via", "srun")) as screen:
        shows(screen, "recording to")  # for some seconds
        shows(screen, f"gpumon  {job}", *(f"{node}:" for node in nodes), "GPU mem")
        screen.keys("4")
        shows(screen, "2 nodes, 2 GPUs", *nodes)
        screen.keys("3")
        shows(screen, "sleep 900")
        screen.keys("5")
        shows(screen, "the report as if the job ended now")
        screen.keys("o")
        shows(screen, f"slurm-{job}.out", "to-the-out")
        with (cluster.home() / f"slurm-{job}.out").open("a") as file:
            file.write("a line more\n")
        shows(screen, "a line more")
        screen.keys("o")
        shows(screen, f"err-{job}", "to-the-err")
        folder = cluster.home() / ".local" / "state" / "gpumon" / "jobs" / cluster.name / job
        until(lambda: len(list(folder.glob("*.gpumon"))) == 2, "a recording of each node")
    done = cluster.run("login", ["gpumon", "export", job, "--to", "json"])
    assert {json.loads(line).get("node") for line in done.stdout.splitlines()} >= set(nodes)


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


# -- its end -----------------------------------------------------------------------------------
def test_nothing_is_left_however_it_ends(cluster, wide):
    """One by each way, which are all killed; and one by srun for each other end."""
    job, nodes = wide
    with contextlib.ExitStack() as stack:
        for via in ("ssh", "openssh", "srun"):
            stack.enter_context(attached(cluster, job, "--via", via))
        until(lambda: running(cluster, job, nodes) >= 5, "agents run")  # one step for both nodes
        cluster.kill("login", signal.SIGKILL, *dashboards(cluster, job))
        gone(cluster, job, *nodes)
    for number in (signal.SIGTERM, signal.SIGHUP):
        with attached(cluster, job, "--via", "srun"):
            until(lambda: set(agents(cluster, job, *nodes)) >= set(nodes), "agents run")
            cluster.kill("login", number, *dashboards(cluster, job))
            gone(cluster, job, *nodes)


def dashboards(cluster, job):
    return cluster.pids("login", f"/gpumo[n]-[0-9]* attach --no-record {job} ")


def running(cluster, job, nodes):
    """How many agents there are, with the sruns that start them."""
    found = agents(cluster, job, *nodes)
    return sum(map(len, found.values())) if set(found) >= set(nodes) else 0
