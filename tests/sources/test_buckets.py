"""A reading in buckets of several steps, made of bins that may be longer than all of them."""

from array import array
from math import nan

from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.rollup import Rollup
from gpumon.sources import buckets
from gpumon.sources.buckets import END_S, GRID_S, Buckets

VALUES = st.one_of(st.just(nan), st.integers(0, 100).map(float))
WEEK_S = buckets._MOST_FINE * 10
BINS = st.lists(VALUES, min_size=1, max_size=12).filter(lambda bins: bins[-1] == bins[-1])


def buckets_of(means, first, step_s):
    rollup = Rollup(step_s)
    counts = array("H", [int(mean == mean) for mean in means])
    rollup.join(first, counts, array("f", means))
    return Buckets(rollup, step_s, 1.0, first * step_s, is_series=True)


def values_of(row):
    """Index of a bucket -> its mean."""
    return {row.first + at: mean for at, mean in enumerate(row.mean) if mean == mean}


@given(BINS, st.integers(0, 50), st.sampled_from([10, 20, 40, 640, 1280, 10 * 2**30]), st.data())
def test_every_bucket_has_the_value_of_its_bin(means, first, step_s, data):
    begin, stop = first * step_s, (first + len(means)) * step_s
    end = data.draw(st.integers(begin // END_S, stop // END_S + 3)) * END_S
    backfill = buckets_of(means, first, step_s).before(end)
    if backfill is None:
        begins = {(first + at) * step_s for at, mean in enumerate(means) if mean == mean}
        known = [begin for begin in begins if begin < end]
        assert not known or max(known) + step_s <= end - WEEK_S
        return
    fine = values_of(backfill.rows[10])
    assert fine
    for index, mean in fine.items():
        assert index * 10 < end
        assert mean == means[index * 10 // step_s - first]
    for row in backfill.rows.values():
        assert len(row) <= 70_000


def test_a_bin_longer_than_all_that_is_kept_costs_no_more_than_that():
    backfill = buckets_of([3.0, nan, 7.0], 4, 10 * 2**40).before(6.5 * 10 * 2**40 // 60 * 60)
    assert set(backfill.rows[GRID_S].mean) == {7.0}
    assert len(backfill.rows[10]) < 2000
