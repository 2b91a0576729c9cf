"""A series into which history is loaded shows what one shows that has seen all of it."""

import math

import pytest

from gpumon.model.rollup import Bucket, Rollup
from gpumon.model.series import RETENTIONS, Series

START = 1_795_200_137
SPANS = [(60, 60), (300, 100), (600, 120), (3600, 180), (10_800, 90), (86_400, 144)]


def filled(seconds, tiers=RETENTIONS[0].tiers, period_s=1.0):
    series = Series(period_s, tiers)
    for second in seconds:
        series.add(START + second + 0.25, 50 + 40 * math.sin(second / 97))
    return series


def precede(series, past):
    """As from the recordings of a job whose node is on a screen."""
    for rollup in past._tiers:
        series.load(rollup, past.first_time(), is_past=True)


def same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert (a is None) == (b is None), (a, b)
        if a is not None:
            assert b == pytest.approx(a, rel=1e-5)


@pytest.mark.parametrize("seam", [3, 700, 4321, 9000])
@pytest.mark.parametrize("gap", [0, 1, 40, 2000])
def test_windows_show_the_past_and_the_gap_as_if_all_had_been_seen(seam, gap):
    before, after = range(seam), range(seam + gap, seam + gap + 1500)
    all_along = filled([*before, *after])
    late = filled(after)
    precede(late, filled(before))
    end = START + seam + gap + 1490
    for span_s, count in SPANS:
        if gap == 1 and span_s <= 300:
            continue  # one missed sample is bridged by who saw both of its sides
        same(all_along.window(end, span_s, count), late.window(end, span_s, count))


def test_peaks_and_statistics_begin_with_the_first_sample_of_its_own():
    late, past = Series(), Series()
    for second in range(300):
        past.add(START + second, 90.0)
        late.add(START + 300 + second, 10.0)
    precede(late, past)
    assert (late.high(), late.peak60) == (10.0, 10.0)
    assert late.first_time() == START + 300
    assert late.first_time(past=True) == START
    assert late.stats(START, START + 600).high == 10.0
    assert late.high(past=True) == 90.0


def test_what_comes_afterwards_continues_the_line():
    late, seconds = filled(range(1000, 1100)), range(1100, 4000)
    precede(late, filled(range(900)))
    for second in seconds:
        late.add(START + second + 0.25, 50 + 40 * math.sin(second / 97))
    all_along = filled([*range(900), *range(1000, 4000)])
    for span_s, count in SPANS:
        end = START + 3990
        same(all_along.window(end, span_s, count), late.window(end, span_s, count))


def test_a_past_of_other_tiers_is_fitted_to_those_there_are():
    """Recorded every 10 s, and shown every second; kept for many nodes."""
    past = filled(range(0, 3600, 10), RETENTIONS[0].tiers, 10.0)
    late = filled(range(3600, 3660))
    precede(late, past)
    shown = late.window(START + 3660, 600, 60)
    assert all(bucket is not None for bucket in shown[:-1])
    hour = late.window(START + 3660, 3600, 60)
    assert sum(bucket is None for bucket in hour) <= 1
    wide = filled(range(3600, 3660), RETENTIONS[1].tiers)
    precede(wide, filled(range(3600)))
    assert all(wide.window(START + 3660, 86_400, 12)[-1:])


def test_a_series_without_a_sample_takes_it_as_its_own_past():
    late = Series()
    precede(late, filled(range(600)))
    assert late.first_time() is None
    assert late.first_time(past=True) == START + 0.25
    same(late.window(START + 600, 600, 60)[1:], filled(range(600)).window(START + 600, 600, 60)[1:])


def test_the_past_does_not_change_what_was_there():
    late = filled(range(10_000, 12_000))
    before = late.window(START + 11_990, 600, 60)
    precede(late, filled(range(9000)))
    same(before, late.window(START + 11_990, 600, 60))


@pytest.mark.parametrize("begin", [600, 14_000, 90_000])
@pytest.mark.parametrize("step", [10, 60])
def test_samples_that_follow_loaded_buckets_are_shown_as_if_all_had_been_seen(begin, step):
    """As after a seek: of what was long ago only buckets are known, in several pieces."""
    border = (START + begin) // 600 * 600
    every_s = 1 if begin < 20_000 else 5
    start = START // 600 * 600  # a minute that is known in part stands for all of it
    wave = [(start + at, 50 + 40 * math.sin(at / 97)) for at in range(0, begin + 900, every_s)]
    all_along, sought = Series(every_s), Series(every_s)
    rollup = Rollup(step)
    for time, value in wave:
        all_along.add(time, value)
        if time < border:
            rollup.add(time // step, value, 1, value, value)
    half = rollup.first + len(rollup) // 2
    for piece in (rollup.slice(rollup.first, half), rollup.slice(half, rollup.last + 1)):
        sought.load(piece, start)
    for time, value in wave:
        if time >= border:
            sought.add(time, value)
    end = wave[-1][0]
    assert (sought.high(), sought.first_time()) == (pytest.approx(all_along.high()), start)
    assert sought.peak60 == pytest.approx(all_along.peak60)
    for span_s, count in SPANS:
        if span_s / count >= step or span_s <= end - border:
            found, expected = (each.window(end, span_s, count) for each in (sought, all_along))
            assert [each and each[:3] for each in found] == [
                each and pytest.approx(each[:3], rel=1e-5) for each in expected
            ]
    for since in (start, border - 7200, border - 60, border):
        assert sought.stats(since, end) == pytest.approx(all_along.stats(since, end), rel=1e-3)


def test_loaded_buckets_stand_for_all_that_they_cover():
    series, rollup = Series(), Rollup(10)
    rollup.put(START // 10, [4.0] * 10)
    series.load(rollup, START)
    shown = series.window(START // 10 * 10 + 9, 10, 10)
    assert shown == [Bucket(4, 4, 4, 1)] * 10


def test_buckets_are_repeated_over_those_that_they_cover():
    rollup = Rollup(10)
    rollup.put(5, [1.0, 3.0])
    rollup.put(7, [4.0])
    fine = rollup.expanded(2)
    assert (fine.step_s, fine.first, len(fine)) == (5, 10, 6)
    assert [bucket and bucket.mean for bucket in fine.buckets()] == [2, 2, None, None, 4, 4]
