"""Rollups against the values that they were made of."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.rollup import Rollup

START = 179_520_000
#: as the wire has them: float32 holds each exactly
VALUES = st.integers(0, 400).map(lambda n: n / 4)
#: bucket -> its values, from bucket 0 on
BUCKETS = st.dictionaries(
    st.integers(1, 40), st.lists(VALUES, min_size=1, max_size=4), max_size=12
).flatmap(lambda rest: st.lists(VALUES, min_size=1, max_size=4).map(lambda own: {0: own, **rest}))


def built(buckets):
    rollup = Rollup()
    for index in sorted(buckets):
        rollup.put(START + index, buckets[index])
    return rollup


def assert_holds(rollup, buckets, start=START):
    """Exactly the buckets of these values, and gaps between them."""
    found = dict(enumerate(rollup.buckets(), rollup.first - start))
    assert {index for index, bucket in found.items() if bucket is not None} == buckets.keys()
    for index, values in buckets.items():
        low, mean, high, count = found[index]
        assert (low, high, count) == (min(values), max(values), len(values))
        assert mean == pytest.approx(math.fsum(values) / len(values), rel=1e-6)
        assert low <= mean <= high


@given(BUCKETS)
def test_it_holds_what_was_put(buckets):
    rollup = built(buckets)
    assert_holds(rollup, buckets)
    assert (len(rollup), rollup.last) == (max(buckets) + 1, START + max(buckets))


@given(BUCKETS, st.randoms(use_true_random=False))
def test_parts_may_come_in_any_order(buckets, random):
    """Values of one bucket, too; but none from before the first bucket."""
    parts = [(index, [value]) for index, values in buckets.items() for value in values]
    random.shuffle(parts)
    parts.sort(key=lambda part: part[0] != 0)
    rollup = Rollup()
    for index, values in parts:
        rollup.put(START + index, values)
    assert_holds(rollup, buckets)


@given(BUCKETS, VALUES)
def test_what_lies_before_the_first_bucket_is_left_out(buckets, value):
    rollup = built(buckets)
    rollup.put(START - 1, [value])
    assert_holds(rollup, buckets)


@given(BUCKETS, st.integers(-2, 42), st.integers(-2, 42))
def test_a_slice_is_a_part_of_its_own(buckets, begin, end):
    rollup = built(buckets)
    part = rollup.slice(START + begin, START + end)
    kept = {index: values for index, values in buckets.items() if begin <= index < end}
    assert_holds(part, kept)
    part.put(max(part.last, START) + 50, [1.0])
    assert_holds(rollup, buckets)


@given(BUCKETS, st.lists(st.integers(1, 40), max_size=4))
def test_parts_that_follow_each_other_are_the_whole(buckets, edges):
    rollup, joined = built(buckets), Rollup()
    for begin, end in pairwise(sorted({0, 41, *edges})):
        joined.extend(rollup.slice(START + begin, START + end))
    joined.strip()
    assert joined.buckets() == rollup.buckets()


@given(BUCKETS, BUCKETS)
def test_rollups_that_overlap_are_weighted(buckets, others):
    rollup = built(buckets)
    rollup.extend(built(others))
    both = {index: [*buckets.get(index, []), *others.get(index, [])]
            for index in buckets.keys() | others.keys()}  # fmt: skip
    assert_holds(rollup, both)


@given(BUCKETS, st.sampled_from((2, 3, 6, 10)), st.integers(0, 9))
def test_made_longer_they_are_as_if_made_so(buckets, ratio, shift):
    """Wherever on the coarse grid they begin."""
    rollup = built({index + shift: values for index, values in buckets.items()})
    coarse: dict[int, list[float]] = {}
    for index in sorted(buckets):
        coarse.setdefault((START + index + shift) // ratio, []).extend(buckets[index])
    assert_holds(rollup.coarsened(ratio), coarse, start=0)
    rollup.coarsen(ratio)
    assert_holds(rollup, coarse, start=0)
    assert rollup.step_s == 10.0 * ratio


@given(BUCKETS, st.integers(0, 6), st.integers(0, 6), st.integers(0, 50), VALUES)
def test_padding_adds_gaps_that_later_values_do_not_see(buckets, before, behind, index, value):
    rollup = built(buckets)
    size = before + len(rollup) + behind
    assert rollup.pad(START - before, size)
    assert len(rollup) == size
    assert_holds(rollup, buckets)
    rollup.put(START + index, [value])
    assert_holds(rollup, {**buckets, index: [*buckets.get(index, []), value]})


@given(BUCKETS)
def test_a_series_that_has_ended_does_not_grow_on(buckets):
    rollup = built(buckets)
    assert not rollup.pad(START - 7, len(rollup) + 7)
    assert not rollup.pad(START, len(rollup) + 7)
    assert rollup.pad(START, len(rollup) + 6)
    assert not rollup.pad(START, len(rollup) + 1)


@given(BUCKETS, st.integers(-50, 50), st.integers(0, 60))
def test_padded_gives_exactly_these_buckets(buckets, first, count):
    mean, low, high = built(buckets).padded(START + first, count)
    assert len(mean) == len(low) == len(high) == count
    for at in range(count):
        values = buckets.get(first + at)
        if values is None:
            assert all(math.isnan(each[at]) for each in (mean, low, high))
        else:
            assert (low[at], high[at]) == (min(values), max(values))


def test_counts_that_are_the_same_are_one_object_until_one_of_them_changes():
    one, other = Rollup(), Rollup()
    for index in range(5):
        one.put(index, [1.0, 2.0])
        other.put(index, [7.0, 9.0])
    assert one.count is other.count
    one.put(4, [3.0])
    other.put(5, [7.0])
    assert one.count.tolist() == [2, 2, 2, 2, 3]
    assert other.count.tolist() == [2, 2, 2, 2, 2, 1]


def test_many_counts_belong_to_their_rollup():
    one, other = Rollup(), Rollup()
    for rollup in (one, other):
        for index in range(200):
            rollup.put(index, [1.0])
    one.put(150, [3.0])
    one.put(200, [3.0, 4.0])
    assert one.count.tolist() == [1] * 150 + [2] + [1] * 49 + [2]
    assert other.count.tolist() == [1] * 200
