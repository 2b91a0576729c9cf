"""An array: which tasks are measured, what Slurm's answers change, and how it ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import NotFoundError
from gpumon.pipeline import array as arrays
from gpumon.pipeline.array import WatchedArray, to_follow, whole
from gpumon.slurm.job import ExitCode, Job
from gpumon.slurm.runner import SlurmError
from gpumon.slurm.states import ENDED_STATES
from tests.support.waiting import until


def task(number, state="RUNNING", nodes=1, start=100.0, **known):
    id = f"4711_{number}" if str(number).isdigit() else f"4711_[{number}]"
    names = tuple(f"n{place}" for place in range(nodes)) if state == "RUNNING" else ()
    return Job(
        raw_id="1", id=id, array_job_id="4711", array_task=str(number), state=state, name="sweep",
        nodes=names, start=start, **known,
    )  # fmt: skip


class Measured:
    """In the place of a pipeline."""

    def __init__(self):
        self.did = []

    def start(self):
        self.did.append("start")

    def evaluate(self):
        self.did.append("evaluate")

    def stop(self):
        self.did.append("stop")


class Tasks:
    """An array whose tasks are set by hand."""

    def __init__(self, *jobs, past=()):
        self.jobs, self.past, self.made, self.asked = list(jobs), past, {}, []
        self.array = WatchedArray("4711", jobs, self.look, self.recall, self.follow, ask_s=0.01)

    def look(self, soon):
        self.asked.append(soon)
        if isinstance(self.jobs, Exception):
            raise self.jobs
        return self.jobs

    def recall(self):
        if isinstance(self.past, Exception):
            raise self.past
        return self.past

    def follow(self, job):
        self.made[job.id] = Measured()
        return self.made[job.id]

    def __enter__(self):
        self.array.start(None)
        return self

    def __exit__(self, *exc):
        self.array.stop()

    def states(self):
        return {job.array_task: job.state for job in self.array.tasks()}


# -- which tasks are measured


def test_the_tasks_that_started_last_are_measured_while_there_is_room(monkeypatch):
    monkeypatch.setattr(arrays, "MAX_STREAMS", 3)
    jobs = [task(n, start=float(n)) for n in range(5)] + [task(9, "PENDING"), task(8, "FAILED")]
    assert [job.array_task for job in to_follow(jobs, ())] == ["4", "3", "2"]
    assert [job.array_task for job in to_follow(jobs, ("4711_0", "4711_1"))] == ["4"]


def test_a_task_with_more_nodes_than_there_is_room_for_is_measured_alone(monkeypatch):
    monkeypatch.setattr(arrays, "MAX_STREAMS", 3)
    jobs = [task(1, nodes=8), task(2, nodes=8)]
    assert len(to_follow(jobs, ())) == 1


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1e9)), max_size=40), st.data())
def test_there_are_never_more_streams_than_said(tasks, data):
    jobs = [task(n, nodes=nodes, start=start) for n, (nodes, start) in enumerate(tasks)]
    followed = data.draw(st.sets(st.sampled_from([job.id for job in jobs]))) if jobs else ()
    chosen = to_follow(jobs, followed)
    assert not {job.id for job in chosen} & set(followed)
    streams = [len(job.nodes) for job in jobs if job.id in followed] + [
        len(job.nodes) for job in chosen
    ]
    assert not chosen or sum(streams) <= arrays.MAX_STREAMS or len(streams) == 1


def test_many_tasks_begin_one_after_the_other(monkeypatch):
    many = [task(n) for n in range(20)]
    with monkeypatch.context() as patch:
        patch.setattr(arrays, "_LOOK_S", 1000.0)  # there is only the first look
        with Tasks(*many) as tasks:
            assert len(tasks.array.followed()) == 8
    with Tasks(*many) as tasks:
        until(lambda: len(tasks.array.followed()) == 20, "all are measured")


# -- Slurm's answers


def test_tasks_that_start_are_measured_and_waiting_ones_are_one():
    with Tasks(task(1), task("2-9%1", "PENDING")) as tasks:
        assert tasks.made["4711_1"].did == ["start", "evaluate"]
        tasks.jobs = [task(1, "COMPLETED"), task(2), task("3-9%1", "PENDING")]
        until(lambda: "4711_2" in tasks.array.followed(), "task 2 is measured")
        assert tasks.states() == {"1": "COMPLETED", "2": "RUNNING", "3-9%1": "PENDING"}
        assert "4711_1" in tasks.array.followed()  # its last samples stay
    assert tasks.made["4711_2"].did[-1] == "stop"


def test_of_the_tasks_that_ended_only_the_last_ones_keep_their_samples(monkeypatch):
    monkeypatch.setattr(arrays, "KEPT_ENDED", 2)
    with Tasks(*(task(n) for n in range(4))) as tasks:
        tasks.jobs = [task(n, "COMPLETED", end=float(n)) for n in range(4)]
        until(lambda: len(tasks.array.followed()) == 2, "two are let go")
        assert set(tasks.array.followed()) == {"4711_2", "4711_3"}
        assert tasks.made["4711_0"].did[-1] == "stop"


def test_a_task_that_the_controller_forgot_ends_as_the_accounting_says():
    with Tasks(task(1), task(2), past=[task(1, "TIMEOUT"), task(7, "COMPLETED")]) as tasks:
        until(lambda: "7" in tasks.states(), "what ended before is known")
        assert tasks.states()["1"] == "RUNNING"  # the controller is believed
        tasks.jobs = [task(2)]
        until(lambda: tasks.states()["1"] == "TIMEOUT", "its end is known")
        with pytest.raises(NotFoundError):
            tasks.array.look("4711_5", soon=False)
        assert tasks.array.look("4711_2", soon=True)[0].state == "RUNNING"
        assert True in tasks.asked


def test_a_task_that_nobody_knows_any_more_does_not_run_on():
    with Tasks(task(1), task(2), past=SlurmError("accounting is off")) as tasks:
        tasks.jobs = [task(2, "COMPLETED")]
        until(lambda: tasks.states() == {"1": "UNKNOWN", "2": "COMPLETED"}, "it is gone")
        assert tasks.array.job().state == "UNKNOWN"
        tasks.jobs = [task(1), task(2, "FAILED")]
        until(lambda: tasks.states()["1"] == "RUNNING", "it is believed when it is back")
        tasks.jobs = [task(2, "FAILED")]
        until(lambda: tasks.array.job().state == "FAILED", "what is known counts")


def test_without_answers_it_says_so_and_goes_on():
    with Tasks(task(1), past=SlurmError("no accounting")) as tasks:
        tasks.jobs = SlurmError("Slurm does not answer")
        silence = until(lambda: tasks.array.silence, "it is said")
        assert silence.why == "Slurm does not answer"
        assert tasks.states() == {"1": "RUNNING"}


def test_the_user_may_have_one_more_task_measured(monkeypatch):
    monkeypatch.setattr(arrays, "MAX_STREAMS", 1)
    with Tasks(task(1, start=200.0), task(2), task(3, "PENDING")) as tasks:
        assert set(tasks.array.followed()) == {"4711_1"}
        assert tasks.array.follow("4711_2") is tasks.array.follow("4711_2")
        assert tasks.array.follow("4711_3") is None
        assert set(tasks.array.followed()) == {"4711_1", "4711_2"}


def test_what_cannot_be_followed_is_said_and_not_tried_again():
    with Tasks(task(1)) as tasks:

        def refuse(job):
            tried.append(job.id)
            raise RuntimeError("can't start new thread")

        tried = []
        tasks.array._follow = refuse
        tasks.jobs = [task(1), task(2)]
        until(lambda: "can't start new thread" in tasks.array.news(), "it is said")
        tasks.jobs = [task(1), task(2), task(3)]
        until(lambda: "3" in tasks.states(), "Slurm is asked on")
        assert tried == ["4711_2"]


def test_tasks_are_bounded(monkeypatch):
    monkeypatch.setattr(arrays, "MAX_TASKS", 10)
    tasks = Tasks(*(task(n, "COMPLETED") for n in range(50)), task(50))
    assert len(tasks.array.tasks()) == 10
    assert tasks.states()["50"] == "RUNNING"


# -- the whole


def test_an_array_has_ended_when_all_tasks_have():
    done = [task(1, "COMPLETED", end=200.0, exit_code=ExitCode(0))]
    failed = task(2, "FAILED", end=300.0, exit_code=ExitCode(3))
    assert whole("4711", [*done, task("3-9", "PENDING")]).state == "PENDING"
    assert whole("4711", [*done, task(2)]).state == "RUNNING"
    assert whole("4711", done).state == "COMPLETED"
    job = whole("4711", [*done, failed])
    assert (job.state, job.exit_code, job.elapsed_s, job.id) == ("FAILED", ExitCode(3), 200, "4711")


@given(st.lists(st.sampled_from(sorted(ENDED_STATES)), min_size=1))
def test_it_completed_only_if_all_tasks_did(states):
    job = whole("4711", [replace(task(1), state=state) for state in states])
    assert (job.state == "COMPLETED") == (set(states) == {"COMPLETED"})
    assert job.has_ended
