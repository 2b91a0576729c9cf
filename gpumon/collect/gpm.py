"""GPM: what the SMs, tensor cores and memory really did (Hopper and later).

A metric is the difference of two samples at least 100 ms apart, so one sample per tick is enough:
the last one is kept. Nothing is ever reset or configured, so that profilers are not disturbed.
"""

from __future__ import annotations

import ctypes
import re
import time
from typing import Any, Callable, Dict, List, Optional

from gpumon.collect.base import Patience
from gpumon.collect.nvml import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    OK,
    REPROBE_S,
    Library,
    Query,
    passing,
)
from gpumon.collect.nvml_structs import GpmMetrics, GpmSupport
from gpumon.model.reading import MEASURING, Missing, Reading

#: nvmlGpmMetricId_t -> reading in percent
PERCENT_METRICS = {
    2: "sm_active_percent",
    3: "sm_occupancy_percent",
    5: "tensor_active_percent",
    10: "dram_active_percent",
    11: "fp64_active_percent",
    12: "fp32_active_percent",
    13: "fp16_active_percent",
    4: "int_active_percent",
}
#: metrics in MiB/s: the links' traffic where the device has no byte counters
RATE_METRICS = {
    20: "pcie_tx_bytes_per_s",
    21: "pcie_rx_bytes_per_s",
    61: "nvlink_tx_bytes_per_s",
    60: "nvlink_rx_bytes_per_s",
}
_METRICS = (*PERCENT_METRICS, *RATE_METRICS)
_MIB = 2**20
#: nvml.h: samples must be at least 100 ms apart
MIN_PERIOD_S = 0.1
#: consecutive errors after which the device is left alone until the next probe
_PATIENCE = 3
_AGAIN_S = 5.0
#: counters are read a moment apart, so that full activity may come out as 100.3 %
_OVERSHOOT_PERCENT = 101.0
_TOO_OLD = Missing("unsupported", "needs Hopper or later")


def admin_only(params: str) -> bool:
    """Whether the text of /proc/driver/nvidia/params keeps profiling counters for root."""
    return re.search(r"^\s*RmProfilingAdminOnly:\s*1\s*$", params, re.M) is not None


class Gpm:
    """The GPM metrics of one device or MIG instance; used by one thread."""

    def __init__(
        self,
        query: Query,
        parent: Any = None,
        gi: Optional[int] = None,
        params: Callable[[], str] = str,
    ) -> None:
        """`parent` and `gi` say where a MIG instance sits, `params` reads the driver's."""
        self.rates: Dict[str, Reading] = {}  # RATE_METRICS of the last read, bytes per second
        self._query = query
        self._parent = parent
        self._gi = gi
        self._params = params
        self._refused: Optional[Missing] = None
        self._probe_at = 0.0
        self._errors = 0
        self._failing = False  # given up for errors that may pass
        self._again = Patience(_AGAIN_S, REPROBE_S)
        self._last_s: Optional[float] = None
        self._new: Any = None
        self._old: Any = None
        self._metrics: Any = None

    def probe(self) -> Optional[Missing]:
        """Ask whether the device has GPM; None, or why not."""
        self._probe_at = time.monotonic() + REPROBE_S
        self._errors, self._last_s = 0, None
        self._refused = self._supported()
        if self._refused is None:
            self._refused = self._allocate()
        self._failing = self._refused is not None and passing(self._refused)
        return self._refused

    @property
    def refused(self) -> bool:
        """Whether the device gives no GPM; it is asked again after a while."""
        return self._refused is not None

    def read(self) -> Dict[str, Reading]:
        """PERCENT_METRICS by name since the last read; {} where that is too short ago."""
        now = time.monotonic()
        if now >= self._probe_at or (self._failing and self._again.due(now)):
            self.probe()
        if self._refused is not None:
            return self._all(self._refused)
        if self._last_s is not None and now - self._last_s < MIN_PERIOD_S:
            return {}
        missing = self._sample()
        if missing is not None:
            return self._all(self._give_up(missing))
        # as the sample is taken at the end of a slow call, so is the time
        before, self._last_s = self._last_s, time.monotonic()
        self._old, self._new = self._new, self._old
        return self._all(MEASURING) if before is None else self._difference()

    def close(self, library: Library) -> None:
        """Give the samples back, to a session that is open; only after the last read."""
        for sample in (self._old, self._new):
            if sample is not None:
                library.call("nvmlGpmSampleFree", sample)
        self._old = self._new = None

    def _supported(self) -> Optional[Missing]:
        support = GpmSupport()
        support.version = 1
        missing = self._query.call("nvmlGpmQueryDeviceSupport", ctypes.byref(support))
        if missing is None:
            return None if support.supported else _TOO_OLD
        if self._query.code == NOT_SUPPORTED and missing.detail == "":
            return _TOO_OLD
        return self._explained(missing)

    def _allocate(self) -> Optional[Missing]:
        if self._metrics is not None:
            return None
        samples: List[Any] = []
        for _ in range(2):
            sample = ctypes.c_void_p()
            missing = self._query.plain("nvmlGpmSampleAlloc", ctypes.byref(sample))
            if missing is not None:
                for other in samples:
                    self._query.library.call("nvmlGpmSampleFree", other)
                return missing
            samples.append(sample)
        self._new, self._old = samples
        self._metrics = GpmMetrics()
        return None

    def _sample(self) -> Optional[Missing]:
        """Fill the older sample; a MIG instance may have to be asked through its parent."""
        missing = self._query.call("nvmlGpmSampleGet", self._old)
        through_parent = self._parent is not None and self._gi is not None
        if through_parent and self._query.code in (NOT_SUPPORTED, INVALID_ARGUMENT):
            return self._query.plain("nvmlGpmMigSampleGet", self._parent, self._gi, self._old)
        return missing

    def _difference(self) -> Dict[str, Reading]:
        metrics = self._metrics
        metrics.version, metrics.count = 1, len(_METRICS)  # the driver may have written there
        metrics.sample1, metrics.sample2 = self._old, self._new
        for i, metric in enumerate(_METRICS):
            metrics.metrics[i].metric_id = metric
        missing = self._query.plain("nvmlGpmMetricsGet", ctypes.byref(metrics))
        if missing is not None:
            return self._all(self._give_up(missing))
        self._errors, self._failing = 0, False
        self._again.reset()
        row: Dict[str, Reading] = {}
        for i, metric in enumerate(_METRICS):
            element = metrics.metrics[i]
            code = int(element.code)
            value: Reading = element.value if code == OK else self._query.library.missing(code)
            if metric in PERCENT_METRICS:
                row[PERCENT_METRICS[metric]] = _full(value)
            else:
                rate = value if isinstance(value, Missing) else value * _MIB
                self.rates[RATE_METRICS[metric]] = rate
        return row

    def _give_up(self, missing: Missing) -> Missing:
        """An error: after a few in a row, or a refusal, stop until the next probe."""
        self._last_s = None
        self._errors += 1
        missing = self._explained(missing)
        if missing.reason == "lost":
            self._probe_at = 0.0  # probed anew once the device is back
        elif self._errors >= _PATIENCE or missing.reason in ("unsupported", "no-permission"):
            self._refused = missing
            self._probe_at = time.monotonic() + REPROBE_S
            self._failing = passing(missing)
        return missing

    def _explained(self, missing: Missing) -> Missing:
        if missing.reason == "no-permission" and admin_only(self._params()):
            return Missing("no-permission", "RmProfilingAdminOnly is 1")
        return missing

    def _all(self, missing: Missing) -> Dict[str, Reading]:
        self.rates = dict.fromkeys(RATE_METRICS.values(), missing)
        return dict.fromkeys(PERCENT_METRICS.values(), missing)


def _full(value: Reading) -> Reading:
    """Readings a little above 100 % are 100 %."""
    if isinstance(value, (int, float)) and 100 < value <= _OVERSHOOT_PERCENT:
        return 100.0
    return value
