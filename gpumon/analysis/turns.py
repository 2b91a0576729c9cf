"""Devices that work one after another, and never all at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import nan
from typing import NamedTuple

from gpumon.analysis.phases import between, change_points
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import Span, phase_bins

#: part of the buckets with work, in which a device works that takes a turn; and in which more may
#: work at a time
_TAKES, _MORE = 0.05, 0.02
#: s: at least half of each one's work is in stretches that last so long; shorter pieces of work
#: reach one device at a time by chance
_STRETCH_S = 120.0
#: devices that work at random would work together in this part of the buckets: where it is less,
#: that they do not is chance
_CHANCE = 0.04


class Turns(NamedTuple):
    """By device the buckets of phases with turns; `most` of them worked at a time."""

    bins: list[frozenset[int]]
    most: int


def turns_of(run: RunData, works: Sequence[Sequence[bool]], counts: Sequence[int]) -> Turns | None:
    """`works`: of each device by bucket; `counts`: how many worked. In the whole run, or in a phase
    of it; None where they take no turns.
    """
    bins = [n for n, count in enumerate(counts) if count]
    if len(works) < 2 or not bins:
        return None
    working = Span(bins[0], bins[-1] + 1)
    levels = [float(counts[n] or nan) for n in range(*working)]
    cuts = [working.first + cut for cut in change_points(levels, phase_bins(run))]
    found, most = [set[int]() for _ in works], 0
    for first, last in between(cuts, *working):
        taking, at_a_time = _of_phase(run, works, counts, range(first, last))
        for each in taking:
            found[each] |= {*range(first, last)}
        most = max(most, at_a_time)
    return Turns([frozenset(each) for each in found], most) if most else None


def _of_phase(
    run: RunData, works: Sequence[Sequence[bool]], counts: Sequence[int], phase: range
) -> tuple[list[int], int]:
    """The devices that take turns, and how many work at a time; ([], 0) where they do not."""
    bins = [n for n in phase if counts[n]]
    shares = [sum(each[n] for n in bins) / max(1, len(bins)) for each in works]
    taking = [k for k, share in enumerate(shares) if share >= _TAKES]
    most = next(
        count
        for count in range(len(works) + 1)
        if sum(counts[n] > count for n in bins) <= _MORE * len(bins)
    )
    lasting = all(_lasts([works[k][n] for n in bins], run.bins(_STRETCH_S)) for k in taking)
    if most >= len(taking) or _by_chance(shares, most) < _CHANCE or not lasting:
        return [], 0
    return taking, most


def _by_chance(shares: Sequence[float], most: int) -> float:
    """How often more than `most` would work at a time if they worked at random."""
    odds = [1.0]  # of so many at a time
    for share in shares:
        odds = [
            (odds[n] if n < len(odds) else 0.0) * (1 - share) + (odds[n - 1] if n else 0.0) * share
            for n in range(len(odds) + 1)
        ]
    return sum(odds[most + 1 :])


def _lasts(working: Sequence[bool], least: int) -> bool:
    """At least half of its work is in stretches of so many buckets."""
    lengths = [sum(1 for _ in bins) for works, bins in groupby(working) if works]
    return 2 * sum(each for each in lengths if each >= least) >= sum(lengths)
