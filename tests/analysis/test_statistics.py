"""Statistics against direct computation on random series with gaps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis import statistics
from gpumon.analysis.statistics import (
    Activity,
    Distribution,
    Growth,
    MinutePeak,
    Running,
    Statistics,
    period_of,
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


@given(seconds, st.sampled_from([0, 1, 50, 95, 99.9, 100]))
def test_percentiles_are_those_of_the_sorted_values(series, percent):
    found = fed(Distribution(1.0, step=1), series).percentile(percent)
    values = sorted(known(series))
    if not values:
        assert found is None
        return
    # the least value that at least so many per cent of all do not exceed
    assert found == next(
        value for n, value in enumerate(values, 1) if n >= len(values) * percent / 100 - 1e-6
    )


#: seconds to the next sample; not so near to 1.5 that rounding decides
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


@given(seconds)
def test_the_idle_tail_is_what_is_known_up_to_the_end(series):
    activity = Activity(1.0)
    for at, value in enumerate(series, START):
        if value is None:
            activity.miss(at)
        elif value != NOTHING:
            activity.add(at, value > 0)
    idle = 0
    for value in reversed(series):
        if value != 0:
            break
        idle += 1
    end = START + len(series) - 1
    found = activity.idle_tail_s(end)
    if series[-1] is None or (series[-1] == NOTHING and series[-2:-1] in ([None], [NOTHING], [])):
        assert found is None  # nobody knows
    elif series[-1] != NOTHING:
        assert found == max(idle - 1, 0)  # from the first idle sample to the last
    assert activity.share.result().covered_s == len(known(series))


@given(st.lists(st.floats(0, 1e6), min_size=0, max_size=50))
def test_a_counter_gives_its_growth_and_never_less_than_nothing(steps):
    growth, at = Growth(), 1e9
    for step in steps:
        growth.add(at)
        at += step
    expected = sum(steps[:-1]) if len(steps) > 1 else None
    assert growth.result() == (None if expected is None else pytest.approx(expected, abs=1e-3))


def test_a_counter_that_began_anew_adds_nothing_for_what_was_not_seen():
    growth = Growth()
    for value in (1000, 1500, 20, 50):
        growth.add(value)
    assert growth.result() == 530


def test_a_clock_that_was_set_back_weighs_one_period():
    running = Running(1.0)
    for at, value in ((100, 1), (101, 1), (50, 4), (51, 4)):
        running.add(at, value)
    assert running.result() == Statistics(2.5, 1, 4, 4.0)


def test_a_slower_rhythm_is_no_gap_for_what_comes_slower():
    assert (period_of("device", "busy_percent", 1.0), period_of("disk", "used_bytes", 1.0)) == (
        1,
        30,
    )
    assert period_of("device", "temperature_c", 2.0) == 6  # every third tick: 5 s are not reached
    running = Running(30.0)
    for at in range(0, 300, 30):
        running.add(at, 7)
    assert running.result() == Statistics(7, 7, 7, 300.0)


def test_asking_twice_gives_the_same():
    running = fed(Distribution(1.0), [1, 2, 3])
    assert running.result() == running.result() == Statistics(2, 1, 3, 3.0)
    assert running.percentile(50) == running.percentile(50) == 2


def test_memory_does_not_grow_with_the_samples():
    import tracemalloc

    def grown(count):
        distribution = Distribution(1.0)
        tracemalloc.start()
        for at in range(count):
            distribution.add(at, at % 1000 / 10)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert grown(20_000) < 2 * grown(2_000)
