"""Workers: deadlines, late answers, hung jobs, and how many threads they take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gpumon.collect.nvml.workers import Crew, Worker

LONG_S = 30.0  # an upper bound for what must happen, never waited for when all is well


@pytest.fixture
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    crew = Crew(request.node.name)
    yield crew
    crew.close()


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Callable[[], list[threading.Thread]]:
    """Those of the test's crew that live."""
    name = request.node.name
    return lambda: [each for each in threading.enumerate() if each.name.startswith(name)]


def test_answers_arrive_within_the_round(crew):
    workers = [Worker(crew) for _ in range(5)]
    for turn in range(20):
        crew.begin()
        for n, worker in enumerate(workers):
            assert worker.ask(lambda n=n, turn=turn: (n, turn))
        assert crew.wait(LONG_S)
        assert [worker.take() for worker in workers] == [[(n, turn)] for n in range(5)]


def test_quick_jobs_share_a_thread(crew, monkeypatch):
    monkeypatch.setattr("gpumon.collect.nvml.workers._HEAD_START_S", LONG_S)
    workers = [Worker(crew) for _ in range(5)]
    crew.begin()
    for worker in workers:
        worker.ask(threading.current_thread)
    assert crew.wait(LONG_S)
    assert len({worker.take()[0] for worker in workers}) == 1


def test_slow_jobs_run_side_by_side(crew, threads):
    met = threading.Barrier(5)
    workers = [Worker(crew) for _ in range(5)]
    for _ in range(2):
        crew.begin()
        for worker in workers:
            worker.ask(lambda: met.wait(LONG_S))
        assert crew.wait(LONG_S)
        assert {worker.take()[0] for worker in workers} == {0, 1, 2, 3, 4}
    assert len(threads()) == 5  # kept for the next slow round


def test_a_hung_job_holds_up_only_itself(crew):
    release = threading.Event()
    hung, well = Worker(crew), Worker(crew)
    crew.begin()
    hung.ask(release.wait)
    well.ask(lambda: 1)
    assert not crew.wait(0.05)
    assert well.take() == [1]
    assert hung.take() == []
    assert hung.busy

    crew.begin()  # a round without the hung one does not wait for it
    assert not hung.ask(lambda: 2)
    well.ask(lambda: 3)
    assert crew.wait(LONG_S)
    assert well.take() == [3]
    release.set()


def test_all_jobs_have_begun_when_the_time_is_up(crew):
    release, begun = threading.Event(), threading.Barrier(4)
    workers = [Worker(crew) for _ in range(3)]
    crew.begin()
    for worker in workers:
        worker.ask(lambda: begun.wait(LONG_S) and release.wait())
    assert not crew.wait(0.0)
    begun.wait(LONG_S)
    release.set()


def test_a_job_outside_of_a_round_does_not_wait_for_a_hung_one(crew):
    release, begun = threading.Event(), threading.Event()
    hung, other = Worker(crew), Worker(crew)
    crew.begin()
    hung.ask(release.wait)
    assert not crew.wait(0.01)
    other.ask(begun.set)
    crew.start()
    assert begun.wait(LONG_S)
    release.set()


def test_a_late_answer_is_kept_for_the_next_round(crew):
    release = threading.Event()
    worker, other = Worker(crew), Worker(crew)
    crew.begin()
    worker.ask(lambda: release.wait() and "late")
    assert not crew.wait(0.01)
    crew.begin()
    release.set()
    other.ask(lambda: _until_idle(worker))
    assert crew.wait(LONG_S)
    assert worker.take() == ["late"]
    assert worker.ask(lambda: "new")  # and it takes jobs again
    assert crew.wait(LONG_S)
    assert worker.take() == ["new"]


def test_a_late_answer_does_not_end_the_next_round_early(crew):
    release, begun = threading.Event(), threading.Event()
    late, slow = Worker(crew), Worker(crew)
    crew.begin()
    late.ask(release.wait)
    assert not crew.wait(0.01)
    crew.begin()
    slow.ask(begun.wait)
    release.set()
    _until_idle(late)
    assert not crew.wait(0.05)
    begun.set()
    assert crew.wait(LONG_S)


def test_an_exception_is_an_answer(crew):
    worker = Worker(crew)
    crew.begin()
    worker.ask(lambda: 1 // 0)
    assert crew.wait(LONG_S)
    (answer,) = worker.take()
    assert isinstance(answer, ZeroDivisionError)


def test_close_ends_the_threads_and_never_waits_for_a_hung_one(crew, threads):
    release, begun = threading.Event(), threading.Event()
    hung, well = Worker(crew), Worker(crew)
    crew.begin()
    hung.ask(lambda: begun.set() or release.wait())
    well.ask(lambda: 1)
    assert not crew.wait(0.05)
    assert begun.is_set()
    at_work = threads()
    crew.close()
    assert all(thread.daemon for thread in at_work)
    (late,) = _alive(at_work, but=1)
    release.set()
    late.join(LONG_S)
    assert not late.is_alive()


def _alive(at_work: list[threading.Thread], but: int) -> list[threading.Thread]:
    """Those that live on once all but so many have ended."""
    pause = threading.Event()
    for _ in range(int(LONG_S / 0.001)):
        if sum(thread.is_alive() for thread in at_work) <= but:
            break
        pause.wait(0.001)
    return [thread for thread in at_work if thread.is_alive()]


def _until_idle(worker):
    pause = threading.Event()
    for _ in range(int(LONG_S / 0.001)):
        if not worker.busy:
            return True
        pause.wait(0.001)
    return False
