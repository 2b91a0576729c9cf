"""Series: nothing invented, nothing lost, whatever the zoom."""

import math
import subprocess
import sys
import tracemalloc
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.model.reading import MIG, TIMEOUT
from gpumon.model.series import TIERS, Bucket, Series

T0 = 1_795_200_000.0  # a border of every tier
NEAR = {"rel_tol": 1e-6, "abs_tol": 1e-5}  # buckets are kept in single precision

values = st.floats(0, 100, width=32)
#: seconds since T0 and value, in order of time
samples = st.lists(st.tuples(st.floats(0, 190), values), min_size=1, max_size=16).map(sorted)
rarely = st.lists(st.tuples(st.floats(0, 600_000), values), min_size=1, max_size=16).map(sorted)


def series_of(points, period_s=1.0):
    series = Series(period_s)
    for at, value in points:
        series.add(T0 + at, value)
    return series


def measured(buckets):
    return [bucket for bucket in buckets if bucket is not None and bucket.count]


def same(bucket, points):
    numbers = [value for _, value in points]
    return (
        bucket.count == len(numbers)
        and math.isclose(bucket.low, min(numbers), **NEAR)
        and math.isclose(bucket.high, max(numbers), **NEAR)
        and math.isclose(bucket.mean, sum(numbers) / len(numbers), **NEAR)
    )


def grouped(points, step):
    groups = defaultdict(list)
    for at, value in points:
        groups[math.floor((T0 + at) / step)].append((at, value))
    return groups


@given(samples, st.sampled_from([1, 2, 3, 7, 15, 60]))
@settings(max_examples=500, deadline=None)
def test_a_window_holds_every_sample_once(points, step):
    n = 200 // step
    end = T0 + points[-1][0]
    shown = series_of(points).window(end, n * step, n)
    first = math.floor(end / step) - n + 1
    for k, wanted in grouped(points, step).items():
        if k >= first:
            assert same(shown[k - first], wanted)
    in_window = sum(len(group) for k, group in grouped(points, step).items() if k >= first)
    assert sum(bucket.count for bucket in measured(shown)) == in_window


@given(rarely, st.sampled_from([6000, 12000, 51000]))
@settings(max_examples=500, deadline=None)
def test_a_week_still_shows_the_one_burst(points, step):
    n = 612_000 // step
    end = T0 + points[-1][0]
    shown = series_of(points).window(end, n * step, n)
    first = math.floor(end / step) - n + 1
    for k, wanted in grouped(points, step).items():
        if k >= first:
            assert same(shown[k - first], wanted)


@given(
    samples,
    st.floats(10, 5000),
    st.integers(1, 40),
    st.lists(st.floats(0, 100), min_size=2, max_size=4),
)
@settings(max_examples=500, deadline=None)
def test_a_bucket_is_the_same_in_every_window(points, span, n, shifts):
    series = series_of(points)
    step = span / n
    seen = {}
    for end in (T0 + points[-1][0] + shift for shift in shifts):
        first = math.floor(end / step) - n + 1
        for k, bucket in enumerate(series.window(end, span, n), first):
            assert seen.setdefault(k, bucket) == bucket


@given(samples, st.integers(1, 15), st.sampled_from([0.26, 1, 3.3, 10, 47]))
@settings(max_examples=500, deadline=None)
def test_a_completed_bucket_never_changes(points, cut, step):
    """Complete: it ends before the tier's bucket that holds the newest sample."""
    n = int(200 / step)
    series = series_of(points[:cut])
    newest = T0 + points[:cut][-1][0]
    first = math.floor(newest / step) - n + 1
    before = dict(enumerate(series.window(newest, n * step, n), first))
    for at, value in points[cut:]:
        series.add(T0 + at, value)
    end = T0 + points[-1][0]
    after = dict(enumerate(series.window(end, n * step, n), math.floor(end / step) - n + 1))
    for k in before.keys() & after.keys():
        if (k + 1) * step <= math.floor(newest):
            assert before[k] == after[k]


@given(samples, st.floats(0.1, 50))
@settings(max_examples=500, deadline=None)
def test_nothing_is_invented_in_a_gap(points, period_s):
    """A bucket of one second shows a number only within 1.5 periods of a sample before it."""
    series = series_of(points, period_s)
    end = T0 + 199
    first = math.floor(end) - 200 + 1
    instants = [T0 + at for at, _ in points]
    for k, bucket in enumerate(series.window(end, 200, 200), first):
        has_sample = any(k <= at < k + 1 for at in instants)
        assert (bucket is not None and bucket.count > 0) == has_sample
        if bucket is not None and not has_sample:
            since = min(k - at for at in instants if at < k)
            assert since <= 1.5 * period_s + 1e-6


@given(st.randoms(use_true_random=False), samples)
@settings(max_examples=500, deadline=None)
def test_the_order_of_arrival_does_not_matter(random, points):
    shuffled = points[1:]
    random.shuffle(shuffled)
    window = (T0 + 199, 200, 20)
    ordered = series_of(points)
    mixed = series_of([points[0], *shuffled])
    for one, other in zip(measured(ordered.window(*window)), measured(mixed.window(*window))):
        assert (one.low, one.high, one.count) == (other.low, other.high, other.count)
        assert math.isclose(one.mean, other.mean, **NEAR)
    assert ordered.last[0] == mixed.last[0]
    assert ordered.first_time == mixed.first_time


@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(allow_nan=True), st.floats(-1e6, 1e6)),
            st.one_of(st.floats(allow_nan=True), values),
            st.one_of(st.none(), st.floats(allow_nan=True)),
        ),
        max_size=30,
    ),
    st.floats(allow_nan=True),
    st.floats(allow_nan=True),
    st.integers(-1, 20),
)
@settings(max_examples=500, deadline=None)
def test_hostile_samples_do_not_corrupt(points, end, span, n):
    series = Series()
    for at, value, extreme in points:
        series.add(T0 + at, value, extreme, extreme)
    for shown in (series.window(end, span, n), series.window(T0, 1000.0, 20)):
        for bucket in measured(shown):
            assert bucket.low <= bucket.mean <= bucket.high
            assert math.isfinite(bucket.low + bucket.high)
    assert len(series.window(end, span, n)) == max(n, 0)
    stats = series.stats(T0 - 1e6, T0 + 1e6)
    assert 0 <= stats.coverage <= 1
    assert stats.mean is None or stats.low <= stats.mean <= stats.high


@pytest.mark.parametrize("jump_s", [-5, -300, -3600, -100_000, 3600, 1_000_000])
def test_after_a_jump_of_the_clock_the_newest_samples_are_shown(jump_s):
    series = series_of((at, 10.0) for at in range(700))
    now = 700 + jump_s
    for at in range(now, now + 30):
        series.add(T0 + at, 90.0)
    shown = series.window(T0 + now + 29, 20, 20)
    assert all(bucket.high == 90 for bucket in shown)
    # the first two of a clock set back by more than the ring holds are taken for stray samples
    assert sum(bucket.count for bucket in shown) >= 18


def test_one_stray_old_sample_clears_nothing():
    series = series_of([*((at, 10.0) for at in range(600)), (-90_000, 99.0), (600, 10.0)])
    shown = series.window(T0 + 600, 600, 600)
    assert all(bucket == Bucket(10, 10, 10, 1) for bucket in shown)


def test_a_1_hz_series_has_no_false_gaps_at_sub_second_buckets():
    jitter = [at + 0.49 * math.sin(at * 7.3) * (1 if at % 2 else 0) for at in range(120)]
    shown = series_of((at, 50.0) for at in jitter).window(T0 + 119.9, 60, 230)
    assert None not in shown


def test_a_5_s_series_is_a_line_and_a_missed_sample_a_gap():
    ticks = [at for at in range(0, 200, 5) if at != 100]
    series = series_of(((at, 50.0) for at in ticks), period_s=5)
    shown = series.window(T0 + 199, 200, 200)
    assert [at for at, bucket in enumerate(shown) if bucket is None] == list(range(96, 105))


def test_the_newest_sample_stands_until_the_next_is_overdue():
    series = series_of((at, 50.0) for at in range(100))
    at_once, overdue = series.window(T0 + 100.4, 10, 20), series.window(T0 + 105, 10, 20)
    assert None not in at_once
    assert at_once[-1] == Bucket(50, 50, 50, 0)
    assert [bucket is None for bucket in overdue[-9:]] == [True] * 9


def test_a_missing_reading_ends_the_line_and_is_remembered():
    series = series_of((at, 50.0) for at in range(10))
    for at in (9.2, 9.4, 9.6):
        series.miss(T0 + at, MIG)
    series.miss(T0 + 9.8, TIMEOUT)
    series.add(T0 + 10.4, 50.0)
    series.miss(T0 + 10.5, TIMEOUT)
    assert [(gap.start - T0, gap.end - T0, gap.missing.reason) for gap in series.gaps] == [
        (pytest.approx(9.2), pytest.approx(9.6), "mig"),
        (pytest.approx(9.8), pytest.approx(9.8), "timeout"),
        (10.5, 10.5, "timeout"),
    ]
    assert series.window(T0 + 13, 4, 4)[-1] is None


def test_extremes_within_a_tick_are_kept():
    series = Series()
    series.add(T0, 20.0, low=0.0, high=100.0)
    series.add(T0 + 1, 20.0, low=30.0, high=10.0)  # contradicts the value: ignored
    assert series.window(T0 + 1, 2, 2) == [Bucket(0, 20, 100, 1), Bucket(20, 20, 20, 1)]
    assert series.window(T0 + 1, 604_800, 10)[-1] == Bucket(0, 20, 100, 2)
    assert series.high == 100


def test_coarse_buckets_are_repeated_over_those_they_cover():
    series = series_of((at, float(at // 10)) for at in range(3000))
    shown = series.window(T0 + 2999, 1500, 300)  # 5 s asked for, 10 s kept so far back
    assert all(bucket is not None and bucket.count == 10 for bucket in shown)
    assert [bucket.mean for bucket in shown] == [150 + k // 2 for k in range(300)]


@given(samples, st.floats(0, 100), st.floats(101, 200))
@settings(max_examples=500, deadline=None)
def test_stats_weight_time_and_tell_the_coverage(points, start, end):
    stats = series_of(points).stats(T0 + start, T0 + end)
    seconds = {k: group for k, group in grouped(points, 1).items()}
    begin = max(start, points[0][0])
    weights = {
        k: min(k + 1, T0 + end) - max(k, T0 + begin)
        for k in seconds
        if min(k + 1, T0 + end) > max(k, T0 + begin)
    }
    covered = sum(weights.values())
    # bridged seconds may add to what the samples cover, and to nothing else
    assert stats.coverage >= covered / (end - start) - 1e-6
    if covered:
        inside = [value for k in weights for _, value in seconds[k]]
        assert stats.low <= min(inside) + 1e-5
        assert stats.high >= max(inside) - 1e-5


def test_stats_over_a_week_use_every_tier():
    half_days = ((at, 100.0 if at % 86_400 < 43_200 else 0.0) for at in range(0, 604_800, 60))
    series = series_of(half_days, period_s=60)
    week = series.stats(T0, T0 + 604_800)
    assert week.mean == pytest.approx(50, abs=0.2)
    assert (week.low, week.high) == (0, 100)
    assert series.stats(T0 - 604_800, T0 + 604_800).coverage == pytest.approx(0.5, abs=0.01)
    assert series.stats(T0 - 100, T0) == (None, None, None, 0.0)


def test_stats_count_a_gap_as_not_covered():
    series = series_of((at, 40.0) for at in range(600) if not 100 <= at < 400)
    assert series.stats(T0, T0 + 600) == pytest.approx((40, 40, 40, 0.5), abs=0.002)


def test_peak60_is_the_largest_full_minute():
    series = series_of((at, 100.0 if 60 <= at < 120 or at == 200 else 10.0) for at in range(119))
    assert series.peak60 == 10
    series.add(T0 + 119, 100.0)
    series.add(T0 + 120, 10.0)
    assert series.peak60 == pytest.approx(100)
    assert series.high == 100


def test_a_minute_with_few_samples_is_no_peak():
    series = series_of([(50, 100.0), *((at, 10.0) for at in range(60, 130))])
    assert series.peak60 == 10


def test_eight_devices_for_a_week_stay_below_10_mb():
    """Every ring full: a week in 600 s steps, then a day, three hours and 15 minutes finer."""
    reach = [step_s * kept for step_s, kept in TIERS]
    times = []
    for (step_s, kept), finer in zip(reversed(TIERS), [*reversed(reach[:-1]), 0]):
        times += [T0 - k * step_s for k in range(kept + 1, 0, -1) if k * step_s > finer]
    tracemalloc.start()
    begun = tracemalloc.get_traced_memory()[0]
    series = Series()
    for time in times:
        series.add(time, 50.0)
    assert None not in series.window(T0 - 1, 604_800, 1008)
    used = tracemalloc.get_traced_memory()[0] - begun
    tracemalloc.stop()
    assert [len(tier._means) for tier in series._tiers] == [kept for _, kept in TIERS]
    assert used * 8 * 14 < 10e6


def test_an_empty_series_says_so():
    series = Series()
    assert series.window(T0, 600, 10) == [None] * 10
    assert (series.last, series.first_time, series.high, series.peak60) == (None,) * 4
    assert series.stats(T0, T0 + 1).coverage == 0


def test_the_agent_side_imports_only_what_is_cheap():
    code = (
        "import sys, gpumon.model.series;"
        "print([m for m in ('dataclasses', 'subprocess', 'asyncio', 'psutil') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
