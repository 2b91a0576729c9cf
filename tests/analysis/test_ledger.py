"""Whose work a GPU's time is: the job's, another user's, or a wait for a rank of its own."""

import pytest

from gpumon.analysis.known import most_at_once
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.rules.time import _end_of
from gpumon.slurm.job import Job
from tests.analysis.build import START, device, evidence, process

COUNT = 360


def ledger(*processes):
    held = [device(COUNT, busy_percent=90, processes=processes)]
    return ledger_of(evidence(COUNT, held, job=Job(state="COMPLETED", raw_id="4711", id="4711")))


@pytest.mark.parametrize(
    ("own_sm", "others_sm", "worth", "shared_s"),
    [(80, 10, 0.9, 0), (0, 50, 0.0, 3600), (None, 50, 0.9, 0), (None, None, 0.9, 0)],
)
def test_others_work_is_no_work_of_the_job(own_sm, others_sm, worth, shared_s):
    """What the job's own process may have done is its own."""
    other = process(COUNT, sm=others_sm, pid=77, own=False, in_job=False)
    found = ledger(process(COUNT, sm=own_sm), other)
    assert found.worth() == pytest.approx(worth, abs=1e-6)
    assert found.shared_s() == shared_s
    assert found.waste_s() == pytest.approx((3600 - shared_s) * (1 - worth) if worth else 0, abs=1)


def test_ranks_that_spin_for_one_that_rests_did_not_work_until_the_end():
    spins = [300.0] * 60 + [80.0] * 300
    ranks = [
        device(COUNT, n, busy_percent=busy, power_w=power, processes=[process(COUNT, pid=n + 1)])
        for n, (busy, power) in enumerate([(99, spins), ([99] * 60 + [0] * 300, 300.0)])
    ]
    run = evidence(COUNT, ranks, job=Job(state="TIMEOUT", raw_id="4711", id="4711"))
    assert _end_of(run) == ("its other GPUs waited for GPU 1 for the last 50 min", True)


@pytest.mark.parametrize(
    ("lost_s", "used"), [(0, State.UNMEASURED), (10, State.UNMEASURED), (600, State.ALONE)]
)
def test_energy_that_a_gap_hides_makes_no_zero_doubtful(lost_s, used):
    """At most 400 W in the gap; the counter has 20 W more over the hour than the samples."""
    rests = device(COUNT, 0, busy_percent=[99] * 60 + [0] * 300, power_w=60.0, polled=True,
                   processes=[process(COUNT)], facts={"power_limit_default_w": 400.0})  # fmt: skip
    rests.counters["energy_j"] = 80.0 * 3600
    works = device(COUNT, 1, busy_percent=99, power_w=300.0)
    run = evidence(COUNT, [rests, works], job=Job(state="TIMEOUT", raw_id="4711", id="4711"))
    node, span = run.nodes[0], (START, START + 3600.0)
    node.gaps, node.covered_s, node.span = bool(lost_s), 3600.0 - lost_s, span
    assert ledger_of(run).rows[0].states[-1] is used


def test_one_that_begins_when_another_ends_was_not_there_with_it():
    assert most_at_once([]) == 0
    assert most_at_once([(0, 5), (5, 9), (9, 9.5)]) == 1
    assert most_at_once([(0, 5), (4, 9), (4.5, 4.6)]) == 3
