"""Reading the driver's sample buffers from where the last read ended, whatever the clock does.

The driver stamps its samples with the wall clock and is asked for those after a stamp. Once that
clock was set back, no sample is newer than the last one read until it has caught up.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

from gpumon.model.reading import Missing

#: wall against monotonic clock between two reads; slewing moves both, so more was a step
_STEP_US = 100_000
#: the longest of the driver's sample periods (nvml.h): after that there is something new
PERIOD_S = 1.0


#: what the driver gives for one sample: its stamp first
Sample = Tuple[Any, ...]


class Cursor:
    """Which samples of one buffer are new. Times in µs, as the driver stamps them."""

    def __init__(self) -> None:
        self.last_us = 0  # samples up to here have been read
        self.stepped = False  # the clock was set since the last read: what is absent is unknown
        self.elapsed_us = 0  # between the last two reads
        self._wall_us = 0
        self._mono_us = 0
        self._ahead_us = 0  # stamps from now to here are known, or from before the clock was set

    def read(
        self, samples_since: Callable[[int], list[Sample] | Missing], must_come: bool = True
    ) -> list[Sample] | Missing:
        """The new ones of the samples that the driver has since a stamp, in order of time.

        `must_come`: the device is sampled all the time.
        """
        samples = samples_since(self._begin())
        if samples == [] and must_come and self.last_us > 0 and self.covers:
            # did the driver's clock go back?
            samples = samples_since(0)
            if not isinstance(samples, Missing) and not (samples and self._rewind(samples[-1][0])):
                samples = []
        if isinstance(samples, Missing):
            return samples
        if samples and samples[0][0] > self.last_us and not self._ahead_us:
            return samples  # as nearly always: the driver was asked for those after it
        return [sample for sample in samples if self._is_new(sample[0])]

    def _begin(self) -> int:
        """The stamp after which to ask for samples, right before asking."""
        wall_us, mono_us = _now_us()
        self.elapsed_us = mono_us - self._mono_us
        step_us = wall_us - self._wall_us - self.elapsed_us
        self.stepped = self._wall_us > 0 and abs(step_us) > _STEP_US
        # a last time ahead of the clock, as a wrong stamp leaves it, would hide all that comes
        if (self.stepped and step_us < 0) or self.last_us > wall_us + _STEP_US:
            self._ahead_us = max(self._ahead_us, self.last_us)
            self.last_us = min(self.last_us, wall_us - self.elapsed_us)
        elif wall_us >= self._ahead_us:
            self._ahead_us = 0
        self._wall_us, self._mono_us = wall_us, mono_us
        return self.last_us

    @property
    def covers(self) -> bool:
        """Whether a whole sample period has passed since the read before."""
        return self.elapsed_us > PERIOD_S * 1e6

    def _rewind(self, newest_us: int) -> bool:
        """Whether the driver's clock went back though ours did not: `newest_us` of its whole
        buffer is older than what was read before. Goes on with the time since then.
        """
        if newest_us >= self.last_us:
            return False
        self.last_us = newest_us - self.elapsed_us
        self.stepped = True
        return True

    def _is_new(self, stamp_us: int) -> bool:
        return stamp_us > self.last_us and not self._wall_us < stamp_us <= self._ahead_us

    def end(self, samples: list[Sample]) -> None:
        """These samples, in order of time, are read; without any, nothing was new."""
        if samples and not self._ahead_us:
            self.last_us = max(self.last_us, samples[-1][0])
        for stamp_us, *_ in samples if self._ahead_us else ():
            if stamp_us > self._wall_us:
                self._ahead_us = max(self._ahead_us, stamp_us)
            else:
                self.last_us = max(self.last_us, stamp_us)
        wall_us, mono_us = _now_us()
        step_us = wall_us - self._wall_us - (mono_us - self._mono_us)
        if self._wall_us and abs(step_us) > _STEP_US:
            self.stepped = True  # while the driver was asked


def _now_us() -> tuple[int, int]:
    return int(time.time() * 1e6), int(time.monotonic() * 1e6)
