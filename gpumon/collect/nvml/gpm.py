"""GPM: what the SMs, tensor cores and memory really did (Hopper and later).

A metric is the difference of two samples at least 100 ms apart, so one sample per tick is enough:
the last one is kept. Nothing is ever reset or configured, so that profilers are not disturbed.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any, Callable

from gpumon.collect.base import Backoff
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.library import Library
from gpumon.collect.nvml.query import REPROBE_S, Query, passing, plain
from gpumon.model.reading import MEASURING, Missing, Reading

#: metric -> reading in percent
PERCENT_METRICS = {
    nv.NVML_GPM_METRIC_SM_UTIL: "sm_active_percent",
    nv.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_percent",
    nv.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_percent",
    nv.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_percent",
    nv.NVML_GPM_METRIC_FP64_UTIL: "fp64_active_percent",
    nv.NVML_GPM_METRIC_FP32_UTIL: "fp32_active_percent",
    nv.NVML_GPM_METRIC_FP16_UTIL: "fp16_active_percent",
    nv.NVML_GPM_METRIC_INTEGER_UTIL: "int_active_percent",
}
#: metrics in MiB/s: the links' traffic where the device has no byte counters
RATE_METRICS = {
    nv.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "pcie_tx_bytes_per_s",
    nv.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "pcie_rx_bytes_per_s",
    nv.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: "nvlink_tx_bytes_per_s",
    nv.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: "nvlink_rx_bytes_per_s",
}
_Metric = plain(nv.c_nvmlGpmMetric_t)
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
        gi: int | None = None,
        params: Callable[[], str] = str,
    ) -> None:
        """`parent` and `gi`: where a MIG instance is; `params` reads the driver's parameters."""
        self.rates: dict[str, Reading] = {}  # RATE_METRICS of the last read, bytes per second
        self.refused: Missing | None = (
            None  # why the device gives no GPM; asked again after a while
        )
        self._query = query
        self._parent = parent
        self._gi = gi
        self._params = params
        self._probe_at = 0.0
        self._errors = 0
        self._failing = False  # given up for errors that may pass
        self._again = Backoff(_AGAIN_S, REPROBE_S)
        self._last_s: float | None = None
        self._new: Any = None
        self._old: Any = None
        self._request: Any = None
        self._metrics: Any = None  # those in the request

    def probe(self) -> Missing | None:
        """Ask whether the device has GPM; None, or why not."""
        self._probe_at = time.monotonic() + REPROBE_S
        self._errors, self._last_s = 0, None
        self.refused = self._supported()
        if self.refused is None:
            self.refused = self._allocate()
        self._failing = self.refused is not None and passing(self.refused)
        if self.refused is not None:
            self._all(self.refused)
        return self.refused

    def read(self) -> dict[str, Reading]:
        """PERCENT_METRICS by name since the last read; {} if refused or read a moment ago."""
        now = time.monotonic()
        if now >= self._probe_at or (self._failing and self._again.due(now)):
            self.probe()
        if self.refused is not None:
            return {}
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
                _free(library, sample)
        self._old = self._new = None

    def _supported(self) -> Missing | None:
        support = self._query.get(nv.nvmlGpmQueryDeviceSupport)
        if not isinstance(support, Missing):
            return None if support.isSupportedDevice else _TOO_OLD
        if self._query.code == nv.NVML_ERROR_NOT_SUPPORTED and support.detail == "":
            return _TOO_OLD
        return self._explained(support)

    def _allocate(self) -> Missing | None:
        if self._request is not None:
            return None
        samples: list[Any] = []
        for _ in range(2):
            sample = self._query.ask(nv.nvmlGpmSampleAlloc)
            if isinstance(sample, Missing):
                for other in samples:
                    _free(self._query.library, other)
                return sample
            samples.append(sample)
        self._new, self._old = samples
        self._request = nv.c_nvmlGpmMetricsGet_t()
        offset = nv.c_nvmlGpmMetricsGet_t.metrics.offset
        self._metrics = (_Metric * len(_METRICS)).from_buffer(self._request, offset)
        return None

    def _sample(self) -> Missing | None:
        """Fill the older sample; a MIG instance may have to be asked through its parent."""
        query = self._query
        got = query.get(nv.nvmlGpmSampleGet, self._old)
        through_parent = self._parent is not None and self._gi is not None
        refusals = (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_INVALID_ARGUMENT)
        if through_parent and query.code in refusals:
            got = query.ask(nv.nvmlGpmMigSampleGet, self._parent, self._gi, self._old)
        return got if isinstance(got, Missing) else None

    def _difference(self) -> dict[str, Reading]:
        request = self._request
        request.version = nv.NVML_GPM_METRICS_GET_VERSION  # the driver may have written there
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = self._old, self._new
        for element, metric in zip(self._metrics, _METRICS):
            element.metricId = metric
        got = self._query.ask(nv.nvmlGpmMetricsGet, request)
        if isinstance(got, Missing):
            return self._all(self._give_up(got))
        self._errors, self._failing = 0, False
        self._again.reset()
        row: dict[str, Reading] = {}
        for element, metric in zip(self._metrics, _METRICS):
            code = element.nvmlReturn
            value: Reading = self._query.library.missing(code) if code else element.value
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
            self.refused = missing
            self._probe_at = time.monotonic() + REPROBE_S
            self._failing = passing(missing)
        return missing

    def _explained(self, missing: Missing) -> Missing:
        if missing.reason == "no-permission" and admin_only(self._params()):
            return Missing("no-permission", "RmProfilingAdminOnly is 1")
        return missing

    def _all(self, missing: Missing) -> dict[str, Reading]:
        self.rates = dict.fromkeys(RATE_METRICS.values(), missing)
        return dict.fromkeys(PERCENT_METRICS.values(), missing)


def _free(library: Library, sample: Any) -> None:
    if library.closed:
        return
    with suppress(nv.NVMLError):
        nv.nvmlGpmSampleFree(sample)


def _full(value: Reading) -> Reading:
    """Readings a little above 100 % are 100 %."""
    if isinstance(value, (int, float)) and 100 < value <= _OVERSHOOT_PERCENT:
        return 100.0
    return value
