"""What a node said before some moment, in buckets: for a store that begins there."""

from __future__ import annotations

from itertools import compress
from typing import Dict, List, NamedTuple, Union

from gpumon.model.sample import Header, Key, Sample
from gpumon.model.tier import Rows


class PastSeries(NamedTuple):
    """One reading.

    `rows` has the buckets before the moment by their seconds: the coarsest all of them, finer ones
    those that a series can keep. Each of them holds something, and each step divides the next.
    """

    first_time: float  # of the first sample, epoch s
    rows: Dict[int, Rows]

    @property
    def high(self) -> float:
        """The largest value."""
        rows = self.rows[max(self.rows)]
        return max(compress(rows.highs, rows.counts))


#: entity -> key -> field -> series; of a field that is no series only the coarsest buckets
PastRows = Dict[str, Dict[Key, Dict[str, PastSeries]]]


class Past(NamedTuple):
    """What one run of the agent said."""

    header: Header
    rows: PastRows  # devices by the numbers that they have in this run
    rest: List[Union[Header, Sample]]  # later headers, and events without rows
    last: List[Sample] = []  # the newest readings of what was not read for long, in order of time
