"""The evaluator beside the store: what it finds, what it leaves out, when it gives up."""

import itertools
import threading

import pytest

from gpumon import demos
from gpumon.model import clock
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Event, Sample
from gpumon.model.view import LEFT, Status
from gpumon.pipeline.backlog import MAX_WAITING
from gpumon.pipeline.evaluator import Evaluator
from gpumon.slurm.job import Job, Resources
from gpumon.sources.lines import read_stream
from gpumon.store import Store
from tests.support.waiting import until


def items(seconds):
    return list(itertools.islice(read_stream(demos.path("finetune")), seconds + 1))


def test_samples_are_evaluated_beside_the_store():
    others = set(threading.enumerate())  # of tests before
    store = Store()
    evaluator = Evaluator(store)
    for item in items(700):
        if hasattr(item, "devices"):
            evaluator.header("gpu07", item)
        else:
            evaluator.add("gpu07", item)
    evaluator.wants_report = True
    evaluator.start()
    try:

        def found():  # a busy machine may evaluate before all has arrived
            latest = evaluator.latest
            return latest and "alloc-all-tf" in {each.id for each in latest.findings} and latest

        evaluation = until(found)
        assert store.nodes()[0].devices()
        assert evaluation.report.job.id == "4711"
        assert evaluator.trouble == ""
        evaluator.reset()
        until(lambda: evaluator.latest is None)
    finally:
        evaluator.stop()
    until(
        lambda: (
            not any(
                each.name == "evaluator" for each in threading.enumerate() if each not in others
            )
        )
    )


def test_what_a_replay_seeks_through_is_evaluated_when_it_has_arrived():
    seeking = threading.Event()
    seeking.set()
    evaluator = Evaluator(Store(), replayed=True, is_seeking=seeking.is_set)
    header, *samples = items(700)
    evaluator.header("gpu07", header)
    evaluator.start()
    try:
        for sample in samples:
            evaluator.add("gpu07", sample)
        until(lambda: evaluator.backlog.is_read)
        assert len(evaluator.backlog) == len(samples) + 1
        seeking.clear()
        until(lambda: evaluator.latest)
        assert not len(evaluator.backlog)
    finally:
        evaluator.stop()


@pytest.mark.slow
def test_what_cannot_wait_is_a_gap_and_its_events_are_taken():
    """A thread that is held up for long fills no memory; of a replay more may wait."""
    (header,) = items(0)
    live, replayed = Evaluator(Store()), Evaluator(Store(), replayed=True)
    for evaluator in (live, replayed):
        evaluator.header("gpu07", header)
        for second in range(2 * MAX_WAITING + 1000):
            at = header.time + second
            events = [Event(at, "process-end", pid=second)]
            events += [Event(at, "mark", text="here")] if second == MAX_WAITING + 500 else []
            evaluator.add("gpu07", Sample(at, at, {"host": {"": {"cpu_percent": 5}}}, {}, events))
    assert len(live.backlog) == 2 * MAX_WAITING
    # the header waited, too
    for evaluator, last in ((live, MAX_WAITING - 2), (replayed, 2 * MAX_WAITING + 999)):
        evaluator.start()
        try:
            run = until(lambda evaluator=evaluator: evaluator.latest).run
        finally:
            evaluator.stop()
        assert run.end == header.time + last
        assert [each.text for _, each in run.events if each.kind == "mark"] == ["here"]


def test_more_nodes_than_can_be_evaluated_are_only_shown():
    store = Store()
    evaluator = Evaluator(store)
    header = items(0)[0]
    for number in range(257):
        evaluator.header(f"n{number:03d}", header._replace(node=f"n{number:03d}"))
    assert len(store.nodes()) == 257
    assert "gpumon report" in evaluator.trouble


def test_nothing_is_found_about_a_node_that_is_the_jobs_no_more():
    evaluator = Evaluator(Store())
    for node in ("gpu07", "gpu08"):
        for item in items(700):
            if hasattr(item, "devices"):
                evaluator.header(node, item)
            else:
                evaluator.add(node, item)
    evaluator.start()

    def nodes():
        return {device.node for device in evaluator.latest.run.devices} if evaluator.latest else ()

    try:
        until(lambda: nodes() == {"gpu07", "gpu08"})
        evaluator.status("gpu07", Status(LEFT, 0.0, "no longer part of the job"))
        until(lambda: nodes() == {"gpu08"})
        labels = {label for each in evaluator.latest.findings for label in each.devices}
        assert labels
        assert {label.partition(":")[0] for label in labels} == {"gpu08"}
        evaluator.status("gpu08", Status(LEFT, 0.0, "no longer part of the job"))
        until(lambda: evaluator.latest is None)
    finally:
        evaluator.stop()


def test_what_stands_still_while_the_job_is_suspended_is_not_evaluated():
    (header, *samples) = items(700)
    end = samples[-1].time
    job = Job(state="SUSPENDED", start=header.time, suspensions=((samples[350].time, None),))
    evaluator = Evaluator(Store(), job=lambda: job)
    evaluator.header("gpu07", header)
    for sample in samples:
        evaluator.add("gpu07", sample)
    evaluator.start()
    try:
        run = until(lambda: evaluator.latest).run
        known = run.devices[0].track("busy_percent").known_count() * run.bin_s
        assert 340 <= known <= 370
        assert run.end < end - 300
    finally:
        evaluator.stop()


def test_the_report_counts_the_time_since_slurms_answer():
    (header, *samples) = items(60)
    now = clock.now()
    shifted = now - samples[-1].time
    job = Job(
        raw_id="4711", state="RUNNING", start=now - 6000, elapsed_s=600.0, told_at=now - 5400,
        time_limit_s=36000, allocated=Resources(gpus=4),
    )  # fmt: skip
    evaluator = Evaluator(Store(), job=lambda: job)
    evaluator.header("gpu07", header._replace(time=header.time + shifted))
    for sample in samples:
        evaluator.add("gpu07", sample._replace(time=sample.time + shifted))
    evaluator.wants_report = True
    evaluator.start()
    try:
        report = until(lambda: evaluator.latest).report
        assert report.elapsed_s == pytest.approx(6000, abs=60)
        assert report.gpu_hours == pytest.approx(4 * 6000 / 3600, rel=0.01)
    finally:
        evaluator.stop()


def test_live_findings_are_asked_for_once_a_bucket_and_a_replay_sooner():
    live, replayed = Evaluator(Store()), Evaluator(Store(), replayed=True)
    assert live._period_s >= STEP_S > replayed._period_s


def test_the_more_nodes_the_less_of_a_core_each_evaluation_of_one_may_take():
    evaluator, header = Evaluator(Store()), items(1)[0]
    shares = []
    for count in range(18):
        evaluator.header(f"gpu{count}", header)
        shares.append(evaluator._share)
    assert len(set(shares[:16])) == 1
    assert shares[16] == shares[17] == shares[15] / 2
