"""What the probe adds to verdicts on simulated jobs: files and lines, and no alarm."""

import pytest

from tests.simulator import probed
from tests.simulator.draw import make
from tests.simulator.judge import report_of
from tests.simulator.score import score

pytestmark = pytest.mark.slow

NUMBERS = range(3)
#: findings that rest on the probe's readings
RESTING = {"input-bound", "suspected-hang", "straggler", "host-stall"}
KINDS = (
    "training.healthy", "training.staging", "training.input_bound",
    "training.somewhat_input_bound", "training.host_stall", "training.comm_bound",
    "training.idle_middle", "training.idle_end", "mishaps.hang_spinning", "mishaps.hang_waiting",
    "mishaps.straggler", "mishaps.unequal", "mishaps.checkpoint_spikes",
    "variants.long_checkpoints", "variants.eval_on_one", "variants.long_compile",
    "variants.small_model", "variants.rank_zero", "traps.half_fed",
)  # fmt: skip


def judged(kind, number):
    job = make(11, number, kind)
    return job, report_of(job, stream=probed.probed)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_false_is_said(kind):
    for number in NUMBERS:
        job, report = judged(kind, number)
        wrong = [each.text for each in score(job, report).misses
                 if each.kind == "false" and each.what in RESTING]  # fmt: skip
        assert not wrong


def test_a_loader_is_named_with_its_line():
    said = []
    for number in NUMBERS:
        _, report = judged("training.input_bound", number)
        said += [each for each in report.findings if each.id == "input-bound"]
    assert said
    assert all("(train.py:88)" in each.title for each in said)


@pytest.mark.parametrize(
    ("kind", "place"),
    [("mishaps.hang_spinning", "train.py:120 → all_reduce"), ("mishaps.hang_waiting", "data.py:9")],
)
def test_hangs_are_named_with_the_place_of_each_rank(kind, place):
    said = []
    for number in NUMBERS:
        job, report = judged(kind, number)
        if job.ended.state != "RUNNING" and job.view.covers(job.ended.seconds):
            said += [(each.id, each.title) for each in report.findings]
    hangs = [title for id, title in said if id == "suspected-hang"]
    assert hangs
    assert all(place in title for title in hangs)


def test_idle_stretches_are_said_with_where_the_program_was():
    for number in NUMBERS:
        _, report = judged("training.idle_middle", number)
        said = [each.evidence for each in report.findings if each.id == "idle-time"]
        assert all("rank 0 stands in prepare.py:5 → load " in each for each in said)
        assert said or number
