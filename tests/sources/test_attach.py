"""All nodes of a job: real agents behind transports of this machine, and what becomes of them."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import psutil
import pytest

from gpumon.model.sample import Header, JobContext
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.slurm.pace import LEAST_PERIOD_S
from gpumon.slurm.parts import parts_of
from gpumon.slurm.runner import SlurmError
from gpumon.sources import attach, attempt, watched
from gpumon.sources.attach import AttachSource, NodeTask
from gpumon.sources.watched import WatchedJob, tasks_of
from gpumon.transport.fallback import Transports
from gpumon.transport.local import ChildStream
from gpumon.transport.stream import Failure
from gpumon.transport.unhurried import unhurried
from tests.e2e.program import environment
from tests.nvml.emulator import Emulated
from tests.sources.sinks import AnyWay, Sink, by
from tests.support.waiting import HANGS_S, until

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
        """Of a live node; its parent is the shell that started it."""
        children = psutil.Process(self.streams[node]._child.pid).children()
        return next(child for child in children if "python" in child.exe())

    def close(self):
        pass


@pytest.fixture
def follow(monkeypatch):
    """Starts a source on these transports; it is stopped at the end."""
    monkeypatch.setattr(attach, "BACK_OFF_S", (0.1,))
    running = []

    def start(*transports, tasks=None, interval_s=0.2):
        tasks = tasks or [NodeTask(node, ("7",)) for node in ("n1", "n2")]
        source, sink = AttachSource(by(tasks, *transports), interval_s), Sink()
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
        source, sink = follow(way, tasks=tasks_of([JOB], AnyWay()))
        sink.wait(live("n1", "n2"))
        assert {what[1] for what in sink.got} == {"n1", "n2"}
        header = sink.of("header", "n1")[0]
        assert (header.node, len(header.devices)) == ("n1", 4)
        assert header.job.id == "7"
        assert (header.job.cluster, header.job.user, header.job.cpus) == ("alpha", "ada", 8)
        assert sink.states("n1") == ["connecting", "connecting", "live"]
        assert sink.last("n2").source == "ssh"
        assert [attempt.name for attempt in source.attempts("n1")] == ["ssh"]
        agents = [way.agent(node) for node in ("n1", "n2")]
        began = time.monotonic()
        source.stop()
        assert time.monotonic() - began < HANGS_S
        psutil.wait_procs(agents, HANGS_S)
        assert not [agent for agent in agents if agent.is_running()]
        assert "lost" not in sink.states()


def test_nodes_that_are_live_need_no_thread_each(follow):
    names = [f"n{n}" for n in range(1, 7)]
    _, sink = follow(Here(), tasks=[NodeTask(name, ("7",)) for name in names])
    sink.wait(live(*names))
    before = len(sink.got)

    def threads():
        return [thread.name for thread in threading.enumerate() if thread.name[-2:] in names]

    until(lambda: not threads(), threads)
    sink.wait(lambda sink: len(sink.got) > before + 2 * len(names))


def test_a_mistake_while_a_live_stream_is_taken_loses_its_node_alone(follow):
    source, sink = follow(Here())
    sink.wait(live("n1", "n2"))
    source._runs["n1"]._attempts[0]._spacing = None
    sink.wait(lambda sink: "lost" in sink.states("n1"))
    assert any(
        each.detail.startswith("internal error: AttributeError")
        for each in sink.of("status", "n1")
        if each.state == "lost"
    )
    sink.wait(lambda sink: sink.last("n1").state == "live")
    assert "lost" not in sink.states("n2")


@pytest.mark.slow
def test_a_refused_way_is_named_beside_the_one_that_was_taken(follow):
    refusing = Here("ssh", refuse={"n1": Failure("host key unknown", "ssh n1", final=True)})
    _, sink = follow(refusing, Here("srun"))
    sink.wait(live("n1", "n2"))
    status = sink.last("n1")
    assert (status.state, status.source) == ("live", "srun")
    assert status.detail == "ssh: host key unknown"
    assert sink.last("n2").detail == ""


@pytest.mark.slow
def test_the_wrong_job_is_never_shown(follow):
    source, sink = follow(Here("ssh", job="8"), Here("srun"))
    sink.wait(live("n1", "n2"))
    assert sink.last("n1").detail == "ssh: this shell belongs to job 8, not to job 7"
    assert {header.job.id for header in sink.of("header")} == {"7"}
    assert [attempt.name for attempt in source.attempts("n1")] == ["srun", "ssh"]


def test_where_no_thread_can_be_started_a_node_is_lost_until_there_is_one(follow, monkeypatch):
    plain, denied = threading.Thread.start, {"n2"}

    def start(thread):
        if thread.name in denied:
            raise RuntimeError("can't start new thread")
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(attach, "HEARTBEAT_S", 0.2)
    _, sink = follow(Here())
    sink.wait(live("n1"))
    assert sink.last("n2").state == "lost"
    assert sink.last("n2").detail.startswith("cannot start another process or thread")
    denied.clear()
    sink.wait(live("n2"))
    assert sink.states("n1").count("live") == 1


def test_without_threads_all_streams_are_closed_all_the_same(follow, monkeypatch):
    way = Here()
    source, sink = follow(way)
    sink.wait(live("n1", "n2"))
    agents = [way.agent(node) for node in ("n1", "n2")]

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", start)
        source.stop()
    psutil.wait_procs(agents, HANGS_S)
    assert not [agent for agent in agents if agent.is_running()]


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


@pytest.mark.slow
def test_a_silent_agent_is_given_up_and_started_again(follow, monkeypatch):
    monkeypatch.setattr(attach, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(attempt, "SILENCE_S", 1.5)
    way = Here()
    _, sink = follow(way, tasks=[NodeTask("n1", ("7",))])
    sink.wait(live("n1"))
    stopped = way.agent("n1")
    stopped.send_signal(signal.SIGSTOP)
    sink.wait(lambda sink: sink.states("n1").count("live") >= 2)
    assert not stopped.is_running() or stopped.wait(HANGS_S) is None


@pytest.mark.slow
def test_from_outside_of_the_job_another_way_is_better(follow):
    """It knows only the GPUs in use: srun, which stands in the job, shows them all."""
    with Emulated("a100x4") as gpus:
        ways = [Here(name, env=gpus.env) for name in ("ssh", "srun")]
        source, sink = follow(*ways, tasks=[NodeTask("n1", ("7",), 5)])  # four are there
        sink.wait(live("n1"))
        assert [way.opened for way in ways] == [["n1"], ["n1"]]
        assert sink.last("n1").source == "srun"
        assert source.attempts("n1")[1].why == "outside the job: only GPUs in use are visible"
        ways[0].streams["n1"]._child.wait(HANGS_S)  # nothing of it is left


@pytest.mark.slow
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
    assert source.attempts("n1")[0].why == "GPUs n/a: held."


class Slow(Here):
    """Opens only when it is let, as a shell whose start-up files take long."""

    def __init__(self, name):
        super().__init__(name)
        self.let = threading.Event()

    def open(self, node, argv):
        self.let.wait(HANGS_S)
        return super().open(node, argv)


class Asking(Slow):
    """Asks a person for a password first."""

    def __init__(self, name):
        super().__init__(name)
        self.asks = threading.Event()

    def open(self, node, argv):
        with unhurried():
            self.asks.set()
            return super().open(node, argv)


@pytest.mark.slow
def test_beside_a_slow_transport_the_next_is_tried_and_the_loser_is_closed(follow, monkeypatch):
    monkeypatch.setattr(attach, "_BESIDE_S", 0.3)
    slow, quick = Slow("ssh"), Here("srun")
    source, sink = follow(slow, quick, tasks=[NodeTask("n1", ("7",))])
    sink.wait(live("n1"))
    assert [attempt.name for attempt in source.attempts("n1")] == ["srun"]
    slow.let.set()
    until(lambda: slow.streams, "the slow one opens after all")
    slow.streams["n1"]._child.wait(HANGS_S)  # it is closed
    assert sink.states("n1")[-1] == "live"
    assert {status.source for status in sink.of("status", "n1")[-1:]} == {"srun"}


@pytest.mark.slow
def test_who_waits_for_a_person_is_not_called_slow(follow, monkeypatch):
    slow, quick = Asking("ssh"), Here("srun")
    _, sink = follow(slow, quick, tasks=[NodeTask("n1", ("7",))])
    assert slow.asks.wait(HANGS_S)
    monkeypatch.setattr(attach, "_BESIDE_S", 0.3)
    time.sleep(1.5)
    assert quick.opened == []
    monkeypatch.setattr(attach, "_BESIDE_S", HANGS_S)  # from here on it may be slow
    slow.let.set()
    sink.wait(live("n1"))
    assert sink.last("n1").source == "ssh"


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
    monkeypatch.setattr(attach, "BACK_OFF_S", (0.1,))
    running = []

    def start(way, slurm, ask_s=0.2):
        """`way`: to all nodes, or each by its name."""

        def ways(jobs):
            each = way if isinstance(way, dict) else {part.name: way for part in parts_of(jobs)}
            return {name: Transports([transport]) for name, transport in each.items()}

        source, sink = WatchedJob(slurm(), slurm, ways, 0.2, ask_s=ask_s), Sink()
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
    assert watched.ASK_S >= LEAST_PERIOD_S
    phases = [("waits", 599.0), ("waits", 601.0), ("runs", 9999.0), ("ended", 0.0)]
    periods = [watched.period_for(*each) for each in phases]
    assert periods == [watched.ASK_S, watched.SELDOM_S, watched.ASK_S, watched.SELDOM_S]
    monkeypatch.setattr(watched, "ASK_S", 0.1)
    slurm = Slurm(replace(JOB, state="PENDING", nodes=()))
    _, sink = watch(Here(), slurm, ask_s=3600.0)
    slurm.jobs = [JOB]
    sink.wait(live("n1", "n2"))
    assert set(slurm.asked) == {True}  # an answer as young as is allowed


def test_an_answer_that_another_program_got_is_followed_a_period_after_it():
    assert watched.wait_s(15.0, 0.0) == 15.0
    assert watched.wait_s(15.0, 9.0) == 6.0
    assert watched.wait_s(15.0, 1e9) == 15.0 - LEAST_PERIOD_S  # Slurm names the job no more
    assert watched.wait_s(10.0, 10.0) == 1.0
    assert watched.wait_s(15.0, -5.0) == 15.0


def test_a_job_that_ends_ends_its_nodes(watch):
    slurm = Slurm(JOB)
    watched, sink = watch(Here(), slurm)
    sink.wait(live("n1", "n2"))
    slurm.jobs = [replace(JOB, state="TIMEOUT")]
    sink.wait(lambda sink: [sink.last(node).state for node in JOB.nodes] == ["ended", "ended"])
    assert sink.last("n1").detail == "the job has ended: TIMEOUT"
    assert watched.job().has_ended


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_requeued_job_is_followed_where_it_starts_again(watch):
    slurm = Slurm(replace(JOB, nodes=("n1",)))
    _, sink = watch(Here(), slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(JOB, state="PENDING", nodes=())]
    sink.wait(lambda sink: sink.last("n1").state == "left")
    assert sink.last("n1").detail == "the job was requeued"
    slurm.jobs = [replace(JOB, nodes=("n2",))]
    sink.wait(live("n2"))


@pytest.mark.slow
def test_a_suspended_job_is_not_tried_again_and_again(watch):
    slurm, way = Slurm(replace(JOB, nodes=("n1",))), Here()
    watched, sink = watch(way, slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(slurm.jobs[0], state="SUSPENDED")]
    sink.wait(lambda sink: watched.held)
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
    tasks = {task.name: (task.node, task.names, task.gpus) for task in tasks_of(parts, AnyWay())}
    assert tasks == {
        "n1": ("n1", ("14", "sEKNKTV3WPV500"), None),
        "n2": ("n2", ("14", "sEKNKTV3WPV500"), None),
        "n2+1": ("n2", ("15",), None),
        "n3": ("n3", ("15",), 0),
    }
    assert [task.name for task in tasks_of(parts, AnyWay(), ["n3"])] == ["n3"]
    assert [task.name for task in tasks_of(parts, AnyWay(), ["n2"])] == ["n2", "n2+1"]


@pytest.mark.slow
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
    assert second.notes[-1].startswith("Component 14+1 also runs on n1;")
    assert [attempt.name for attempt in watched.attempts("n1+1")] == ["ssh"]


def test_a_header_is_completed_by_what_slurm_knows():
    (task, _) = tasks_of([replace(JOB, start=100.0)], AnyWay())
    own = JobContext("7", step="extern", cpus=1, mem_limit_bytes=5, nodes="x", end=200.0)
    header = Header("n1.inside", "b", 1.0, 1.0, 1.0, "0.1", job=own)
    job = task.complete(header).job
    assert (job.step, job.cpus, job.gpus, job.mem_limit_bytes) == ("", 8, 4, 5)
    assert (job.nodes, job.node_count, job.start, job.end) == ("n[1-2]", 2, 100.0, 200.0)
    assert job.source == "slurm"


def test_a_job_that_grows_and_shrinks_has_its_own_nodes_and_the_rest_goes_on(watch):
    slurm, way = Slurm(replace(JOB, nodes=("n1",))), Here()
    _, sink = watch(way, slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(JOB, nodes=("n1", "n2", "n3"))]
    sink.wait(live("n1", "n2", "n3"))
    slurm.jobs = [replace(JOB, nodes=("n1", "n3"))]
    sink.wait(lambda sink: sink.last("n2").state == "left")
    way.streams["n2"]._child.wait(HANGS_S)  # nothing of it is left
    known = len(sink.of("sample", "n1"))
    sink.wait(lambda sink: len(sink.of("sample", "n1")) > known)
    assert way.opened == ["n1", "n2", "n3"] or way.opened == ["n1", "n3", "n2"]
    assert sink.states("n1").count("live") == 1


def test_a_job_that_started_again_unseen_is_followed_anew_on_the_same_node(watch):
    slurm, way = Slurm(replace(JOB, nodes=("n1",), start=100.0, restarts=0)), Here()
    _, sink = watch(way, slurm)
    sink.wait(live("n1"))
    slurm.jobs = [replace(slurm.jobs[0], start=500.0, restarts=1)]
    sink.wait(lambda sink: sink.states("n1").count("live") == 2)
    assert sink.states("n1").count("left") == 1
    assert "lost" not in sink.states("n1")
    assert way.opened == ["n1", "n1"]


def test_while_a_node_is_tried_again_it_is_still_said_why_it_was_lost(follow):
    way = Here()
    _, sink = follow(way, tasks=[NodeTask("n1", ("7",))])
    sink.wait(live("n1"))
    way._refuse["n1"] = Failure("timed out")
    way.agent("n1").kill()
    sink.wait(lambda sink: way.opened.count("n1") > 3)
    after = sink.of("status", "n1")[sink.states("n1").index("live") + 1 :]
    assert {status.state for status in after} == {"lost"}
    assert all(status.detail.startswith("the connection was closed") for status in after)
    assert len({status.since for status in after}) == 1
    details = {status.detail for status in after}
    assert "the connection was closed; ssh: timed out; trying again in 0 s" in details
    del way._refuse["n1"]
    sink.wait(lambda sink: sink.last("n1").state == "live")
    assert sink.last("n1").detail == ""


def test_as_long_as_slurm_does_not_answer_it_is_silent(watch):
    class Failing(Slurm):
        why = ""

        def __call__(self, soon=False):
            if self.why:
                raise SlurmError(self.why)
            return super().__call__(soon)

    slurm = Failing(replace(JOB, nodes=("n1",)))
    watched, sink = watch(Here(), slurm)
    sink.wait(live("n1"))
    assert watched.silence is None
    slurm.why = "squeue: Unable to contact slurm controller"
    silence = until(lambda: watched.silence)
    assert silence.why == slurm.why
    time.sleep(0.5)
    assert watched.silence == silence  # since its last answer
    assert watched.news() == ""
    slurm.why = ""
    until(lambda: watched.silence is None)
    assert "lost" not in sink.states("n1")
