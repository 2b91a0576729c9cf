"""NVML's field values: many readings of one device in one call, each with its own code.

Ids, units and scopes are those of nvml.h (NVML_FI_DEV_...).
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.collect.nvml.answers import Row
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.query import Query, plain
from gpumon.collect.rates import Moment, moment_since
from gpumon.model.reading import Missing

_ALL_LINKS = 0xFFFFFFFF  # a scope; nvml.h describes it without a name
_Element = plain(nv.c_nvmlFieldValue_t)
#: of nvmlFieldValue_t: value type, return code, value; between fields, scopes and times
_ELEMENT = struct.Struct("=24xIi8s")
#: nvmlValueType_t -> the layout of nvmlValue_t that holds a value of it
_VALUES = dict(enumerate("dIQQqiH"))


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


class _Plan:
    """What to ask for some names, until a refusal comes or ends; and the driver's array for it."""

    def __init__(self, sources: dict[str, Source], refused: Row, until: float) -> None:
        """`sources`: the first of each name that the device supports; `refused`: why the others
        are not asked; `until`: monotonic.
        """
        self.sources, self.refused, self.until = sources, refused, until
        self.array = (_Element * len(sources))()
        for source, element in zip(sources.values(), self.array):
            element.fieldId, element.scopeId = source.id, source.scope
        self.memory = memoryview(self.array).cast("B")
        self.request = bytes(self.array)  # as it is before the driver fills it
        self._scales = [(name, each.multiply, each.divide) for name, each in sources.items()]
        self._kinds: tuple[int, ...] = ()  # of the last answer that had all values
        self._layout = _ELEMENT

    def learn(self, kinds: list[int]) -> None:
        """All values are there, and have these types: read the next ones at once."""
        self._kinds = tuple(kinds)
        values = [f"{_VALUES[kind]}{8 - struct.calcsize(_VALUES[kind])}x" for kind in kinds]
        self._layout = struct.Struct("=" + "".join(f"24xIi{value}" for value in values))

    def values(self) -> Row:
        """What the driver has filled in; {} if it is not all there, or of other types."""
        if not self._kinds:
            return {}
        found = self._layout.unpack_from(self.memory)
        if found[::3] != self._kinds or any(found[1::3]):
            return {}
        return {
            name: value * multiply if divide == 1 else value * multiply / divide
            for value, (name, multiply, divide) in zip(found[2::3], self._scales)
        }


class Fields:
    """Asks one device for named field values, with as few calls as possible."""

    def __init__(self, query: Query) -> None:
        self.moment = Moment(0.0)  # of the last read
        self.sources: dict[str, Source] = {}  # name -> where its value came from in that
        self._query = query
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def read(self, names: tuple[str, ...]) -> Row:
        """A reading for each name of SOURCES, in the unit of its name (counters: raw, bytes).

        A device that refuses a name's first source is asked for the next one at once.
        """
        began = time.monotonic()
        plan = self._plans.get(names)
        if plan is None or began >= plan.until:
            plan = self._plans[names] = self._plan(names)
        readings, refused = self._ask(plan)
        self.sources = plan.sources
        while refused:
            self._plans.clear()
            again = self._plan(refused)
            more, refused = self._ask(again)
            readings.update(more)
            self.sources = {**self.sources, **again.sources}
        self.moment = moment_since(began, time.monotonic)
        return readings

    def _plan(self, names: Iterable[str]) -> _Plan:
        sources: dict[str, Source] = {}
        withheld: Row = {}
        until = math.inf
        for name in names:
            for source in SOURCES[name]:
                refused = self._query.refused(source)
                if refused is None:
                    sources[name] = source
                    withheld.pop(name, None)
                    break
                withheld[name] = refused
                until = min(until, self._query.refused_until(source))
                if refused.reason != "unsupported":
                    break
        return _Plan(sources, withheld, until)

    def _ask(self, plan: _Plan) -> tuple[Row, list[str]]:
        """The readings, and the names that the driver refuses from now on."""
        if not plan.sources:
            return dict(plan.refused), []
        plan.memory[:] = plan.request  # the driver may have written anywhere
        missing = self._query.fill("nvmlDeviceGetFieldValues", len(plan.sources), plan.array)
        if missing is not None:
            return {**plan.refused, **dict.fromkeys(plan.sources, missing)}, []
        values = plan.values()
        if values:
            return {**plan.refused, **values}, []
        return self._one_by_one(plan)

    def _one_by_one(self, plan: _Plan) -> tuple[Row, list[str]]:
        """As `_ask`, of an answer in which something is missing or new."""
        readings, refused, kinds = dict(plan.refused), [], []
        for (name, source), element in zip(plan.sources.items(), _ELEMENT.iter_unpack(plan.memory)):
            kind, code, raw = element
            if code == nv.NVML_SUCCESS and kind in _VALUES:
                (value,) = struct.unpack_from(f"={_VALUES[kind]}", raw)
                value *= source.multiply
                readings[name] = value if source.divide == 1 else value / source.divide
                self._query.worked.add(source)
                kinds.append(kind)
            else:
                readings[name] = self._failed(source, kind, code)
                if code and self._query.refused(source) is not None:
                    refused.append(name)
        if len(kinds) == len(plan.sources):
            plan.learn(kinds)
        return readings, refused

    def _failed(self, source: Source, kind: int, code: int) -> Missing:
        if code == nv.NVML_SUCCESS:
            self._query.worked.add(source)
            return Missing("error", f"value type {kind}")
        # a driver that does not know the field calls it an invalid argument
        unknown = code == nv.NVML_ERROR_INVALID_ARGUMENT
        return self._query.refuse(nv.NVML_ERROR_NOT_SUPPORTED if unknown else code, source)
