"""Series: nothing invented, nothing lost, whatever the zoom."""

import math
import random
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model import rollup
from gpumon.model.rollup import Bucket
from gpumon.model.series import RETENTIONS, Series, retention_of
from tests.support.examples import examples

T0 = 1_795_200_000.0  # a border of every tier up to ten minutes
#: of the screen's time axis
SPANS_S = (60, 300, 600, 1800, 3600, 10_800, 43_200, 86_400, 604_800)
NEAR = {"rel_tol": 1e-6, "abs_tol": 1e-5}  # buckets are kept in single precision

values = st.floats(0, 100, width=32)
#: seconds since T0 and value, in order of time
samples = st.lists(st.tuples(st.floats(0, 190), values), min_size=1, max_size=16).map(sorted)
rarely = st.lists(st.tuples(st.floats(0, 600_000), values), min_size=1, max_size=16).map(sorted)


every_retention = pytest.mark.parametrize(
    "retention", RETENTIONS, ids=lambda each: f"{each.nodes} nodes"
)


def series_of(points, period_s=1.0, retention=RETENTIONS[0]):
    series = Series(period_s, retention.tiers)
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


@every_retention
@given(points=samples, factor=st.sampled_from([1, 2, 3, 6, 15, 60]))
@examples(150)
def test_a_window_holds_every_sample_once(retention, points, factor):
    """Of buckets no shorter than the finest tier's."""
    step = retention.tiers[0][0] * factor
    n = max(200 // step, 1)
    end = T0 + points[-1][0]
    shown = series_of(points, retention=retention).window(end, n * step, n)
    first = math.floor(end / step) - n + 1
    for k, wanted in grouped(points, step).items():
        if k >= first:
            assert same(shown[k - first], wanted)
    in_window = sum(len(group) for k, group in grouped(points, step).items() if k >= first)
    assert sum(bucket.count for bucket in measured(shown)) == in_window


@every_retention
@given(points=rarely, span=st.sampled_from(SPANS_S), n=st.integers(1, 230))
@examples(150)
def test_every_span_is_shown_as_finely_as_it_is_kept(retention, points, span, n):
    """Each bucket against the samples themselves, within the step of the tier that reaches back."""
    end, step = T0 + points[-1][0], span / n
    shown = series_of(points, retention=retention).window(end, span, n)
    kept = next(step_s for step_s, many in retention.tiers if step_s * many >= span)
    groups = grouped(points, kept)
    for k, bucket in enumerate(shown, math.floor(end / step) - n + 1):
        if kept <= step:  # the kept buckets that begin in it
            rows = list(range(math.ceil(k * step / kept), math.ceil((k + 1) * step / kept)))
        else:
            rows = [math.floor((k + 0.5) * step / kept)]
        inside = [point for row in rows for point in groups.get(row, [])]
        if inside:
            assert same(bucket, inside)
        else:
            assert bucket is None or not bucket.count


@given(rarely, st.sampled_from([6000, 12000, 51000]))
@examples(500)
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
@examples(500)
def test_a_bucket_is_the_same_in_every_window(points, span, n, shifts):
    series = series_of(points)
    step = span / n
    seen = {}
    for end in (T0 + points[-1][0] + shift for shift in shifts):
        first = math.floor(end / step) - n + 1
        for k, bucket in enumerate(series.window(end, span, n), first):
            assert seen.setdefault(k, bucket) == bucket


@given(samples, st.integers(1, 15), st.sampled_from([0.26, 1, 3.3, 10, 47]))
@examples(500)
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


@every_retention
@given(points=samples, period_s=st.floats(0.1, 50))
@examples(150)
def test_nothing_is_invented_in_a_gap(retention, points, period_s):
    """A bucket shows a number only within 1.5 periods of a sample before it."""
    series = series_of(points, period_s, retention)
    step = 10 if period_s >= 10 else retention.tiers[0][0]
    n, end = 200 // step, T0 + 199
    instants = [T0 + at for at, _ in points]
    for k, bucket in enumerate(series.window(end, 200, n), math.floor(end / step) - n + 1):
        has_sample = any(k * step <= at < (k + 1) * step for at in instants)
        assert (bucket is not None and bucket.count > 0) == has_sample
        if bucket is not None and not has_sample:
            since = min(k * step - at for at in instants if at < k * step)
            assert since <= 1.5 * period_s + 1e-6


@given(st.randoms(use_true_random=False), samples)
@examples(500)
def test_the_order_of_arrival_does_not_matter(random, points):
    shuffled = points[1:]
    random.shuffle(shuffled)
    window = (T0 + 199, 200, 20)
    ordered = series_of(points)
    mixed = series_of([points[0], *shuffled])
    for one, other in zip(measured(ordered.window(*window)), measured(mixed.window(*window))):
        assert (one.low, one.high, one.count) == (other.low, other.high, other.count)
        assert math.isclose(one.mean, other.mean, **NEAR)
    assert ordered.first_time() == mixed.first_time()


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
@examples(500)
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


@pytest.mark.parametrize("jump_s", [3600, 1_000_000])
def test_after_a_jump_of_the_clock_the_newest_samples_are_shown(jump_s):
    series = series_of((at, 10.0) for at in range(700))
    now = 700 + jump_s
    for at in range(now, now + 30):
        series.add(T0 + at, 90.0)
    shown = series.window(T0 + now + 29, 20, 20)
    assert all(bucket.high == 90 for bucket in shown)
    assert sum(bucket.count for bucket in shown) == 20


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


def test_a_missing_reading_ends_the_line():
    series = series_of((at, 50.0) for at in range(10))
    series.miss()
    assert series.window(T0 + 10, 2, 2) == [Bucket(50, 50, 50, 1), None]
    series.add(T0 + 10.4, 50.0)
    assert series.window(T0 + 11, 2, 2) == [Bucket(50, 50, 50, 1), Bucket(50, 50, 50, 0)]
    series.miss()
    assert series.window(T0 + 11, 2, 2) == [Bucket(50, 50, 50, 1), None]


def test_extremes_within_a_tick_are_kept():
    series = Series()
    series.add(T0, 20.0, low=0.0, high=100.0)
    series.add(T0 + 1, 20.0, low=30.0, high=10.0)  # contradicts the value: ignored
    assert series.window(T0 + 1, 2, 2) == [Bucket(0, 20, 100, 1), Bucket(20, 20, 20, 1)]
    assert series.window(T0 + 1, 604_800, 10)[-1] == Bucket(0, 20, 100, 2)
    assert series.high() == 100


def test_coarse_buckets_are_repeated_over_those_they_cover():
    series = series_of((at, float(at // 10)) for at in range(3000))
    shown = series.window(T0 + 2999, 1500, 300)  # 5 s asked for, 10 s kept so far back
    assert all(bucket is not None and bucket.count == 10 for bucket in shown)
    assert [bucket.mean for bucket in shown] == [150 + k // 2 for k in range(300)]


@given(samples, st.floats(0, 100), st.floats(101, 200))
@examples(500)
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


@every_retention
@given(
    levels=st.lists(st.tuples(st.integers(1, 900), values), min_size=1, max_size=4),
    period_s=st.sampled_from([1, 5, 10, 60]),
)
@examples(20)
def test_what_is_printed_is_exact_at_every_retention(retention, levels, period_s):
    """Mean, extremes and peaks since the start, of samples without a gap, for hours."""
    numbers = [level for count, level in levels for _ in range(count)]
    points = [(at * period_s, value) for at, value in enumerate(numbers)]
    series = series_of(points, period_s, retention)
    length_s = len(points) * period_s
    stats = series.stats(T0, T0 + length_s)
    # where a tier is finer than the period, nobody knows yet how long the last value stood
    loose = 100 * period_s / length_s if period_s == 5 else 1e-4
    assert stats.mean == pytest.approx(sum(numbers) / len(numbers), rel=1e-5, abs=loose)
    assert stats.coverage == pytest.approx(1, abs=max(60, period_s) / length_s)
    assert (series.high(), series.first_time()) == (max(numbers), T0)
    assert (stats.low, stats.high) == pytest.approx((min(numbers), max(numbers)))
    minutes = [
        sum(value for _, value in group) / len(group)
        for k, group in sorted(grouped(points, 60).items())[:-1]
        if len(group) * period_s >= 30
    ]
    assert series.peak60 == (pytest.approx(max(minutes)) if minutes else None)


def test_peak60_is_the_largest_full_minute():
    series = series_of((at, 100.0 if 60 <= at < 120 or at == 200 else 10.0) for at in range(119))
    assert series.peak60 == 10
    series.add(T0 + 119, 100.0)
    series.add(T0 + 120, 10.0)
    assert series.peak60 == pytest.approx(100)
    assert series.high() == 100


def test_a_minute_with_few_samples_is_no_peak():
    series = series_of([(50, 100.0), *((at, 10.0) for at in range(60, 130))])
    assert series.peak60 == 10


def test_minutes_are_told_where_samples_are_a_minute_apart():
    series = series_of([(at, float(at)) for at in range(0, 601, 60)], period_s=60)
    assert series.peak60 == 540


@given(samples, st.integers(0, 16), st.sampled_from(SPANS_S))
@examples(150)
def test_a_thinned_series_is_one_that_was_never_deeper(points, cut, span):
    wanted = RETENTIONS[-1]
    series = series_of(points[:cut])
    for retention in RETENTIONS[1:]:
        series.downsample(retention.tiers)
    for at, value in points[cut:]:
        series.add(T0 + at, value)
    other = series_of(points, retention=wanted)
    assert (series.high(), series.peak60, series.first_time()) == (
        other.high(), other.peak60, other.first_time(),
    )  # fmt: skip
    window = (T0 + points[-1][0], span, 30)
    for one, two in zip(series.window(*window), other.window(*window)):
        assert (one is None) == (two is None)
        if one is not None:
            assert (one.low, one.high, one.count) == (two.low, two.high, two.count)
            assert math.isclose(one.mean, two.mean, **NEAR)


def test_depths_are_for_more_and_more_nodes():
    assert [retention_of(n) for n in (0, 1, 8, 16, 17, 64, 256, 257, 5000)] == [
        *[RETENTIONS[0]] * 4, *[RETENTIONS[1]] * 3, *[RETENTIONS[2]] * 2,
    ]  # fmt: skip


@every_retention
def test_tiers_agree_where_one_ends_and_reach_over_every_window(retention):
    for (step_s, kept), (next_s, next_kept) in pairwise(retention.tiers):
        assert next_s % step_s == 0
        assert step_s * kept < next_s * next_kept
    assert any(step_s == 60 for step_s, _ in retention.tiers)  # Series.peak60
    for span_s in SPANS_S:
        step_s = next(step_s for step_s, kept in retention.tiers if step_s * kept > span_s)
        assert step_s <= max(span_s / 6, 10)


def full_series(retention):
    """Every ring full: some time in steps of the coarsest, then finer and finer."""
    dice, reach = random.Random(1), [step_s * kept for step_s, kept in retention.tiers]
    times = []
    for (step_s, kept), finer in zip(reversed(retention.tiers), [*reversed(reach[:-1]), 0]):
        times += [T0 - k * step_s for k in range(kept + 1, 0, -1) if k * step_s > finer]
    series = Series(1.0, retention.tiers)
    for time in times:
        series.add(time, dice.uniform(0, 100), 0.0, 100.0)
    return series


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "most_bytes"), [(8, 75e3), (17, 19e3), (257, 8.5e3)], ids=str)
def test_a_series_stays_small_for_a_week(nodes, most_bytes):
    """With extremes in every bucket; `benchmarks/store.py` has a whole node."""
    full_series(retention_of(nodes))  # and what all of them share
    tracemalloc.start()
    series = full_series(retention_of(nodes))
    rollup._SHARED.clear()  # those of other series, too
    kept = tracemalloc.take_snapshot()
    tracemalloc.stop()
    assert None not in series.window(T0 - 1, 604_800, 10)
    own = [tracemalloc.Filter(True, path) for path in ("*/gpumon/model/*", __file__)]
    assert 1000 < sum(trace.size for trace in kept.filter_traces(own).traces) < most_bytes


def test_an_empty_series_says_so():
    series = Series()
    assert series.window(T0, 600, 10) == [None] * 10
    assert (series.first_time(), series.high(), series.peak60) == (None,) * 3
    assert series.stats(T0, T0 + 1).coverage == 0


def test_the_agent_side_imports_only_what_is_cheap():
    code = (
        "import sys, gpumon.model.series;"
        "print([m for m in ('dataclasses', 'subprocess', 'asyncio', 'psutil') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_times_far_apart_take_no_memory():
    series = Series(1.0)
    for time in [*range(100, 110), 10**10]:
        series.add(time, 1.0)
    assert series.high() == 1.0
