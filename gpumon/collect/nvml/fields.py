"""NVML's field values: many readings of one device in one call, each with its own code.

Ids, units and scopes are those of nvml.h (NVML_FI_DEV_...).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.query import Query, plain
from gpumon.collect.rates import Moment, moment_since
from gpumon.model.reading import Missing, Reading

_ALL_LINKS = 0xFFFFFFFF  # a scope; nvml.h describes it without a name
_Element = plain(nv.c_nvmlFieldValue_t)
#: nvmlValueType_t -> the member of nvmlValue_t that holds a value of it
_MEMBERS = [name for name, _ in nv.c_nvmlValue_t._fields_]


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
    elements: list[Any]
    request: bytes  # the array as it is before the driver fills it


class Fields:
    """Asks one device for named field values, with as few calls as possible."""

    def __init__(self, query: Query) -> None:
        self.moments: dict[str, Moment] = {}  # name -> when its value was fetched
        self.sources: dict[str, Source] = {}  # name -> where its value came from
        self._query = query
        self._batches: dict[tuple[Source, ...], _Batch] = {}

    def read(self, names: Iterable[str]) -> dict[str, Reading]:
        """A reading for each name of SOURCES, in the unit of its name (counters: raw, bytes).

        A device that refuses a name's first source is asked for the next one at once.
        """
        readings: dict[str, Reading] = {}
        wanted = {name: self._open_source(name, readings) for name in names}
        while True:
            ask = {name: source for name, source in wanted.items() if source is not None}
            if not ask:
                return readings
            sources = tuple(ask.values())
            began = time.monotonic()
            missing, elements = self._fetch(sources)
            self.moments.update(dict.fromkeys(ask, moment_since(began, time.monotonic)))
            self.sources.update(ask)
            wanted = {}
            for name, source, element in zip(ask, sources, elements):
                value = missing if missing is not None else self._value(source, element)
                readings[name] = value
                if missing is not None or not isinstance(value, Missing):
                    continue
                if self._query.refused(source) is not None:
                    wanted[name] = self._open_source(name, readings)

    def _open_source(self, name: str, readings: dict[str, Reading]) -> Source | None:
        """The first source of `name` that the device supports; else the refusal as its reading."""
        for source in SOURCES[name]:
            refused = self._query.refused(source)
            if refused is None:
                return source
            readings[name] = refused
            if refused.reason != "unsupported":
                break
        return None

    def _fetch(self, sources: tuple[Source, ...]) -> tuple[Missing | None, list[Any]]:
        batch = self._batches.get(sources)
        if batch is None:
            array = (_Element * len(sources))()
            elements = [array[i] for i in range(len(sources))]
            for source, element in zip(sources, elements):
                element.fieldId, element.scopeId = source.id, source.scope
            batch = self._batches[sources] = _Batch(array, elements, bytes(array))
        array, elements, request = batch
        ctypes.memmove(array, request, len(request))  # the driver may have written anywhere
        return self._query.fill("nvmlDeviceGetFieldValues", len(sources), array), elements

    def _value(self, source: Source, element: Any) -> Reading:
        code = int(element.nvmlReturn)
        if code != nv.NVML_SUCCESS:
            # a driver that does not know the field calls it an invalid argument
            unknown = code == nv.NVML_ERROR_INVALID_ARGUMENT
            return self._query.refuse(nv.NVML_ERROR_NOT_SUPPORTED if unknown else code, source)
        self._query.worked.add(source)
        if element.valueType >= len(_MEMBERS):
            return Missing("error", f"value type {element.valueType}")
        value: float = getattr(element.value, _MEMBERS[element.valueType])
        value *= source.multiply
        return value if source.divide == 1 else value / source.divide
