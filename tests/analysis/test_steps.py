"""Steps of ranks and of the job, in numbers."""

import pytest

from gpumon.analysis.steps import ranks_of, steps_of
from gpumon.frames.places import Place
from tests.analysis.build import GIB, device, evidence, node, process, program

COUNT = 12


def run(*programs, pids=None):
    on = [process(COUNT, mem=GIB, pid=pid) for pid in pids or [p.facts.pid for p in programs]]
    devices = [device(COUNT, n, busy_percent=50, processes=[each]) for n, each in enumerate(on)]
    return evidence(COUNT, devices, [node(COUNT, programs=list(programs))])


def test_a_rank_in_numbers():
    probed = program(COUNT, rank=3, steps=600, step_us=[2e5] * 6 + [1e5] * 6, data_wait_percent=40,
                     step_p95_us=3e5, workers=2,
                     places={("a.py:1 f", "data"): 3, ("a.py:2", ""): 1},
                     worker_places={("b.py:3", ""): 1})  # fmt: skip
    (rank,) = ranks_of(run(probed))
    assert (rank.name, rank.devices, rank.steps, rank.workers) == ("rank 3", ("gpu01:0",), 600, 2)
    assert rank.steps_per_s == 600 / (COUNT * 10)
    assert rank.step_mean_s == pytest.approx(
        2 / 15
    )  # as many seconds of both, of unlike many steps
    assert rank.step_p95_s == pytest.approx(0.3)
    assert rank.data_wait_percent == 40
    assert rank.places == ((Place("a.py:1 f", "data"), 75.0), (Place("a.py:2"), 25.0))
    assert rank.worker_places == ((Place("b.py:3"), 100.0),)


def test_ranks_are_in_order_and_the_devices_of_a_container_are_not_known():
    probed = [program(COUNT, pid=n, rank=rank) for n, rank in ((5, 1), (6, None), (7, 0))]
    assert [each.rank for each in ranks_of(run(*probed))] == [0, 1, None]
    assert {each.devices for each in ranks_of(run(*probed, pids=[91, 92, 93]))} == {()}


@pytest.mark.parametrize(
    ("ranks", "steps"), [([0, 1, 2], 300), ([0, 0, 0], 900), ([None, None], 600), ([0], 300)]
)
def test_ranks_step_together_and_programs_beside_each_other_do_not(ranks, steps):
    probed = [program(COUNT, pid=n, rank=rank, steps=300) for n, rank in enumerate(ranks, 5)]
    assert steps_of(ranks_of(run(*probed))).steps == steps


def test_the_mean_of_steps():
    probed = [program(COUNT, pid=n, rank=n, step_us=n * 1e5, data_wait_percent=n * 10)
              for n in (5, 7)]  # fmt: skip
    steps = steps_of(ranks_of(run(*probed)))
    assert steps.step_mean_s == pytest.approx(0.6)
    assert steps.data_wait_percent == 60
    assert steps.step_p95_s is None


def test_a_program_without_steps_does_not_count_for_the_wait():
    trained = program(COUNT, pid=5, steps=300, data_wait_percent=90)
    prepared = program(COUNT, pid=6, steps=None, data_wait_percent=0)
    assert steps_of(ranks_of(run(trained, prepared))).data_wait_percent == 90


def test_no_steps_are_no_zero():
    assert steps_of(ranks_of(run(program(COUNT, steps=None)))) is None
    assert steps_of([]) is None
