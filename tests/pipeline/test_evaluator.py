"""The evaluator beside the store: what it finds, what it leaves out, when it gives up."""

import itertools
import threading

import pytest

from gpumon import demos
from gpumon.frames.builder import built
from gpumon.frames.framer import Framer
from gpumon.model import clock
from gpumon.model.rollup import STEP_S
from gpumon.model.view import LEFT, Status
from gpumon.pipeline.backlog import WAITING_BYTES
from gpumon.pipeline.evaluator import Evaluator
from gpumon.recording import Recording
from gpumon.slurm.job import Job, Resources
from gpumon.store import Store
from tests.support.waiting import until


def items(seconds):
    return list(itertools.islice(Recording(demos.path("finetune")).items(), seconds + 1))


def feed(evaluator, node, given, *, replayed=False):
    """Headers and samples, with the frames of all but the newest bucket."""
    framer = Framer(replayed=replayed)
    for item in given:
        for frame in framer.add(item):
            evaluator.frame(node, frame)
        if hasattr(item, "devices"):
            evaluator.header(node, item)
        else:
            evaluator.add(node, item)


def test_samples_are_evaluated_beside_the_store():
    others = set(threading.enumerate())  # of tests before
    store = Store()
    evaluator = Evaluator(store)
    feed(evaluator, "gpu07", items(700), replayed=True)
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
    evaluator.start()
    try:
        feed(evaluator, "gpu07", items(700), replayed=True)
        until(lambda: evaluator.backlog.is_read)
        assert len(evaluator.backlog) >= 70
        seeking.clear()
        until(lambda: evaluator.latest)
        assert not len(evaluator.backlog)
    finally:
        evaluator.stop()


def test_what_cannot_wait_is_left_out_and_said():
    """A thread that is held up for long fills no memory."""
    evaluator = Evaluator(Store())
    (header, *samples) = items(12)
    frame = next(built([header, *samples]))
    size = 0
    while not evaluator.backlog.left_out:
        evaluator.frame("gpu07", frame)
        size += 1
    assert size * frame.rollup_count * 100 < WAITING_BYTES
    evaluator.start()
    try:
        latest = until(lambda: evaluator.latest)
    finally:
        evaluator.stop()
    assert "12 samples that arrived too fast" in " ".join(latest.left_out)


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
        feed(evaluator, node, items(700), replayed=True)
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
    feed(evaluator, "gpu07", [header, *samples], replayed=True)
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
    moved = [each._replace(time=each.time + shifted) for each in (header, *samples)]
    feed(evaluator, "gpu07", moved)
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
