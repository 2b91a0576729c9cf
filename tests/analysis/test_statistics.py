"""Statistics against direct computation on random series with gaps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis import statistics
from gpumon.analysis.statistics import (
    Growth,
    MinutePeak,
    Running,
    Statistics,
)
from gpumon.model.series import Series

START = 1_795_000_000
NOTHING = "nothing"  # no sample at all in this second
#: a value, a reading that is missing, or no sample, for each second
seconds = st.lists(
    st.one_of(st.integers(0, 100), st.none(), st.just(NOTHING)), min_size=1, max_size=400
)


@pytest.fixture(autouse=True, scope="module")
def small_batches():
    """So that short series are settled several times, in the middle of everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_BATCH", 7)
        yield


def fed(reading, series):
    for at, value in enumerate(series, START):
        if value is None:
            reading.miss(at)
        elif value != NOTHING:
            reading.add(at, value)
    return reading


def known(series):
    return [value for value in series if value is not None and value != NOTHING]


@given(seconds)
def test_each_second_counts_once_and_a_gap_never(series):
    found = fed(Running(1.0), series).result()
    values = known(series)
    if not values:
        assert found == Statistics(None, None, None, 0.0)
        return
    assert found.covered_s == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert (found.low, found.high) == (min(values), max(values))


waits = st.floats(0.05, 5).filter(lambda wait_s: abs(wait_s - 1.5) > 1e-6)


@given(st.lists(st.tuples(waits, st.floats(0, 1000)), min_size=1, max_size=100))
def test_a_value_weighs_as_long_as_it_stood(steps):
    """Samples of a 1 s rhythm at any distance: up to 1.5 s it holds, else for one second."""
    running = Running(1.0)
    at, weights = 100.0, []
    for wait_s, value in steps:
        running.add(at, value)
        weights.append(wait_s if wait_s <= 1.5 else 1.0)
        at += wait_s
    weights[-1] = 1.0  # nothing came after it
    found = running.result()
    assert found.covered_s == pytest.approx(sum(weights))
    total = math.fsum(weight * value for weight, (_, value) in zip(weights, steps))
    assert found.mean == pytest.approx(total / sum(weights), abs=1e-9)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=400))
def test_the_mean_is_the_one_that_the_screen_shows(values):
    """The store's series over the same samples; where parts are missing it knows them less well."""
    shown = Series(1.0)
    for at, value in enumerate(values, START):
        shown.add(at, value)
    mine = fed(Running(1.0), values).result()
    theirs = shown.stats(START, START + len(values))
    assert mine.mean == pytest.approx(theirs.mean, rel=1e-5)
    assert (mine.low, mine.high) == (theirs.low, theirs.high)


@given(seconds)
def test_the_peak_is_the_highest_mean_of_a_minute_half_measured(series):
    minutes = {}
    for at, value in enumerate(series, START):
        if value is not None and value != NOTHING:
            minutes.setdefault(at // 60, []).append(value)
    means = [sum(values) / len(values) for values in minutes.values() if len(values) >= 30]
    found = fed(MinutePeak(1.0), series).peak60()
    assert found == (pytest.approx(max(means)) if means else None)


@given(st.lists(st.floats(0, 1e6), min_size=0, max_size=50))
def test_a_counter_gives_its_growth_and_never_less_than_nothing(steps):
    growth, at = Growth(), 1e9
    for step in steps:
        growth.add(at, 0.0)
        at += step
    expected = sum(steps[:-1]) if len(steps) > 1 else None
    assert growth.result() == (None if expected is None else pytest.approx(expected, abs=1e-3))


def test_a_counter_that_began_anew_adds_nothing_for_what_was_not_seen():
    growth = Growth()
    for value in (1000, 1500, 20, 50):
        growth.add(value, 0.0)
    assert growth.result() == 530


def test_a_counter_that_grows_beyond_its_limit_is_refused_for_good():
    growth = Growth(100.0)
    for time, value in ((0, 5e6), (2, 5e6 + 380), (4, 5e6 + 700), (1004, 5e6 + 99_000)):
        growth.add(value, float(time))
    assert growth.result() == 99_000
    growth.add(5e6 + 99_500, 1006.0)  # 500 in 2 s, which may have been counted late by 2 s
    assert growth.refused == (500, 2)
    restored = Growth(100.0)
    restored.restore(growth.state())
    for one in (growth, restored):
        one.add(5e6 + 99_600, 1008.0)
        assert (one.result(), one.refused) == (None, (500, 2))
    older = Growth()
    older.restore([5e6, 300.0, True])
    assert older.result() == 300.0


def test_a_clock_that_was_set_back_weighs_one_period():
    running = Running(1.0)
    for at, value in ((100, 1), (101, 1), (50, 4), (51, 4)):
        running.add(at, value)
    assert running.result() == Statistics(2.5, 1, 4, 4.0)


def test_a_slower_rhythm_is_no_gap_for_what_comes_slower():
    running = Running(30.0)
    for at in range(0, 300, 30):
        running.add(at, 7)
    assert running.result() == Statistics(7, 7, 7, 300.0)


def test_asking_twice_gives_the_same():
    running = fed(Running(1.0), [1, 2, 3])
    assert running.result() == running.result() == Statistics(2, 1, 3, 3.0)


def test_memory_does_not_grow_with_the_samples():
    import tracemalloc

    def grown(count):
        running = Running(1.0)
        tracemalloc.start()
        for at in range(count):
            running.add(at, at % 1000 / 10)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert grown(20_000) < 2 * grown(2_000)
