"""Time in which the job was suspended: it ran not at all, so that nothing was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from gpumon.analysis.rundata import Coverage, Track

#: s; Slurm counts whole seconds, and processes stop and go on some seconds later
_NEAR_S = 15.0


def holes_of(covered: Track, bin_s: float) -> list[float]:
    """Seconds of each stretch between samples that has a bin without any."""
    known = [share == share for share in covered.mean]
    runs = [(is_known, len(list(same))) for is_known, same in groupby(known)]
    return [count * bin_s for is_known, count in runs[1:-1] if not is_known]


def without_suspension(
    coverage: Coverage, holes: Sequence[Sequence[float]], suspended_s: float
) -> Coverage:
    """Its gaps less those in which the job was suspended: the longest of each node.

    Slurm's accounting tells for how long it was suspended in all, but not when.
    """
    gaps, longest_s = coverage.gaps, 0.0
    for own in holes:
        left_s = suspended_s + _NEAR_S
        for hole in sorted(own, reverse=True):
            if hole <= left_s:
                left_s -= hole
                gaps -= 1
            else:
                longest_s = max(longest_s, hole)
    gaps = max(gaps, 0)
    return replace(coverage, gaps=gaps, longest_gap_s=min(longest_s, coverage.longest_gap_s))
