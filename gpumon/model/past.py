"""What a node said before some moment, in buckets: for a store that begins there."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Union

from gpumon.model.sample import Header, Key, Sample
from gpumon.model.tier import Rows


class PastSeries(NamedTuple):
    """One reading."""

    first_time: float  # of the first sample, epoch s
    rows: Dict[int, Rows]  # seconds per bucket -> all buckets before the moment


#: entity -> key -> field -> series
PastRows = Dict[str, Dict[Key, Dict[str, PastSeries]]]


class Past(NamedTuple):
    """What one run of the agent said."""

    header: Header
    rows: PastRows
    rest: List[Union[Header, Sample]]  # later headers, and events without rows
