"""Where a run goes on at another level."""

from itertools import pairwise
from math import nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.phases import between, change_points
from tests.support.examples import examples

LEAST = 90


def noisy(*parts):
    """(values, level) one after another, with noise."""
    random = Random(1)
    return [random.gauss(level, 4) for count, level in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("parts", "cuts"),
    [
        ([(2000, 90)], []),
        ([(1000, 90), (1000, 20)], [1000]),
        ([(3000, 90), (400, 20), (5000, 90)], [3000, 3400]),
        ([(1000, 90), (1000, 85)], []),  # nearly the same
        ([(30, 90), (30, 0)] * 40, []),  # bursts
    ],
)
def test_changes_of_level(parts, cuts):
    found = change_points(noisy(*parts), LEAST)
    assert len(found) == len(cuts)
    assert all(abs(one - other) <= 6 for one, other in zip(found, cuts))


def test_what_is_not_known_changes_nothing():
    values = [90.0] * 500 + [nan] * 500 + [90.0] * 500
    assert change_points(values, LEAST) == []
    assert change_points([nan] * 500, LEAST) == []
    assert change_points([], LEAST) == []


@examples(60)
@given(st.lists(st.floats(0, 1e12) | st.just(nan), max_size=300), st.integers(1, 40))
def test_change_points_lie_apart_and_within(values, least):
    edges = [0, *change_points(values, least), len(values)]
    assert edges == sorted(edges)
    if len(edges) > 2 and all(value == value for value in values):
        size = max(1, least // 15)
        assert all(b - a >= least - size for a, b in pairwise(edges))


def test_parts_between_cuts():
    assert between([10, 20], 5, 20) == [(5, 10), (10, 20)]
    assert between([], 3, 3) == []
