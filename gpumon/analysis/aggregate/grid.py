"""The run's grid: what part of a rollup run data show."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.rundata import Track
from gpumon.model.rollup import Rollup


class Window(NamedTuple):
    """The buckets that are asked for."""

    first: int
    size: int  # how many
    #: tracks may hold the arrays themselves, where they can: good until more is added
    shared: bool = False

    def of(self, rollup: Rollup) -> Track:
        """Those buckets, NaN where nothing was read; a copy unless `shared`."""
        if self.shared and rollup.pad(self.first, self.size):
            return Track(rollup.mean, rollup.low, rollup.high)
        return Track(*rollup.padded(self.first, self.size))
