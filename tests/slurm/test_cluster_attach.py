"""`gpumon attach` on a real cluster, as an ordinary user: what only real nodes and steps show."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time

import pytest

from tests.slurm.cluster import end
from tests.slurm.following import Following, agents, attach, gone, gpumon_steps, heads
from tests.slurm.jobs import hold
from tests.support.waiting import until

GPU = re.compile(r"\[\d\] A100")


# -- each way ----------------------------------------------------------------------------------
def test_a_sample_of_every_node_by_each_way(cluster):
    """On node1 and node2 an ssh session is outside of the job, whose idle GPUs it does not know."""
    options = ["-w", "node1,node2", "-p", "gpu", "--gres=gpu:1", "--mem=1G"]
    with cluster.job("srun sleep 900", *options) as job:
        nodes = cluster.nodes(job)
        for via in ("ssh", "openssh", "srun", ""):
            done = attach(cluster, job, *(["--via", via] if via else []))
            assert (done.returncode, done.stderr, heads(done)) == (0, "", nodes), via
            assert done.stdout.count(f"job {job} ") == 2, via
            if via in ("srun", ""):
                assert len(GPU.findall(done.stdout)) == 2, via
            else:
                assert "GPUs are known: those its processes use" in done.stdout
        done = attach(cluster, job, "--via", "srun", "--nodes", nodes[1])
        assert heads(done) == nodes[1:2]
        gone(cluster, job, *nodes)


def test_three_nodes_leave_at_most_one_step_and_the_exit_code_alone(cluster):
    """carol's: on node3 an ssh session goes into the newest job that its user has there."""
    options = ["-N3", "-p", "gpu", "--gres=gpu:1", "--mem=500M"]
    with cluster.carol(), cluster.job("srun sleep 600", *options, user="carol") as job:
        nodes = cluster.nodes(job)
        with Following(cluster, job, user="carol") as following:
            following.live(*nodes)
            assert {following.last(node)[2] for node in nodes} <= {"ssh", "srun"}
            devices = [following.of("header", node)[-1][1] for node in nodes]
            assert [len(each) for each in devices] == [1, 1, 1]
            following.stop()
        gone(cluster, job, *nodes)
        (step,) = until(lambda: all_completed(gpumon_steps(cluster, job)), "the step ends")
        assert step["ExitCode"] == "0:0"
        assert step["JobID"].startswith(f"{job}.")
    row = cluster.accounting(job, "DerivedExitCode")[0]
    assert row["DerivedExitCode"] == "0:0"


# -- where no step with GPUs begins ------------------------------------------------------------
@pytest.fixture
def refused(cluster, request):
    """Makes an environment in which srun says that the job's resources are taken, as where its
    own step does not share them; `but` lets through what has these words in it.
    """

    def make(but):
        path = cluster.run("login", ["sh", "-c", "command -v srun; echo $PATH"]).stdout.split()
        folder = cluster.home() / f"bin{os.getpid()}"
        folder.mkdir(exist_ok=True)
        busy = "srun: error: Unable to create step for job: Requested nodes are busy"
        script = f'case "$*" in {but}) exec {path[0]} "$@";; esac\necho "{busy}" >&2\nexit 1\n'
        cluster.write(f"{folder.name}/srun", f"#!/bin/sh\n{script}")
        request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
        return {"PATH": f"{folder}:{path[1]}"}

    return make


def test_host_and_job_are_shown_without_gpus_and_at_last_what_sstat_tells(cluster, refused):
    with cluster.faulty() as node:
        script = hold(100, 600)
        with cluster.job(script, "-p", "faults", "-w", node, "--gres=gpu:1", "--mem=500M") as job:
            done = attach(cluster, job, "--via", "srun", env=refused("*--gres=none*"))
            assert (done.returncode, done.stderr, heads(done)) == (0, "", [node])
            assert "No GPUs: the job's own step holds them" in done.stdout
            assert f"job {job} " in done.stdout
            assert "A100" not in done.stdout
            gone(cluster, job, node)
            measured = ["sstat", "-a", "-n", "-P", "-o", "TRESUsageInTot", "-j", job]
            until(lambda: "mem=1" in cluster.run("login", measured).stdout, "100 MiB are measured")
            cluster.stop_sshd(node)
            with Following(cluster, job, env=refused("nothing")) as following:
                following.live(node)
                state, detail, source = following.last(node)
                assert (state, source) == ("live", "sstat")
                assert "srun-host: Unable to create step" in detail
                (header,) = following.of("header", node)
                assert (header[0], header[1]) == (job, [])
                (_, row) = following.of("sample", node)[0]
                assert 95 << 20 < row["mem_used_bytes"] < 150 << 20


# -- which job ---------------------------------------------------------------------------------
def test_ones_own_jobs_need_no_number(cluster):
    """carol's, who has no others: none, the only one, several, one by its name, and its end."""

    def attached(*args):
        done = attach(cluster, *args, "--via", "ssh", user="carol")
        return done.returncode, heads(done), done.stderr

    def listed():
        done = cluster.run("login", ["gpumon", "jobs", "--json"], "carol")
        assert done.stderr == ""
        return {each["id"]: each for each in json.loads(done.stdout)["jobs"]}

    recorded = "srun gpumon record --quiet -- sleep 600", "-p", "gpu", "--gres=gpu:1", "-w"
    with cluster.carol():
        code, _, said = attached()
        assert (code, said.count("\n")) == (4, 1)
        assert "none of your jobs is running or pending" in said
        with (
            cluster.job(*recorded, "node1", "-J", "train", user="carol") as job,
            cluster.job("sleep 600", "-J", "eval", "-w", "node2", user="carol") as other,
        ):
            code, _, said = attached()
            assert (code, said.count("\n")) == (2, 1)
            assert f"{other} (eval, " in said
            assert f"{job} (train, " in said
            assert attached("eval") == (0, ["node2"], "")
            until(lambda: listed()[job]["window"] == "now", "its recording is read")
            found = listed()
            assert set(list(found)[:2]) == {other, job}  # what runs comes first
            assert (found[job]["gpus"], found[job]["gpus_seen"]) == (1, 1)
            assert found[job]["mem_bytes"] > 0
            assert found[other]["missing"]["gpu_busy_percent"] == "not recorded"
            asked = cluster.run("login", ["gpumon", "__complete", "zsh", "running"], "carol")
            assert f"{job}:train, RUNNING, gpu\n" in asked.stdout
            cluster.cancel(other)
            until(lambda: attached() == (0, ["node1"], ""), "the only one that runs")
        cluster.wait(job)
        ended = f"gpumon: job {job} has ended (CANCELLED); run "
        commands = f"'gpumon report {job}' or 'gpumon replay {job}'\n"
        assert attached("train") == (1, [], ended + commands)
        assert [listed()[each]["window"] for each in (job, other)] == ["run", None]


def test_components_of_a_het_job_together(cluster):
    script = (
        "#SBATCH -n1 -w node1 --mem=300M\n#SBATCH hetjob\n#SBATCH -n1 -w node2 --mem=300M\n"
        "srun --het-group=0,1 sleep 600\n"
    )
    with cluster.job(script) as job:
        for via in ("srun", "ssh"):
            done = attach(cluster, job, "--via", via)
            assert (done.returncode, done.stderr) == (0, "")
            assert heads(done) == ["node1", "node2"]
            assert f"job {job} " in done.stdout
            assert f"job {int(job) + 1} " in done.stdout


def test_a_second_job_of_the_user_on_the_node(cluster):
    """pam_slurm_adopt puts the shell into one of them: nothing of it is shown as the other's."""
    options = ["-w", "node3", "-p", "gpu", "--gres=gpu:1", "--mem=1G"]
    user = "bob"  # of whom no other test has jobs there
    with (
        cluster.job("sleep 600", *options, user=user) as one,
        cluster.job("sleep 600", *options, user=user) as other,
    ):

        def landed():
            """Where a shell is put; that job is from then on the newest for the module."""
            argv = ["ssh", "node3", "cat /proc/self/cgroup"]
            said = cluster.run("login", argv, user, check=False).stdout
            return re.search(r"/job_(\d+)/step_extern", said)

        def have_begun():
            path = "/sys/fs/cgroup/memory/slurm_node3/uid_*/job_%s/step_extern"
            script = f"ls -d {path % one} {path % other}"
            return cluster.run("node3", ["sh", "-c", script], "root", check=False).returncode == 0

        until(have_begun, "both jobs' steps")
        time.sleep(1.5)  # the module compares times in whole seconds
        second = until(landed, "a shell is let in")[1]
        assert second in (one, other)
        first = one if second == other else other
        done = attach(cluster, first, "--via", "ssh", user=user)
        assert (done.returncode, done.stdout) == (1, "")
        words = f"ssh: this shell belongs to job {second}, not to job {first}"
        assert done.stderr == f"gpumon: node3: {words}\n"
        with Following(cluster, first, user=user) as following:
            following.live("node3")
            state, detail, source = following.last("node3")
            assert (state, source) == ("live", "srun")
            assert words in detail
            ids = {header[0] for header in following.of("header", "node3")}
            assert ids == {first}
        gone(cluster, first, "node3")


def test_gpumon_in_an_allocation_of_several_nodes_tells_of_them_all(cluster):
    """A shell of salloc on the login host: as text, and as JSON for programs."""
    allocation = ["salloc", "-N2", "-p", "gpu", "--gres=gpu:1", "--mem=500M"]
    program = "gpumon; echo; gpumon attach --json $SLURM_JOB_ID"
    done = cluster.run("login", [*allocation, "sh", "-c", program])
    (job,) = re.findall(r"Granted job allocation (\d+)", done.stderr)
    nodes = heads(done)
    assert len(nodes) == 2
    assert done.stdout.count(f"job {job} ") == 2
    assert len(GPU.findall(done.stdout)) == 2
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len({each["node"] for each in told}) == 2
    assert [(each["job"]["id"], len(each["devices"])) for each in told] == [(job, 1)] * 2
    # a GPU is called the same inside of a job, which may open that one alone, and outside
    numbers = {gpu["uuid"]: gpu["index"] for each in told for gpu in each["devices"]}
    for node in nodes:
        once = json.loads(cluster.run(node, ["gpumon", "once", "--json"], "root").stdout)
        every = {gpu["uuid"]: gpu["index"] for gpu in once["devices"]}
        assert len(every) == 4
        assert [every[uuid] for uuid in numbers if uuid in every] == [
            number for uuid, number in numbers.items() if uuid in every
        ]


def test_from_inside_of_the_job_its_own_node_is_local(cluster):
    script = "gpumon attach --no-record $SLURM_JOB_ID"
    job = cluster.submit(script, "-N2", "-p", "gpu", "--gres=gpu:1")
    cluster.wait(job)
    shown = cluster.log(job)
    assert [line.split()[0] for line in shown.splitlines() if " driver " in line] == (
        cluster.nodes(job)
    ), shown
    assert len(GPU.findall(shown)) == 2
    steps = gpumon_steps(cluster, job)
    assert len(steps) <= 1  # for the other node


# -- faults ------------------------------------------------------------------------------------
SOUND = "node2"


@pytest.fixture
def pair(cluster):
    """A job on a sound node and on the one that breaks."""
    with cluster.faulty() as node:
        options = ["-p", "all", "-w", f"{SOUND},{node}", "--gres=gpu:2", "--mem=500M"]
        with cluster.job("srun sleep 900", *options) as job:
            yield job, node


@contextlib.contextmanager
def unharmed(following, node=SOUND):
    """What happens meanwhile to another node does not happen to this one."""
    following.live(node)
    known = len(following.of("sample", node))
    yield
    following.until(lambda f: len(f.of("sample", node)) > known + 2)
    assert following.states(node)[-1] == "live"
    assert "lost" not in following.states(node)


def test_sshd_dies_in_mid_stream_and_srun_goes_on(cluster, pair):
    job, node = pair
    with Following(cluster, job, "openssh") as following:
        following.live(node)
        with unharmed(following):
            cluster.stop_sshd(node)
            following.until(lambda f: f.states(node).count("lost") >= 2)
        gone(cluster, job, node)
        with Following(cluster, job) as other:
            other.live(node)
            state, detail, source = other.last(node)
            assert (state, source) == ("live", "srun")
            assert "ssh: " in detail
        cluster.start_sshd(node)
        following.until(lambda f: f.states(node).count("live") == 2)
        known = len(following.of("sample", node))
        following.until(lambda f: len(f.of("sample", node)) > known)
        times = [each[0] for each in following.of("sample", node)]
        assert max(after - before for before, after in zip(times, times[1:])) > 1.0  # a gap


def test_srun_keeps_its_one_step_and_leaves_no_mark(cluster, pair):
    """An agent that stands still, a cable that is pulled, a dashboard that is killed, and a node
    that is away when a step would start.
    """
    job, node = pair
    with Following(cluster, job, "srun") as following:
        following.live(node, SOUND)
        stopped = agents(cluster, job, node)[node]
        with unharmed(following):
            cluster.kill(node, signal.SIGSTOP, *stopped)
            following.until(lambda f: "lost" in f.states(node))
            assert "no answer for" in following.last(node)[1]
            cluster.kill(node, signal.SIGCONT, *stopped)
            following.until(lambda f: f.states(node).count("live") == 2)
        with unharmed(following):
            cluster.link(node, up=False)
            following.until(lambda f: f.states(node).count("lost") == 2)
            cluster.link(node, up=True)
            following.until(lambda f: f.states(node).count("live") == 3)
        assert len(gpumon_steps(cluster, job)) == 1
        end(following.process)  # SIGKILL
    gone(cluster, job, node, SOUND)
    cluster.link(node, up=False)
    done = attach(cluster, job, "--via", "srun")
    cluster.link(node, up=True)
    assert (done.returncode, heads(done)) == (1, [SOUND])
    why = f"slurmd of {node} does not answer", f"Slurm calls {node} "  # it may have noticed
    assert any(each in done.stderr for each in why)
    steps = until(lambda: all_completed(gpumon_steps(cluster, job)), "the steps end")
    assert [row["ExitCode"] for row in steps] == ["0:0"] * 2
    assert cluster.accounting(job, "DerivedExitCode")[0]["DerivedExitCode"] == "0:0"


def all_completed(steps):
    return steps if all(row["State"] == "COMPLETED" for row in steps) else []


def test_a_network_that_swallows_everything(cluster, pair):
    """The agents end although nobody tells them that their readers have gone."""
    job, node = pair
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(Following(cluster, job, via, env={"AGENT_SILENCE_S": "10"}))
            for via in ("ssh", "openssh")
        ]
        for following in both:
            following.live(node)
        cut_off = set(agents(cluster, job, node)[node])
        assert len(cut_off) == 4  # each with its shell
        with unharmed(both[0]), unharmed(both[1]):
            cluster.link(node, up=False)
            for following in both:
                following.until(lambda f: "lost" in f.states(node))
        until(lambda: not cut_off & set(agents(cluster, job, node).get(node, [])), "agents end")
        cluster.link(node, up=True)
        for following in both:
            following.until(lambda f: f.states(node).count("live") == 2)


def test_the_end_of_the_job_ends_it(cluster, pair):
    """At once: Slurm, which would not be asked for an hour, is asked when all streams end."""
    job, node = pair
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(Following(cluster, job, via, env={"ASK_S": "3600"}))
            for via in ("ssh", "srun")
        ]
        for following in both:
            following.live(node, SOUND)
        cluster.cancel(job)
        for following in both:
            following.until(lambda f: f.states(node)[-1] == f.states(SOUND)[-1] == "ended")
            following.until(lambda f: f.job_states[-1] == "CANCELLED")
        gone(cluster, job, node, SOUND)
