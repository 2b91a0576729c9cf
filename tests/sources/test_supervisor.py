"""All nodes of a job: real agents behind launchers of this machine, and what becomes of them."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import psutil
import pytest

from gpumon.model.sample import Header, JobContext
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.slurm.pace import LEAST_PERIOD_S
from gpumon.sources import supervisor, watched
from gpumon.sources.ladder import Ladder
from gpumon.sources.local import ChildStream
from gpumon.sources.stream import Failure
from gpumon.sources.supervisor import AttachSource, NodeTask
from gpumon.sources.watched import WatchedJob, tasks_of
from tests.e2e.program import HANGS_S, environment
from tests.nvml.emulator import Emulated
from tests.sources.sinks import Sink

JOB = Job(
    raw_id="7", id="7", state="RUNNING", nodes=("n1", "n2"), node_list="n[1-2]", cluster="alpha",
    name="train", user="ada", allocations=(NodeAllocation("n1", gpus=4, cpus=8),),
)  # fmt: skip


class Here:
    """Every node is this machine, inside job `job`; some nodes refuse."""

    def __init__(self, name="ssh", job="7", env=None, refuse=(), lacks=""):
        self.name = name
        self.lacks = lacks
        self._env = environment(env, SLURM_JOB_ID=job) | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
        self._refuse = dict(refuse)
        self.streams = {}
        self.opened = []

    def open(self, node, argv):
        self.opened.append(node)
        if node in self._refuse:
            raise self._refuse[node]
        self.streams[node] = ChildStream(argv, self._env | {"SLURMD_NODENAME": f"{node}.inside"})
        return self.streams[node]

    def agent(self, node):
        return psutil.Process(self.streams[node]._child.pid)

    def close(self):
        pass


@pytest.fixture
def follow(monkeypatch):
    """Starts a source on these launchers; it is stopped at the end."""
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.1,))
    running = []

    def start(*launchers, tasks=None, interval_s=0.2):
        tasks = tasks or [NodeTask(node, ("7",)) for node in ("n1", "n2")]
        source, sink = AttachSource(tasks, Ladder(launchers), interval_s), Sink()
        running.append(source)
        source.start(sink)
        return source, sink

    yield start
    for source in running:
        source.stop()


def live(*nodes):
    return lambda sink: all(sink.of("sample", node) for node in nodes)


# -- following ---------------------------------------------------------------------------------
def test_all_nodes_are_followed_under_their_own_names(follow):
    with Emulated("a100x4") as gpus:
        way = Here(env=gpus.env)
        source, sink = follow(way, tasks=tasks_of([JOB]))
        sink.wait(live("n1", "n2"))
        assert {what[1] for what in sink.got} == {"n1", "n2"}
        header = sink.of("header", "n1")[0]
        assert (header.node, len(header.devices)) == ("n1", 4)
        assert header.job.id == "7"
        assert (header.job.cluster, header.job.user, header.job.cpus) == ("alpha", "ada", 8)
        assert sink.states("n1") == ["connecting", "connecting", "live"]
        assert sink.last("n2").source == "ssh"
        assert [rung.name for rung in source.rungs("n1")] == ["ssh"]
        agents = [way.agent(node) for node in ("n1", "n2")]
        began = time.monotonic()
        source.stop()
        assert time.monotonic() - began < HANGS_S
        psutil.wait_procs(agents, HANGS_S)
        assert not [agent for agent in agents if agent.is_running()]
        assert "lost" not in sink.states()


def test_a_refused_way_is_named_beside_the_one_that_was_taken(follow):
    refusing = Here("ssh", refuse={"n1": Failure("host key unknown", "ssh n1", final=True)})
    source, sink = follow(refusing, Here("srun"))
    sink.wait(live("n1", "n2"))
    status = sink.last("n1")
    assert (status.state, status.source) == ("live", "srun")
    assert status.detail == "ssh: host key unknown"
    assert sink.last("n2").detail == ""
    assert source.commands("n1") == ["ssh n1"]


def test_the_wrong_job_is_never_shown(follow):
    source, sink = follow(Here("ssh", job="8"), Here("srun"))
    sink.wait(live("n1", "n2"))
    assert sink.last("n1").detail == "ssh: this shell was put into job 8, not into job 7"
    assert {header.job.id for header in sink.of("header")} == {"7"}
    assert [rung.name for rung in source.rungs("n1")] == ["srun", "ssh"]


def test_a_lost_node_comes_back_and_the_others_go_on(follow):
    way = Here()
    _, sink = follow(way)
    sink.wait(live("n1", "n2"))
    before = len(sink.of("sample", "n2"))
    way.agent("n1").kill()
    sink.wait(lambda sink: sink.states("n1").count("live") == 2)
    assert "lost" in sink.states("n1")
    assert "lost" not in sink.states("n2")
    lost = next(s for s in sink.of("status", "n1") if s.state == "lost")
    assert lost.detail == "the connection was closed; trying again in 0 s"
    sink.wait(lambda sink: len(sink.of("sample", "n2")) > before)
    runs = {header.agent_pid for header in sink.of("header", "n1")}
    assert len(runs) == 2


def test_a_node_that_cannot_be_reached_is_given_up_only_if_nothing_may_change(follow):
    way = Here(refuse={
        "n1": Failure("no such host", final=True), "n2": Failure("timed out"),
    })  # fmt: skip
    source, sink = follow(way)
    sink.wait(lambda sink: way.opened.count("n2") > 3)
    assert way.opened.count("n1") == 1
    assert sink.last("n1").detail == "ssh: no such host"
    assert sink.last("n1").state == "lost"
    source.end("the job has ended: COMPLETED")
    sink.wait(lambda sink: sink.last("n2").state == "ended")
    assert sink.last("n2").detail == "the job has ended: COMPLETED"
    assert sink.last("n1") == sink.last("n2")._replace(since=sink.last("n1").since)


def test_a_silent_agent_is_given_up_and_started_again(follow, monkeypatch):
    monkeypatch.setattr(supervisor, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(supervisor, "_SILENCE_S", 1.5)
    way = Here()
    _, sink = follow(way)
    sink.wait(live("n1", "n2"))
    stopped = way.agent("n1")
    stopped.send_signal(signal.SIGSTOP)
    sink.wait(lambda sink: sink.states("n1").count("live") == 2)
    assert "lost" not in sink.states("n2")
    assert not stopped.is_running() or stopped.wait(HANGS_S) is None


def test_from_outside_of_the_job_another_way_is_better(follow):
    """It knows only the GPUs in use: srun, which stands in the job, shows them all."""
    with Emulated("a100x4") as gpus:
        ways = [Here(name, env=gpus.env) for name in ("ssh", "srun")]
        source, sink = follow(*ways, tasks=[NodeTask("n1", ("7",), 5)])  # four are there
        sink.wait(live("n1"))
        assert [way.opened for way in ways] == [["n1"], ["n1"]]
        assert sink.last("n1").source == "srun"
        assert source.rungs("n1")[1].why == "outside the job: only GPUs in use are seen"
        ways[0].streams["n1"]._child.wait(HANGS_S)  # nothing of it is left


def test_from_outside_of_the_job_is_better_than_not_at_all(follow):
    with Emulated("a100x4") as gpus:
        refusing = Here("srun", refuse={"n1": Failure("denied")})
        tasks = [NodeTask("n1", ("7",), 5)]
        _, sink = follow(Here("ssh", env=gpus.env), refusing, tasks=tasks)
        sink.wait(live("n1"))
        assert (sink.last("n1").source, sink.last("n1").detail) == ("ssh", "srun: denied")


def test_a_way_without_gpus_says_so_in_the_place_of_the_driver(follow):
    ways = [
        Here("srun", refuse={"n1": Failure("busy")}),
        Here("srun-host", lacks="GPUs n/a: held."),
    ]
    source, sink = follow(*ways, tasks=[NodeTask("n1", ("7",), 2)])
    sink.wait(live("n1"))
    assert (sink.last("n1").source, sink.last("n1").detail) == ("srun-host", "srun: busy")
    header = sink.of("header", "n1")[0]
    assert (header.notes, header.devices) == (["GPUs n/a: held."], [])
    assert source.rungs("n1")[0].why == "GPUs n/a: held."


# -- the job -----------------------------------------------------------------------------------
class Slurm:
    """What Slurm says next."""

    def __init__(self, *jobs):
        self.jobs = list(jobs)
        self.asked = []

    def __call__(self, soon=False):
        self.asked.append(soon)
        return self.jobs


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.1,))
    running = []

    def start(way, slurm, ask_s=0.2):
        """`way`: to all nodes, or each by its name."""

        def attach(jobs):
            ways = way if isinstance(way, dict) else {task.name: way for task in tasks_of(jobs)}
            ladders = {name: Ladder([each]) for name, each in ways.items()}
            return AttachSource(tasks_of(jobs), ladders, 0.2)

        source, sink = WatchedJob(slurm(), slurm, attach, ask_s=ask_s), Sink()
        slurm.asked.clear()
        running.append(source)
        source.start(sink)
        return source, sink

    yield start
    for source in running:
        source.stop()


def test_a_pending_job_is_followed_when_it_starts(watch):
    slurm = Slurm(replace(JOB, state="PENDING", reason="Priority", nodes=()))
    watched, sink = watch(Here(), slurm)
    assert watched.job().reason == "Priority"
    assert sink.got == []
    slurm.jobs = [JOB]
    sink.wait(live("n1", "n2"))
    assert watched.job().state == "RUNNING"


def test_the_start_of_a_job_is_looked_for_more_often_than_its_end(watch, monkeypatch):
    assert watched.PENDING_S >= LEAST_PERIOD_S
    assert [watched.period_for(waits_s) for waits_s in (0.0, 599.0, 601.0, None)] == [
        watched.PENDING_S, watched.PENDING_S, watched.ASK_S, watched.ASK_S,
    ]  # fmt: skip
    monkeypatch.setattr(watched, "PENDING_S", 0.1)
    slurm = Slurm(replace(JOB, state="PENDING", nodes=()))
    _, sink = watch(Here(), slurm, ask_s=3600.0)
    slurm.jobs = [JOB]
    sink.wait(live("n1", "n2"))
    assert slurm.asked == [True]  # an answer as young as is allowed; then it runs


def test_a_job_that_ends_ends_its_nodes(watch):
    slurm = Slurm(JOB)
    watched, sink = watch(Here(), slurm)
    sink.wait(live("n1", "n2"))
    slurm.jobs = [replace(JOB, state="TIMEOUT")]
    sink.wait(lambda sink: [sink.last(node).state for node in JOB.nodes] == ["ended", "ended"])
    assert sink.last("n1").detail == "the job has ended: TIMEOUT"
    assert watched.job().has_ended


def test_slurm_is_asked_at_once_when_no_node_is_live_any_more(watch):
    slurm, way = Slurm(JOB), Here()
    _, sink = watch(way, slurm, ask_s=3600.0)
    sink.wait(live("n1", "n2"))
    way.agent("n1").kill()
    sink.wait(lambda sink: sink.states("n1").count("live") == 2)
    assert slurm.asked == []  # the other node went on
    slurm.jobs = [replace(JOB, state="COMPLETED")]
    for node in JOB.nodes:
        way.agent(node).suspend()  # so that none comes back before the other has gone
    for node in JOB.nodes:
        way.agent(node).kill()
    sink.wait(lambda sink: [sink.last(node).state for node in JOB.nodes] == ["ended", "ended"])
    assert slurm.asked == [True]


def test_a_requeued_job_is_followed_where_it_starts_again(watch):
    slurm = Slurm(replace(JOB, nodes=("n1",)))
    _, sink = watch(Here(), slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(JOB, state="PENDING", nodes=())]
    sink.wait(lambda sink: sink.last("n1").state == "ended")
    assert sink.last("n1").detail == "the job was put back into the queue"
    slurm.jobs = [replace(JOB, nodes=("n2",))]
    sink.wait(live("n2"))


def test_a_suspended_job_is_not_tried_again_and_again(watch):
    slurm, way = Slurm(replace(JOB, nodes=("n1",))), Here()
    watched, sink = watch(way, slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(slurm.jobs[0], state="SUSPENDED")]
    sink.wait(lambda sink: watched._nodes.held)
    way.agent("n1").kill()
    sink.wait(lambda sink: sink.last("n1").state == "lost")
    assert sink.last("n1").detail.endswith("; the job is suspended")
    time.sleep(0.5)
    assert way.opened == ["n1"]
    slurm.jobs = [replace(slurm.jobs[0], state="RUNNING")]
    sink.wait(lambda sink: way.opened == ["n1", "n1"])


def test_components_of_a_het_job_each_have_their_nodes():
    """And a share of a node that another has, too, stands beside it under a name of its own."""
    parts = [
        Job(raw_id="14", nodes=("n1", "n2"), sluid="sEKNKTV3WPV500", het_offset=0),
        Job(raw_id="15", nodes=("n2", "n3"), het_offset=1,
            allocations=(NodeAllocation("n3", gpus=0),)),
    ]  # fmt: skip
    tasks = {task.name: (task.node, task.names, task.gpus) for task in tasks_of(parts)}
    assert tasks == {
        "n1": ("n1", ("14", "sEKNKTV3WPV500"), None),
        "n2": ("n2", ("14", "sEKNKTV3WPV500"), None),
        "n2+1": ("n2", ("15",), None),
        "n3": ("n3", ("15",), 0),
    }
    assert [task.name for task in tasks_of(parts, ["n3"])] == ["n3"]
    assert [task.name for task in tasks_of(parts, ["n2"])] == ["n2", "n2+1"]


def test_two_components_on_one_node_are_both_followed(watch):
    """Each by an agent of its own, which speaks for its component alone."""
    parts = [
        Job(raw_id=raw_id, id=f"14+{offset}", state="RUNNING", het_job_id="14", het_offset=offset,
            nodes=("n1",), allocations=(NodeAllocation("n1", cpus=cpus),))
        for offset, (raw_id, cpus) in enumerate([("14", 1), ("15", 2)])
    ]  # fmt: skip
    ways = {"n1": Here(job="14"), "n1+1": Here(job="15")}
    watched, sink = watch(ways, Slurm(*parts))
    sink.wait(live("n1", "n1+1"))
    first, second = (sink.of("header", name)[0] for name in ways)
    assert (first.node, first.job.id, first.job.cpus) == ("n1", "14", 1)
    assert (second.node, second.job.id, second.job.cpus) == ("n1", "15", 2)
    assert first.notes == second.notes[:-1]
    assert second.notes[-1].startswith("The share of component 14+1, on n1 too;")
    assert [rung.name for rung in watched.rungs("n1+1")] == ["ssh"]


def test_a_header_is_completed_by_what_slurm_knows():
    (task, _) = tasks_of([replace(JOB, start=100.0)])
    own = JobContext("7", step="extern", cpus=1, mem_limit_bytes=5, nodes="x", end=200.0)
    header = Header("n1.inside", "b", 1.0, 1.0, 1.0, "0.1", job=own)
    job = task.complete(header).job
    assert (job.step, job.cpus, job.gpus, job.mem_limit_bytes) == ("", 8, 4, 5)
    assert (job.nodes, job.node_count, job.start, job.end) == ("n[1-2]", 2, 100.0, 200.0)
    assert job.source == "slurm"
