"""The driver's own buffer of utilization samples: what happened between two ticks."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Dict, List, Tuple, Union

from gpumon.collect.nvml import NOT_FOUND, Query
from gpumon.collect.nvml_buffer import LOOK_BACK_US, Buffer
from gpumon.model.reading import Missing, Reading

NAMES = ("busy_mean_percent", "busy_min_percent", "busy_max_percent", "busy_gap_s")
_GPU_UTILIZATION_SAMPLES = 1
_ENTRIES = 256
#: nvmlValueType_t -> layout of nvmlSample_t: µs since the epoch, then the value's union
_LAYOUTS = {0: "=Qd", 1: "=QI4x", 2: "=QQ", 3: "=QQ", 4: "=Qq", 5: "=Qi4x", 6: "=QH6x"}
_SIZE = 16

Sample = Tuple[int, float]


class Burst:
    """Reads one device's buffer, every time from where the last read ended."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._buffer = Buffer(query, _ENTRIES, _SIZE)
        self._kind = ctypes.c_uint()
        self._last_us = 0
        self._period_us = 0

    def read(self) -> Dict[str, Reading]:
        """Mean, least and most of busy since the last read, and the time the buffer had lost."""
        if self._last_us > time.time() * 1e6:
            self._last_us = 0  # ahead of the clock, it would hide all samples that come
        data = self._fetch()
        if isinstance(data, Missing):
            if self._query.code == NOT_FOUND:
                data = Missing("not-sampled")  # no news is not idleness
            return dict.fromkeys(NAMES, data)
        layout = _LAYOUTS.get(self._kind.value)
        if layout is None:
            return dict.fromkeys(NAMES, Missing("error", f"value type {self._kind.value}"))
        return self.summary(sorted(struct.iter_unpack(layout, data)))

    def summary(self, samples: List[Sample]) -> Dict[str, Reading]:
        """The row of `burst` for samples (µs, percent) in order of time."""
        if self._last_us == 0 and samples:
            since = samples[-1][0] - LOOK_BACK_US
            samples = [sample for sample in samples if sample[0] > since]
        if not samples:
            return dict.fromkeys(NAMES, Missing("not-sampled"))
        values = [value for _, value in samples]
        gap_s = self._gap_s(samples)
        self._last_us = samples[-1][0]
        return {
            "busy_mean_percent": sum(values) / len(values),
            "busy_min_percent": min(values),
            "busy_max_percent": max(values),
            "busy_gap_s": gap_s,
        }

    def _gap_s(self, samples: List[Sample]) -> float:
        """Time between the last sample read before and the oldest one still held, if lost."""
        if len(samples) > 1:
            steps = sorted(b[0] - a[0] for a, b in zip(samples, samples[1:]))
            self._period_us = steps[len(steps) // 2]
        step_us = samples[0][0] - self._last_us
        if self._last_us == 0 or self._period_us == 0 or step_us <= 1.5 * self._period_us:
            return 0.0
        return (step_us - self._period_us) / 1e6

    def _fetch(self) -> Union[memoryview, Missing]:
        return self._buffer.fill(
            _SIZE,
            lambda data: self._query.call(
                "nvmlDeviceGetSamples",
                _GPU_UTILIZATION_SAMPLES,
                ctypes.c_ulonglong(self._last_us),
                ctypes.byref(self._kind),
                ctypes.byref(self._buffer.count),
                data,
            ),
        )
