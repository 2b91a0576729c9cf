"""What the probe reports of a run's programs, on the run's grid."""

from collections import Counter

from gpumon.analysis.run import Limits
from gpumon.frames import frame
from gpumon.frames.places import ELSEWHERE, Place, ranked, share
from gpumon.model.sample import Sample
from tests.frames.test_run import header, means, of, started

WAIT = Place("train.py:88 _BaseDataLoaderIter.__next__", "data")
LOSS = Place("train.py:131")
READ = Place("data.py:31 open")
REST = Place("Queue.get", "work")


def probed(at, rows, events=()):
    """What the probe of each PID told: its place, and more."""
    told = {
        pid: {"place": place.text, "waits_for": place.waits_for, **more}
        for pid, (place, more) in rows.items()
    }
    return Sample(1200 + at, 1200 + at, {"program": told}, {}, list(events))


def run(*samples, **more):
    (node,) = of([header(at=1200.0), *samples], **more).nodes
    return node.programs


def test_steps_are_those_seen_and_times_lie_on_the_grid():
    told = {"steps": 100, "step_us": 5e4, "rank": 3}
    (found,) = run(
        probed(0, {7: (LOSS, told)}, [started(1200, 7, command="train")]),
        probed(10, {7: (LOSS, {**told, "steps": 300})}),
        probed(20, {7: (LOSS, {**told, "steps": 300, "step_us": 7e4})}),
    )
    assert (found.steps, found.rank) == (200, 3)
    assert found.stepped == 1210
    assert (found.first, found.last) == (1200, 1220)
    assert means(found.track("step_us")) == [5e4, 5e4, 7e4]
    assert found.facts.command == "train"


def test_where_it_stands_and_since_when():
    (found,) = run(*(probed(at, {7: (LOSS if at > 4 else WAIT, {})}) for at in range(0, 20, 2)))
    assert (found.place, found.since) == (LOSS, 1206)
    assert found.places() == {WAIT: 3, LOSS: 7}


def test_looks_are_counted_by_minute_and_asked_for_by_bins():
    (found,) = run(*(probed(at, {7: (LOSS if at >= 120 else WAIT, {})}) for at in range(0, 180, 2)))
    assert found.places([(0, 12)]) == {WAIT: 60}
    assert found.places([(10, 18)]) == {LOSS: 30}  # of its first minute less than half
    assert found.places([(0, 6), (12, 18)]) == {WAIT: 30, LOSS: 30}
    assert found.places([]) == {}


def test_a_loader_s_workers_count_with_the_process_that_they_load_for():
    workers = [started(1200, pid, ppid=7) for pid in (8, 9)]
    (found,) = run(
        probed(0, {7: (WAIT, {"steps": 1})}, workers),
        *(
            probed(at, {7: (WAIT, {"steps": at}), 8: (READ, {"worker": 0}),
                        9: (REST if at == 4 else READ, {"worker": 1})})
            for at in (2, 4)
        ),
    )  # fmt: skip
    assert found.workers == 2
    assert found.worker_places() == {READ: 3, REST: 1}
    assert found.places() == {WAIT: 3}


def test_a_worker_of_nobody_known_is_no_program():
    assert run(probed(0, {8: (READ, {"worker": 0})}, [started(1200, 8, ppid=7)])) == []


def test_longer_buckets_keep_the_looks():
    samples = [probed(at, {7: (LOSS if at % 4 else WAIT, {})}) for at in range(0, 4000, 2)]
    (found,) = run(*samples, limits=Limits(1, 100))
    assert found.places() == {WAIT: 1000, LOSS: 1000}
    (fine,) = run(*samples)
    assert found.places([(0, 6)]).total() > fine.places([(0, 6)]).total()


def test_a_bucket_names_few_places_and_counts_all():
    samples = [probed(at, {7: (Place(f"a.py:{at}"), {})}) for at in range(1, 41, 2)]
    (found,) = run(*samples)
    looks = found.places()
    assert looks.total() == 20
    assert looks[ELSEWHERE] == 8
    assert ELSEWHERE not in dict(ranked(looks))


def test_so_many_programs_and_no_more(monkeypatch):
    monkeypatch.setattr(frame, "MAX_PROGRAMS", 3)
    assert len(run(probed(0, {pid: (LOSS, {}) for pid in range(1, 9)}))) == 3


def test_a_place_in_words():
    assert WAIT.line == "train.py:88"
    assert WAIT.shown == "train.py:88 → DataLoader.__next__"
    assert LOSS.shown == "train.py:131"
    assert (REST.line, REST.shown) == ("", "Queue.get")
    assert Place("my train.py:8 f").line == "my train.py:8"


def test_shares_are_of_all_looks():
    looks = Counter({WAIT: 6, LOSS: 2, ELSEWHERE: 2})
    assert share(looks, "data") == 0.6
    assert list(ranked(looks)) == [(WAIT, 0.6), (LOSS, 0.2)]
    assert share(Counter(), "data") is None
