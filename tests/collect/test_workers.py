"""Workers: deadlines, late answers, hung jobs."""

from __future__ import annotations

import threading

from gpumon.collect.workers import Round, Worker

LONG_S = 30.0  # an upper bound for what must happen, never waited for when all is well


def test_answers_arrive_within_the_round():
    rounds = Round()
    workers = [Worker(f"w{n}", rounds) for n in range(5)]
    for turn in range(20):
        rounds.begin()
        for n, worker in enumerate(workers):
            assert worker.ask(lambda n=n, turn=turn: (n, turn))
        assert rounds.wait(LONG_S)
        assert [worker.take() for worker in workers] == [[(n, turn)] for n in range(5)]


def test_a_hung_job_holds_up_only_itself():
    rounds, release = Round(), threading.Event()
    hung, well = Worker("hung", rounds), Worker("well", rounds)
    rounds.begin()
    hung.ask(release.wait)
    well.ask(lambda: 1)
    assert not rounds.wait(0.05)
    assert well.take() == [1]
    assert hung.take() == []
    assert hung.busy

    rounds.begin()  # a round without the hung one does not wait for it
    assert not hung.ask(lambda: 2)
    well.ask(lambda: 3)
    assert rounds.wait(LONG_S)
    assert well.take() == [3]
    release.set()


def test_a_late_answer_is_kept_for_the_next_round():
    rounds, release = Round(), threading.Event()
    worker, other = Worker("late", rounds), Worker("other", rounds)
    rounds.begin()
    worker.ask(lambda: release.wait() and "late")
    assert not rounds.wait(0.01)
    rounds.begin()
    release.set()
    other.ask(lambda: _until_idle(worker))
    assert rounds.wait(LONG_S)
    assert worker.take() == ["late"]
    assert worker.ask(lambda: "new")  # and it takes jobs again
    assert rounds.wait(LONG_S)
    assert worker.take() == ["new"]


def test_a_late_answer_does_not_end_the_next_round_early():
    rounds, release, begun = Round(), threading.Event(), threading.Event()
    late, slow = Worker("late", rounds), Worker("slow", rounds)
    rounds.begin()
    late.ask(release.wait)
    assert not rounds.wait(0.01)
    rounds.begin()
    slow.ask(begun.wait)
    release.set()
    _until_idle(late)
    assert not rounds.wait(0.05)
    begun.set()
    assert rounds.wait(LONG_S)


def test_an_exception_is_an_answer():
    rounds = Round()
    worker = Worker("fails", rounds)
    rounds.begin()
    worker.ask(lambda: 1 // 0)
    assert rounds.wait(LONG_S)
    (answer,) = worker.take()
    assert isinstance(answer, ZeroDivisionError)


def test_close_ends_the_thread_and_never_waits_for_a_hung_one():
    rounds, release, begun = Round(), threading.Event(), threading.Event()
    idle, hung, unused = (Worker(name, rounds) for name in ("idle", "hung", "unused"))
    rounds.begin()
    idle.ask(lambda: 1)
    assert rounds.wait(LONG_S)
    rounds.begin()
    hung.ask(lambda: begun.set() or release.wait())
    assert begun.wait(LONG_S)
    for worker in (idle, hung, unused):
        worker.close()
    idle._thread.join(LONG_S)
    assert not idle._thread.is_alive()
    assert hung._thread.is_alive()
    assert hung._thread.daemon
    release.set()
    hung._thread.join(LONG_S)
    assert not hung._thread.is_alive()


def _until_idle(worker):
    pause = threading.Event()
    for _ in range(int(LONG_S / 0.001)):
        if not worker.busy:
            return True
        pause.wait(0.001)
    return False
