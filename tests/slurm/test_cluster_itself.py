"""The test bed does what `cluster.py` promises."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.nvml.scenario import Scenario
from tests.slurm.cluster import end
from tests.support.waiting import HANGS_S, until


def ssh(cluster, *args):
    command = ["ssh", "-F", cluster.ssh_config, "-o", "ConnectTimeout=3", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)


def test_a_job_runs_and_is_accounted(cluster):
    job = cluster.submit("hostname; exit 3", "-w", "node2", "-J", "its name", user="bob")
    assert cluster.wait(job, "FAILED") == "FAILED"
    assert cluster.log(job, "bob") == "node2\n"
    assert cluster.show(job)["JobName"] == "its name"
    row = cluster.accounted(job, "User", "ExitCode", "NodeList", "Account")
    assert row.items() >= {
        ("User", "bob"), ("ExitCode", "3:0"), ("NodeList", "node2"), ("Account", "research"),
    }  # fmt: skip


def test_a_failed_wait_shows_the_jobs_output(cluster):
    job = cluster.submit("echo what went wrong; exit 1")
    with pytest.raises(AssertionError, match=f"job {job} is FAILED\nwhat went wrong"):
        cluster.wait(job, "COMPLETED")


def test_a_command_that_crashed_is_asked_again_with_a_warning(cluster):
    crashed = cluster.folder / "crashed"
    crashes = f"[ -e {crashed} ] && exec echo there; touch {crashed}; kill -SEGV $$"
    with pytest.warns(match=": 139 "):
        assert cluster.ask("sh", "-c", crashes) == "there\n"
    with pytest.warns(match=": 139 "), pytest.raises(AssertionError, match="139"):
        cluster.ask("sh", "-c", "kill -SEGV $$")
    with pytest.raises(AssertionError, match="why"):
        cluster.ask("sh", "-c", "echo why >&2; exit 1")


@pytest.mark.ssh
def test_ssh_goes_through_login_and_finds_nothing_of_ours(cluster):
    done = ssh(cluster, "node1", "hostname; whoami; command -v gpumon || command -v python3")
    assert done.stdout.splitlines()[:2] == ["node1", "alice"]
    assert done.stdout.splitlines()[2].endswith("/python3")
    assert ssh(cluster, "-l", "bob", "node2-direct", "hostname; whoami").stdout == "node2\nbob\n"


def test_processes_of_other_nodes_are_not_seen(cluster):
    with cluster.job("sleep 4711", "-w", "node1"):
        assert until(lambda: cluster.pids("node1", "^sleep 4711"))
        assert not cluster.pids("node2", "^sleep 4711")


def test_what_is_started_ends_with_all_its_children(cluster):
    process = cluster.popen("node1", ["sh", "-c", "sleep 4713 & sleep 4713"])
    until(lambda: len(cluster.pids("node1", "^sleep 4713")) == 2)
    end(process)
    until(lambda: not cluster.pids("node1", "^sleep 4713"))


def test_gpus_say_something_else_for_a_while(cluster):
    with cluster.faulty() as node:
        with cluster.gpus(node, Scenario().gpu(2, util=7, mem_mib=1234)):
            changed = cluster.run(node, ["gpumon", "once"]).stdout
        as_before = cluster.run(node, ["gpumon", "once"]).stdout
    assert ("busy 7 %" in changed, "busy 7 %" in as_before) == (True, False)
    assert changed.count("busy 60 %") == 3


def test_a_process_pauses(cluster):
    with cluster.faulty() as node, cluster.job("exec sleep 4712", "-p", "faults"):
        (pid,) = until(lambda: cluster.pids(node, "^sleep 4712"))
        cluster.kill(node, signal.SIGSTOP, pid)
        state = ["ps", "-o", "state=", "-p", str(pid)]
        until(lambda: cluster.run(node, state).stdout.strip() == "T")


@pytest.mark.ssh
def test_faults_come_and_go(cluster):
    with cluster.faulty() as node:
        assert ssh(cluster, f"{node}-direct", "true").returncode == 0
        cluster.stop_sshd(node)
        assert "Connection refused" in ssh(cluster, f"{node}-direct", "true").stderr
        cluster.start_sshd(node)
        until(lambda: ssh(cluster, f"{node}-direct", "true").returncode == 0)
        cluster.link(node, up=False)
        assert ssh(cluster, f"{node}-direct", "true").returncode == 255
        cluster.link(node, up=True)
        until(lambda: ssh(cluster, f"{node}-direct", "true").returncode == 0)
