"""Stacks by real agents, over transports of this machine."""

from __future__ import annotations

from gpumon.model.stack import ANY, PROBE
from gpumon.sources.attach import AttachSource, NodeTask
from tests.collect.stacks.programs import standing
from tests.sources.sinks import Sink, by
from tests.sources.test_attach import Here
from tests.support.waiting import until


class Asking:
    """A source that is followed, and what its nodes answered."""

    def __init__(self, *transports, names=("n1", "n2"), job=()):
        tasks = [NodeTask(name, job) for name in names]
        self.source = AttachSource(by(tasks, *transports), 5.0)
        self.got = []
        self.source.tell = lambda name, told: self.got.append((name, told))
        self.sink = Sink()

    def __enter__(self):
        self.source.start(self.sink)
        return self

    def __exit__(self, *_exception):
        self.source.stop()

    def ask(self, name, pid, how=ANY):
        assert until(lambda: self.source.ask_stacks(name, pid, how))
        return until(lambda: [told for node, told in self.got if node == name])


def test_of_one_node_of_several_and_in_no_sample(tmp_path):
    with standing(tmp_path) as child, Asking(Here(), job=("7",)) as asking:
        (told,) = asking.ask("n1", child.pid)
        assert {name for name, _ in asking.got} == {"n1"}
    assert told.stack.main[0].function == "wait_here"
    assert told.more == 0
    events = [event for sample in asking.sink.of("sample", "n1") for event in sample.events]
    assert "stack" not in {event.kind for event in events}
    assert "lost" not in asking.sink.states()


def test_the_ranks_of_the_job_alone(tmp_path):
    of_job = standing(tmp_path, SLURM_JOB_ID="7", RANK="2")
    other = standing(tmp_path, SLURM_JOB_ID="8", RANK="3")
    with of_job, other, Asking(Here(), names=("n1",), job=("7",)) as asking:
        (told,) = asking.ask("n1", 0)
    assert (told.stack.rank, told.more) == (2, 0)


def test_a_node_that_is_not_followed_cannot_be_asked():
    with Asking(Here(), names=("n1",), job=("7",)) as asking:
        assert not asking.source.ask_stacks("n2", 1, PROBE)
