"""Data of a node before some moment, in buckets: for a store that begins there."""

from __future__ import annotations

from itertools import compress
from typing import Dict, List, NamedTuple, Union

from gpumon.model.rollup import Rollup
from gpumon.model.sample import Header, Key, Sample

#: seconds of the finest buckets
BACKFILL_S = 10


class BackfillSeries(NamedTuple):
    """One reading.

    `rows` has the buckets before the moment by their seconds: the coarsest all of them, finer ones
    those that a series can keep. Each of them holds something, and each step divides the next.
    """

    first_time: float  # of the first sample, epoch s
    rows: Dict[int, Rollup]

    @property
    def high(self) -> float:
        """The largest value."""
        coarsest = self.rows[max(self.rows)]
        return max(compress(coarsest.high, coarsest.count))


#: entity -> key -> field -> series; of a field that is no series only the coarsest buckets
BackfillRows = Dict[str, Dict[Key, Dict[str, BackfillSeries]]]


class Backfill(NamedTuple):
    """Data of one run of the agent."""

    header: Header
    rows: BackfillRows  # devices by the numbers that they have in this run
    rest: List[Union[Header, Sample]]  # later headers, and events without rows
    last: List[Sample] = []  # the newest readings of what was not read for long, in order of time
    courses: BackfillRows = {}  # of processes; they begin so where they are read again
