"""NVML's field values: many readings of one device in one call, each with its own code.

Ids, units and scopes are those of nvml.h (NVML_FI_DEV_...).
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.query import Query, plain
from gpumon.collect.rates import Moment, moment_since
from gpumon.model.reading import Missing, Reading

_ALL_LINKS = 0xFFFFFFFF  # a scope; nvml.h describes it without a name
_Element = plain(nv.c_nvmlFieldValue_t)
#: of nvmlFieldValue_t: value type, return code, value; between fields, scopes and times
_ELEMENT = struct.Struct("=24xIi8s")
#: nvmlValueType_t -> the layout of nvmlValue_t that holds a value of it
_VALUES = {
    kind: struct.Struct(f"={layout}")
    for kind, layout in enumerate(("d", "I", "Q", "Q", "q", "i", "H"))
}


class Source(NamedTuple):
    """A field id, its scope, and how many of its units are one of ours (or the reverse)."""

    id: int
    divide: int = 1
    scope: int = 0
    multiply: int = 1


#: reading -> its field values; the first that the device supports is used
SOURCES: dict[str, tuple[Source, ...]] = {
    "power_w": (Source(nv.NVML_FI_DEV_POWER_AVERAGE, 1000),),  # mW over one second
    "energy_j": (Source(nv.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 1000),),  # mJ
    "pcie_tx": (Source(nv.NVML_FI_DEV_PCIE_COUNT_TX_BYTES),),  # device to host
    "pcie_rx": (Source(nv.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),),
    # in KiB; NVLink 5 counts bytes instead
    "nvlink_tx": (
        Source(nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 1, _ALL_LINKS, 1024),
        Source(nv.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 1, _ALL_LINKS),
    ),
    "nvlink_rx": (
        Source(nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1, _ALL_LINKS, 1024),
        Source(nv.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1, _ALL_LINKS),
    ),
    "throttle_power_s": (Source(nv.NVML_FI_DEV_PERF_POLICY_POWER, 10**9),),  # ns
    "throttle_thermal_s": (Source(nv.NVML_FI_DEV_PERF_POLICY_THERMAL, 10**9),),
    "mem_temperature_c": (Source(nv.NVML_FI_DEV_MEMORY_TEMP),),
    "pcie_replays": (Source(nv.NVML_FI_DEV_PCIE_REPLAY_COUNTER),),
    "ecc_corrected": (Source(nv.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),),
    "ecc_uncorrected": (Source(nv.NVML_FI_DEV_ECC_DBE_VOL_TOTAL),),
    "retired_sbe": (Source(nv.NVML_FI_DEV_RETIRED_SBE),),
    "retired_dbe": (Source(nv.NVML_FI_DEV_RETIRED_DBE),),
    "retired_pending": (Source(nv.NVML_FI_DEV_RETIRED_PENDING),),
    "remapped_corrected": (Source(nv.NVML_FI_DEV_REMAPPED_COR),),
    "remapped_uncorrected": (Source(nv.NVML_FI_DEV_REMAPPED_UNC),),
    "remap_pending": (Source(nv.NVML_FI_DEV_REMAPPED_PENDING),),
    "remap_failed": (Source(nv.NVML_FI_DEV_REMAPPED_FAILURE),),
    "recovery_action": (Source(nv.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),),
    "nvlink_links": (Source(nv.NVML_FI_DEV_NVLINK_LINK_COUNT),),
}


class _Batch(NamedTuple):
    """The driver's array for several values."""

    array: Any
    memory: memoryview
    request: bytes  # the array as it is before the driver fills it


class _Plan(NamedTuple):
    """What to ask for some names, until a refusal comes or ends."""

    sources: dict[str, Source]  # the first of each name that the device supports
    refused: dict[str, Reading]  # why the others are not asked
    until: float  # monotonic


class Fields:
    """Asks one device for named field values, with as few calls as possible."""

    def __init__(self, query: Query) -> None:
        self.moments: dict[str, Moment] = {}  # name -> when its value was fetched
        self.sources: dict[str, Source] = {}  # name -> where its value came from
        self._query = query
        self._batches: dict[tuple[Source, ...], _Batch] = {}
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def read(self, names: tuple[str, ...]) -> dict[str, Reading]:
        """A reading for each name of SOURCES, in the unit of its name (counters: raw, bytes).

        A device that refuses a name's first source is asked for the next one at once.
        """
        plan = self._plans.get(names)
        if plan is None or time.monotonic() >= plan.until:
            plan = self._plans[names] = self._plan(names)
        readings = dict(plan.refused)
        asked = plan.sources
        while asked:
            refused = self._ask(asked, readings)
            if not refused:
                break
            self._plans.clear()
            again = self._plan(refused)
            readings.update(again.refused)
            asked = again.sources
        return readings

    def _plan(self, names: Iterable[str]) -> _Plan:
        plan = _Plan({}, {}, math.inf)
        for name in names:
            for source in SOURCES[name]:
                refused = self._query.refused(source)
                if refused is None:
                    plan.sources[name] = source
                    plan.refused.pop(name, None)
                    break
                plan.refused[name] = refused
                plan = plan._replace(until=min(plan.until, self._query.refused_until(source)))
                if refused.reason != "unsupported":
                    break
        return plan

    def _ask(self, asked: dict[str, Source], readings: dict[str, Reading]) -> list[str]:
        """Add what the driver gives for these; the names that it refuses from now on."""
        sources = tuple(asked.values())
        began = time.monotonic()
        missing, batch = self._fetch(sources)
        self.moments.update(dict.fromkeys(asked, moment_since(began, time.monotonic)))
        self.sources.update(asked)
        if missing is not None:
            readings.update(dict.fromkeys(asked, missing))
            return []
        refused = []
        for (name, source), element in zip(asked.items(), _ELEMENT.iter_unpack(batch.memory)):
            kind, code, raw = element
            if code == nv.NVML_SUCCESS and kind in _VALUES:
                (value,) = _VALUES[kind].unpack_from(raw)
                value *= source.multiply
                readings[name] = value if source.divide == 1 else value / source.divide
                self._query.worked.add(source)
            else:
                readings[name] = self._failed(source, kind, code)
                if code and self._query.refused(source) is not None:
                    refused.append(name)
        return refused

    def _fetch(self, sources: tuple[Source, ...]) -> tuple[Missing | None, _Batch]:
        batch = self._batches.get(sources)
        if batch is None:
            array = (_Element * len(sources))()
            for source, element in zip(sources, array):
                element.fieldId, element.scopeId = source.id, source.scope
            batch = _Batch(array, memoryview(array).cast("B"), bytes(array))
            self._batches[sources] = batch
        batch.memory[:] = batch.request  # the driver may have written anywhere
        return self._query.fill("nvmlDeviceGetFieldValues", len(sources), batch.array), batch

    def _failed(self, source: Source, kind: int, code: int) -> Missing:
        if code == nv.NVML_SUCCESS:
            self._query.worked.add(source)
            return Missing("error", f"value type {kind}")
        # a driver that does not know the field calls it an invalid argument
        unknown = code == nv.NVML_ERROR_INVALID_ARGUMENT
        return self._query.refuse(nv.NVML_ERROR_NOT_SUPPORTED if unknown else code, source)
