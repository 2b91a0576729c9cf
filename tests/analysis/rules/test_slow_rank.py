"""Ranks that the others wait for in each step, by the probe's readings."""

import pytest

from gpumon.analysis.rules import balance
from tests.analysis.build import GIB, device, evidence, node, process, program
from tests.analysis.rules.test_gpu_idle import only

COUNT = 90
OWN, REDUCE = ("train.py:57 forward", ""), ("train.py:120 all_reduce", "ranks")


def ranks(waits, steps_us=4e5, data=0, places=None, count=COUNT):
    """Ranks that wait in so many of ten looks for others."""
    probed, devices = [], []
    for n, wait in enumerate(waits):
        of = lambda value, n=n: value[n] if isinstance(value, list) else value  # noqa: E731
        looks = (places or {}).get(n) or {REDUCE: wait, OWN: 10 - wait}
        looks = {place: number for place, number in looks.items() if number}
        probed.append(program(count, pid=4312 + n, rank=n, step_us=of(steps_us), places=looks,
                              data_wait_percent=of(data)))  # fmt: skip
        own = process(count, mem=GIB, pid=4312 + n, framework="torch")
        devices.append(device(count, n, busy_percent=90, processes=[own]))
    return evidence(count, devices, [node(count, programs=probed)])


def test_a_rank_whose_data_come_slowly():
    """The others wait on their GPUs, where no Python shows it."""
    places = {1: {("data.py:31 open", "data"): 6, OWN: 4}}
    found = only(balance.straggler(ranks([0, 0, 0, 0], data=[2, 60, 3, 2], places=places)))
    assert "rank 1 waits for its own data 60 % of the time, the others 2 %" in found.title
    assert "in data.py:31" in found.actions[0].text


@pytest.mark.parametrize(
    "changes",
    [
        {"waits": [4, 4, 3, 4]},
        {"waits": [1, 1, 0, 1]},  # nobody waits for long
        {"waits": [4, 0]},  # of two nobody knows which
        {"waits": [0, 0, 4, 4]},  # by design
        {"waits": [4, 4, 0, 4], "steps_us": [4e5, 4e5, 6e5, 4e5]},  # not together
        {"waits": [4, 4, 0, 4], "count": 50},
        {"waits": [0] * 4, "data": [40, 50, 40, 40]},
    ],
    ids=str,
)
def test_near_misses(changes):
    assert balance.straggler(ranks(**changes)) == []
