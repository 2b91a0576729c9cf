"""Tracks: what is taken from sums over the whole run is what bin by bin gives."""

from __future__ import annotations

import random
from array import array
from math import isnan, nan

import pytest

from gpumon.analysis.once import once
from gpumon.analysis.rundata import Track
from tests.analysis.build import track


@pytest.mark.parametrize("gaps", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("width", "step"), [(30, 6), (5, 1), (60, 60), (400, 80)])
def test_windows_are_means_of_their_known_bins(gaps, width, step):
    rng = random.Random(f"{gaps} {width}")
    made = track([None if rng.random() < gaps else rng.choice((0.0, rng.uniform(0, 8e10)))
                  for _ in range(300)])  # fmt: skip
    found = made.windows(width, step, 300, 0.8 * width)
    ends = range(300, width - 1, -step)
    assert len(found) == len(ends)
    for mean, end in zip(found, ends):
        known = [value for value in made.mean[end - width : end] if not isnan(value)]
        if len(known) < 0.8 * width:
            assert isnan(mean)
        else:
            assert mean == pytest.approx(sum(known) / len(known), rel=1e-9)
            assert (mean == 0) == (not any(known))  # "not at all" stays exact


def test_a_window_beyond_the_end_of_a_track_is_not_known():
    short = track([1, 1, 1, 1])
    assert [isnan(mean) for mean in short.windows(2, 2, 8, 1.6)] == [True, True, False, False]
    assert all(map(isnan, Track().windows(2, 2, 8, 1.6)))


def test_figures_of_a_track_with_gaps():
    values = array("f", [1, nan, 3, nan])
    made = Track(values, values, array("f", [2, nan, 9, nan]))
    assert (made.known(), made.known_count(), made.total()) == ([1, 3], 2, (4, 2))
    assert (made.average(), made.peak(), made.share()) == (2, 9, 0.5)
    assert (made.average(1, 3), made.peak(0, 2), made.share(1, 2)) == (3, 2, 0)
    assert (Track().average(), Track().peak(), Track().share()) == (None, None, 0.0)


def test_once_asks_once_for_each_object():
    asked = []

    @once
    def size(of):
        asked.append(of)
        return len(of.mean)

    one, other = track([1]), track([1, 2])
    assert [size(one), size(one), size(other)] == [1, 1, 2]
    assert len(asked) == 2
