"""The leak rule: found early where memory rises steadily, quiet on all that only looks like it."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.leak import leak
from tests.analysis.build import GIB

LIMIT = 80 * GIB


def series(memory_gib, minutes):
    """Bins of 10 s; `memory_gib` of the minute."""
    return [memory_gib(n / 6) * GIB for n in range(int(minutes * 6))]


def rising(per_hour):
    return lambda minute: 20 + per_hour * minute / 60


@pytest.mark.parametrize("minutes", [51, 90, 240])
def test_a_leak_is_found_after_40_minutes_of_data(minutes):
    found = leak(series(rising(8), minutes), 10, LIMIT)
    assert found is not None
    assert found.per_s * 3600 / GIB == pytest.approx(8, rel=0.05)
    now = 20 + 8 * minutes / 60
    assert found.full_in_s / 3600 == pytest.approx((80 - now) / 8, rel=0.1)
    assert found.z >= 3


def test_what_grows_ever_faster_is_told_apart():
    assert leak(series(lambda m: 6 + 60 * (m / 120) ** 3, 120), 10, LIMIT).speeds_up
    assert not leak(series(rising(8), 120), 10, LIMIT).speeds_up
    assert not leak(series(lambda m: 20 + 8 * m / 60 + 3 * (m % 2), 90), 10, LIMIT).speeds_up


def test_a_leak_under_a_sawtooth_is_found():
    found = leak(series(lambda m: 20 + 8 * m / 60 + 3 * (m % 2), 90), 10, LIMIT)
    assert found is not None
    assert found.per_s * 3600 / GIB == pytest.approx(8, rel=0.1)


@pytest.mark.parametrize(
    ("what", "memory"),
    [
        ("constant", lambda m: 20),
        ("warm-up", lambda m: min(20 + 3 * m, 50)),
        ("garbage collection", lambda m: 20 + 10 * (m % 5) / 5),
        ("epochs", lambda m: 30 + (20 if m % 20 < 2 else 0)),
        ("staircase of doublings", lambda m: 2 ** min(int(m // 15), 5)),
        ("one step", lambda m: 20 if m < 60 else 40),
        ("a cache that fills", lambda m: 50 * (1 - 0.5 ** (m / 8))),
        ("slower and slower", lambda m: 20 + min(m, 60) / 2 + max(m - 60, 0) / 20),
        ("full at last", lambda m: 20 + min(m, 85) / 3),
        ("slow", lambda m: 20 + 0.5 * m / 60),
        ("falling", lambda m: 60 - m / 10),
    ],
)
def test_quiet_on(what, memory):
    assert leak(series(memory, 120), 10, LIMIT) is None


def test_too_little_is_known():
    assert leak(series(rising(8), 49), 10, LIMIT) is None
    assert leak([], 10, LIMIT) is None
    assert leak(series(rising(8), 90), 10, 0) is None
    holes = series(rising(8), 90)
    holes[200:300] = [nan] * 100
    assert leak(holes, 10, LIMIT) is None


def test_the_warm_up_begins_with_the_first_value_and_gaps_are_no_zeros():
    late = [nan] * 500 + series(rising(8), 45)
    assert leak(late, 10, LIMIT) is None
    thin = series(rising(8), 90)
    thin[::2] = [nan] * len(thin[::2])
    assert leak(thin, 10, LIMIT) is not None


@given(st.lists(st.one_of(st.just(nan), st.floats(0, 1e12)), max_size=400), st.floats(1, 1e12))
def test_any_series(values, limit):
    found = leak(values, 10, limit)
    if found is not None:
        assert found.per_s > 0
        assert found.full_in_s >= 0
