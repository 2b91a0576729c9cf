"""The driver's own buffer of utilization samples: what happened between two ticks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from operator import sub

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.buffer import LOOK_BACK_US, Buffer
from gpumon.collect.nvml.cursor import Cursor
from gpumon.collect.nvml.query import Query
from gpumon.model.reading import Missing, Reading

NAMES = ("busy_mean_percent", "busy_min_percent", "busy_max_percent", "busy_gap_s")
_ENTRIES = 128
#: nvmlValueType_t -> layout of nvmlSample_t: µs since the epoch, then the value's union
_LAYOUTS = {0: "=Qd", 1: "=QI4x", 2: "=QQ", 3: "=QQ", 4: "=Qq", 5: "=Qi4x", 6: "=QH6x"}
_SIZE = 16

Sample = tuple[int, float]


class Burst:
    """Reads one device's buffer, every time from where the last read ended."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._buffer = Buffer(query, _ENTRIES, _SIZE)
        self._kind = ctypes.c_uint()
        self._cursor = Cursor()
        self._period_us = 0

    def read(self) -> dict[str, Reading]:
        """Mean, least and most of busy since the last read, and the time the buffer had lost."""
        samples = self._cursor.read(self._samples)  # idle devices are sampled too
        if isinstance(samples, Missing):
            return dict.fromkeys(NAMES, samples)
        return self.summary(samples)

    def _samples(self, since_us: int) -> list[Sample] | Missing:
        """In order of time; empty where the driver has none since then."""
        data = self._fetch(since_us)
        if isinstance(data, Missing):
            return [] if self._query.code == nv.NVML_ERROR_NOT_FOUND else data
        layout = _LAYOUTS.get(self._kind.value)
        if layout is None:
            return Missing("error", f"value type {self._kind.value}")
        return sorted(struct.iter_unpack(layout, data))

    def summary(self, samples: list[Sample]) -> dict[str, Reading]:
        """The row of `burst` for samples (µs, percent) in order of time."""
        if self._cursor.last_us == 0 and samples:
            since = samples[-1][0] - LOOK_BACK_US
            samples = [sample for sample in samples if sample[0] > since]
        if not samples:
            return dict.fromkeys(NAMES, Missing("not-sampled"))  # which is not idleness
        stamps, values = zip(*samples)
        gap_s = self._gap_s(stamps)
        self._cursor.end(samples)
        return {
            "busy_mean_percent": sum(values) / len(values),
            "busy_min_percent": min(values),
            "busy_max_percent": max(values),
            "busy_gap_s": gap_s,
        }

    def _gap_s(self, stamps: Sequence[int]) -> float:
        """Time between the last sample read before and the oldest one still held, if lost."""
        if len(stamps) > 1:
            steps = sorted(map(sub, stamps[1:], stamps))
            self._period_us = steps[len(steps) // 2]
        last_us = self._cursor.last_us
        step_us = stamps[0] - last_us
        if self._cursor.stepped:  # stamps from two sides of the step: count instead
            step_us = self._cursor.elapsed_us - len(stamps) * self._period_us
        if last_us == 0 or self._period_us == 0 or step_us <= 1.5 * self._period_us:
            return 0.0
        return (step_us - self._period_us) / 1e6

    def _fetch(self, since_us: int) -> memoryview | Missing:
        return self._buffer.fill(
            _SIZE,
            lambda data: self._query.fill(
                "nvmlDeviceGetSamples",
                nv.NVML_GPU_UTILIZATION_SAMPLES,
                ctypes.c_ulonglong(since_us),
                ctypes.byref(self._kind),
                ctypes.byref(self._buffer.count),
                data,
            ),
        )
