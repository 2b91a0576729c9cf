"""Which nodes are followed, as Slurm's answers about a job change."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.view import LEFT, Status
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.sources import attach, watched
from gpumon.sources.attach import AttachSource, NodeRun, NodeTask
from gpumon.sources.watched import WatchedJob, tasks_of
from tests.sources.sinks import AnyWay, Sink
from tests.support.examples import examples

JOB = Job(raw_id="7", id="7", state="RUNNING", nodes=("n1", "n2"), start=100.0, restarts=0)


def places(*answers):
    told, found, again = {}, {}, False
    for answer in answers:
        jobs = answer if isinstance(answer, list) else [answer]
        now = {job.raw_id: job for job in jobs}
        found, again = watched.placed(now, told, found)
        told = now
    return [node for job in found.values() for node in job.nodes], again


@pytest.mark.parametrize(
    ("now", "nodes", "again"),
    [
        (JOB, ["n1", "n2"], False),
        (replace(JOB, state="SUSPENDED"), ["n1", "n2"], False),
        (replace(JOB, nodes=("n2",)), ["n2"], False),  # it shrank
        (replace(JOB, nodes=("n1", "n2", "n3")), ["n1", "n2", "n3"], False),  # it grew
        (replace(JOB, restarts=1, nodes=("n3",)), ["n3"], True),  # unseen, through the queue
        (replace(JOB, start=200.0), ["n1", "n2"], True),  # scontrol did not answer
        (replace(JOB, restarts=None, nodes=("n1",)), ["n1"], False),
        (replace(JOB, state="PENDING", nodes=(), start=None, restarts=1), [], True),
        (replace(JOB, state="REQUEUE_HOLD", nodes=(), start=None, restarts=1), [], True),
        (replace(JOB, state="COMPLETING", nodes=("n2",)), ["n1", "n2"], False),  # n1 is done
        (replace(JOB, state="COMPLETING", start=200.0, restarts=1), [], True),  # being requeued
        (replace(JOB, nodes=()), ["n1", "n2"], False),  # not known
        (replace(JOB, state="FAILED", nodes=()), ["n1", "n2"], False),
        (replace(JOB, state="CONFIGURING", start=200.0), [], True),  # its nodes are booting
    ],
)
def test_what_the_next_answer_means(now, nodes, again):
    assert places(JOB, now) == (nodes, again)
    assert places(JOB, now, now) == (nodes, False)


def test_before_a_job_ran_it_is_nowhere():
    waiting = replace(JOB, state="PENDING", nodes=(), start=None)
    assert places(waiting) == ([], False)
    assert places(waiting, JOB) == (["n1", "n2"], False)
    assert places(replace(JOB, state="COMPLETED")) == ([], False)
    assert places(replace(JOB, state="COMPLETING")) == (["n1", "n2"], False)


def test_components_of_a_het_job_are_placed_each():
    first, second = (replace(JOB, raw_id=id, het_job_id="7", nodes=(n,)) for id, n in ("7a", "8b"))
    left = [first, replace(second, state="COMPLETING", nodes=())]
    assert places([first, second], left) == (["a", "b"], False)
    again = [replace(first, restarts=1, nodes=("c",)), replace(second, restarts=1)]
    assert places([first, second], left, again) == (["c", "b"], True)


# -- following -----------------------------------------------------------------------------------
class Run:
    """A node's run that only notes its life."""

    def __init__(self, task, source, *, is_spread):
        self.is_spread = is_spread
        self.task, self.source = task, source
        self.over = threading.Event()
        self.live = False

    def begin(self):
        self.source.sink.status(self.task.name, Status("connecting", 0.0))

    def leave(self, why):
        self.over.set()

    def end(self, text):
        self.over.set()

    def close(self):
        """Nothing is open."""

    keep = close


@pytest.fixture
def source(monkeypatch):
    """Its nodes' runs are not real."""
    monkeypatch.setattr(attach, "NodeRun", Run)
    return source_of()


def source_of(interval_s=1.0):
    source, sink = AttachSource((), interval_s), Sink()
    source.start(sink)
    source.stopping.set()  # no heartbeats
    return source, sink


def all_of(jobs):
    return tasks_of(jobs, AnyWay())


def followed(source):
    return {name: run.task.node for name, run in source._runs.items() if not run.over.is_set()}


def test_who_stays_keeps_its_stream_and_who_goes_is_left(source):
    source, sink = source
    source.follow(all_of([JOB]))
    stays, goes = (source._runs[node] for node in JOB.nodes)
    source.follow(all_of([replace(JOB, nodes=("n1", "n3"))]))
    assert list(followed(source)) == ["n1", "n3"]
    assert source._runs["n1"] is stays
    assert sink.states("n1") == ["connecting"]
    assert sink.states("n2") == ["connecting", LEFT]
    assert sink.last("n2").detail == "no longer part of the job"
    assert goes.over.is_set()
    source.follow((), "for a reason")
    assert followed(source) == {}
    assert sink.last("n1").detail == "for a reason"


@pytest.mark.parametrize(
    ("count", "interval_s", "are_spread"), [(64, 5.0, False), (65, 5.0, True), (65, 1.0, False)]
)
def test_many_nodes_at_a_long_interval_share_it_out(source, count, interval_s, are_spread):
    source, _ = source_of(interval_s)
    source.follow(all_of([replace(JOB, nodes=tuple(f"n{n}" for n in range(count)))]))
    assert {each.is_spread for each in source._runs.values()} == {are_spread}


@pytest.mark.parametrize("is_spread", [True, False])
def test_the_agent_of_a_node_that_is_one_of_many_is_asked_to_spread(is_spread):
    (task,) = all_of([replace(JOB, nodes=("n1",))])
    run = NodeRun(task, AttachSource((), 5.0), is_spread=is_spread)
    assert ("--spread" in run._flags) == is_spread


def test_another_share_of_the_same_node_is_followed_anew(source):
    source, sink = source
    job = replace(JOB, nodes=("n1",))
    shares = [replace(job, allocations=(NodeAllocation("n1", gpus=n),)) for n in (1, 2)]
    source.follow(all_of(shares[:1]))
    source.follow(all_of([job]))  # Slurm did not tell
    assert sink.states("n1") == ["connecting"]
    source.follow(all_of(shares[1:]))
    assert sink.states("n1") == ["connecting", LEFT, "connecting"]
    assert source._runs["n1"].task.gpus == 2


def test_a_share_is_another_only_where_both_tell():
    known = NodeTask("n1", ("7", "s123"), 2)
    assert known.is_same_share(NodeTask("n1", ("7",)))
    assert known.is_same_share(NodeTask("n1", (), 2))
    assert not known.is_same_share(NodeTask("n1", ("8",), 2))
    assert not known.is_same_share(NodeTask("n2", ("7",), 2))
    assert not known.is_same_share(NodeTask("n1", ("7",), 1))


_NODES = st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), unique=True, min_size=1)
_STEPS = st.tuples(
    st.sampled_from(["RUNNING", "SUSPENDED", "PENDING", "COMPLETING", "COMPLETED", "NODE_FAIL"]),
    _NODES,
    st.booleans(),  # whether it went through the queue unseen
    st.booleans(),  # whether scontrol answered, so that the restarts are known
)


def answers(steps):
    """Slurm's answers about one job whose life goes that way."""
    restarts, queued, over = 0, True, False
    for state, nodes, unseen, is_told in steps:
        is_pending, was_over = state == "PENDING", over
        over = state in ("COMPLETED", "NODE_FAIL")
        restarts += (unseen or is_pending or (was_over and not over)) and not queued
        queued = is_pending
        yield replace(
            JOB,
            state=state,
            nodes=() if is_pending else tuple(nodes),
            start=None if is_pending else 100.0 + restarts,
            restarts=restarts if is_told else None,
        )


@given(st.lists(_STEPS, min_size=1, max_size=12))
@examples(300)
def test_whatever_happens_the_jobs_own_nodes_are_followed(steps):
    """Each once, none that it has left, and none after its end."""
    life = list(answers(steps))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attach, "NodeRun", Run)
        asked = iter(life[1:])
        source = WatchedJob(life[:1], lambda soon: [next(asked)], lambda jobs: AnyWay(), 1.0)
        source.stopping.set()  # no threads: it is asked here
        source.start(Sink())
        check(life[0], source)
        for before, now in pairwise(life):
            streams = dict(source._runs)
            source._ask(soon=True)
            check(now, source)
            if now.state == before.state == "RUNNING" and now.start == before.start:
                stay = set(before.nodes) & set(now.nodes)
                assert all(source._runs[node] is streams[node] for node in stay)


def check(now, source):
    nodes = list(followed(source).values())
    assert len(nodes) == len(set(nodes))
    if now.state in ("RUNNING", "SUSPENDED"):
        assert set(nodes) == set(now.nodes)
    elif now.state in ("PENDING", "COMPLETED", "NODE_FAIL"):
        assert nodes == []
