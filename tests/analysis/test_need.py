"""The need behind a reservation, where a probe tells of the framework's pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.rundata import PoolData
from tests.analysis.build import GIB, START, device, held, pooled, process, track
from tests.support.examples import examples

MIB = 1 << 20


def jump(level):
    return lambda time: level if time >= 4 else 0.4 * GIB


def tf(used=9.0, level=80000 * MIB, **rest):
    made = held(jump(level), 600, framework="tf", **rest)
    return pooled(made, used * GIB)


def torch(used, reserved, beside=0.5, pid=4312, **rest):
    made = held(lambda time: (reserved + beside) * GIB, 600, framework="torch", pid=pid)
    return pooled(made, used * GIB, reserved * GIB, **rest)


def truth(*processes):
    return mem_truth_of(device(60, mem_used_bytes=79 * GIB, processes=list(processes)))


def gib(value):
    return pytest.approx(value * GIB, rel=1e-3)


def test_tensorflow_needs_its_peak_and_a_context():
    found = truth(tf(9))
    assert (found.mem_truth, found.confidence, found.kind) == ("measured", "high", "tf")
    assert found.need.in_use_bytes == gib(9)
    assert found.need.low_bytes == found.need.proven_bytes == gib(9.6)
    assert found.need.reserved_bytes == gib(80000 / 1024 - 0.6)
    assert found.need.by == "TensorFlow"


def test_jax_needs_its_peak_and_what_lies_beside_its_limit():
    made = held(jump(60.8 * GIB), 600, framework="jax")
    need = truth(pooled(made, 5 * GIB, peak=6.0 * GIB, limit=60.0 * GIB)).need
    assert (need.in_use_bytes, need.beside_bytes) == (gib(6), gib(0.8))
    grown = held(jump(12 * GIB), 600, framework="jax")  # on demand: the limit is far above
    need = truth(pooled(grown, 5 * GIB, peak=6.0 * GIB, limit=60.0 * GIB)).need
    assert (need.in_use_bytes, need.beside_bytes) == (gib(6), gib(0.6))


def test_pytorch_needs_between_its_peak_and_its_reserve():
    need = truth(torch(36, 52, peak=40.0 * GIB)).need
    assert (need.low_bytes, need.high_bytes) == (gib(40.5), gib(52.5))
    assert need.proven_bytes == need.low_bytes
    torn = truth(torch(36, 52, retries=4.0)).need
    assert torn.proven_bytes == gib(52.5)  # its gaps were in the way


def test_figures_that_are_two_seconds_old_add_nothing_beside_the_pool():
    made = held(lambda time: (10.5 if time < 300 else 50.5) * GIB, 600, framework="torch")
    made.mem_bytes.high[29] = 50.5 * GIB  # it rose at the end of that bin
    made.mem_bytes.mean[29] = 18.5 * GIB
    need = truth(pooled(made, 8 * GIB, [10.0 * GIB] * 30 + [50.0 * GIB] * 30)).need
    assert need.beside_bytes == gib(0.5)


def test_processes_that_were_there_together_add_up():
    both = truth(torch(10, 20), torch(5, 8, beside=0.7, pid=4313))
    assert both.need.low_bytes == gib(10.5 + 5.7)
    first, second = torch(10, 20), torch(5, 8, pid=4313)
    first.last, second.first = START + 300, START + 302
    first.pool.last = START + 300
    assert truth(first, second).need.low_bytes == gib(10.5)


def test_a_small_process_without_a_probe_adds_what_it_holds():
    small = process(60, mem=0.4 * GIB, pid=9)
    found = truth(torch(10, 20), small)
    assert (found.mem_truth, found.need.low_bytes) == ("measured", gib(10.9))
    assert found.need.by == "PyTorch"


def test_what_others_hold_is_no_need_of_the_job():
    other = process(600, 0.5 * GIB, pid=9921, in_job=False, own=False)
    assert truth(torch(9, 12), other).need == truth(torch(9, 12)).need


def test_a_large_one_without_a_probe_decides():
    other = held(jump(20 * GIB), 600, framework="torch", pid=9)
    assert truth(torch(10, 20), other).mem_truth == "upper-bound"
    reserving = held(jump(40 * GIB), 600, framework="jax", pid=9)
    assert truth(torch(10, 20), reserving).need is None


@pytest.mark.parametrize("last", [START, START + 560])
def test_a_pool_not_told_of_until_the_end_may_have_grown(last):
    made = torch(10, 20)
    made.pool.last = last
    assert truth(made).mem_truth == "upper-bound"
    made.pool.last = START + 580
    assert truth(torch(10, 20)).mem_truth == "measured"


def test_a_gap_in_the_middle_hides_no_peak():
    made = torch(10, 20, peak=15.0 * GIB)
    used, reserved = (track([at * GIB] * 20 + [None] * 20 + [at * GIB] * 20) for at in (10, 20))
    made.pool = PoolData(made.last, used, reserved, 15.0 * GIB, 20.0 * GIB)
    assert truth(made).need.in_use_bytes == gib(15)


def test_a_cache_in_use_is_no_need():
    server = held(jump(73 * GIB), 600, framework="vllm")
    assert truth(pooled(server, 70 * GIB, 71 * GIB)).mem_truth == "unknown"


def test_much_beside_a_pool_is_somebodys_data():
    found = truth(torch(10, 20, beside=30))
    assert (found.mem_truth, found.need) == ("upper-bound", None)


def test_what_cannot_be_is_not_believed():
    assert truth(torch(10, 20, peak=90.0 * GIB)).need is None
    unheld = pooled(process(60, framework="torch"), 5 * GIB, 6 * GIB)
    unheld.mem_bytes = track([None] * 60)
    assert truth(unheld, torch(1, 2, pid=9)).mem_truth == "upper-bound"


def test_a_process_alone_whose_memory_the_driver_does_not_tell():
    made = torch(10, 20)
    made.pool.used_bytes, made.pool.reserved_bytes = track(10 * GIB, 60), track(78.5 * GIB, 60)
    made.mem_bytes = track([None] * 60)
    assert truth(made).need.beside_bytes == gib(0.5)


SIZES = st.floats(0.1, 30)
PROCESSES = st.lists(
    st.tuples(SIZES, st.floats(1, 2), st.integers(0, 500), st.integers(1, 600), st.booleans()),
    min_size=1, max_size=5,
)  # fmt: skip


@examples(200)
@given(PROCESSES)
def test_what_is_measured_lies_between_any_ones_peak_and_all_of_them(drawn):
    made = []
    for number, (used, kept, since, length, is_told) in enumerate(drawn):
        each = torch(used, used * kept, pid=number)
        each.first, each.last = START + since, START + since + length
        each.pool.last = each.last
        each.pool = each.pool if is_told else None
        made.append(each)
    found = truth(*made)
    peaks = [used for used, *_, is_told in drawn if is_told]
    if found.need is None:
        assert found.mem_truth != "measured"
        return
    assert found.mem_truth == "measured"
    held_ = [used * kept + 0.5 for used, kept, _, _, is_told in drawn if not is_told]
    assert all(each <= 0.61 for each in held_)  # else somebody's need would be unknown
    least, most = max(peaks, default=0.0), sum(peaks) + sum(held_) + 0.5 * len(peaks)
    assert least * GIB <= found.need.low_bytes <= 1.001 * most * GIB
    assert found.need.low_bytes <= found.need.high_bytes
    assert found.need.proven_bytes == found.need.low_bytes
