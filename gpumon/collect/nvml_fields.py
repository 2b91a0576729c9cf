"""NVML's field values: many readings of one device in one call, each with its own code.

Ids, units and scopes are those of nvml.h (NVML_FI_DEV_...).
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from gpumon.collect.nvml import INVALID_ARGUMENT, NOT_SUPPORTED, OK, Query
from gpumon.collect.nvml_structs import VALUE_MEMBERS, FieldValue
from gpumon.collect.rates import Moment, moment_since
from gpumon.model.reading import Missing, Reading

ALL_LINKS = 0xFFFFFFFF


class Source(NamedTuple):
    """A field id, its scope, and how many of its units are one of ours (or the reverse)."""

    id: int
    divide: int = 1
    scope: int = 0
    multiply: int = 1


#: reading -> field values that tell it; the first that the device supports is taken
SOURCES: Dict[str, Tuple[Source, ...]] = {
    "power_w": (Source(185, 1000),),  # POWER_AVERAGE, mW over one second
    "energy_j": (Source(83, 1000),),  # TOTAL_ENERGY_CONSUMPTION, mJ
    "pcie_tx": (Source(197),),  # PCIE_COUNT_TX_BYTES; device to host
    "pcie_rx": (Source(198),),
    # NVLINK_THROUGHPUT_DATA_TX/RX in KiB; NVLink 5 has NVLINK_COUNT_XMIT/RCV_BYTES instead
    "nvlink_tx": (Source(138, 1, ALL_LINKS, 1024), Source(202, 1, ALL_LINKS)),
    "nvlink_rx": (Source(139, 1, ALL_LINKS, 1024), Source(204, 1, ALL_LINKS)),
    "throttle_power_s": (Source(74, 10**9),),  # PERF_POLICY_POWER, ns
    "throttle_thermal_s": (Source(75, 10**9),),
    "mem_temperature_c": (Source(82),),
    "pcie_replays": (Source(94),),
    "ecc_corrected": (Source(3),),  # ECC_SBE_VOL_TOTAL
    "ecc_uncorrected": (Source(4),),
    "retired_sbe": (Source(29),),
    "retired_dbe": (Source(30),),
    "retired_pending": (Source(31),),
    "remapped_corrected": (Source(142),),
    "remapped_uncorrected": (Source(143),),
    "remap_pending": (Source(144),),
    "remap_failed": (Source(145),),
    "recovery_action": (Source(230),),
    "nvlink_links": (Source(91),),
}


class Fields:
    """Asks one device for named field values, with as few calls as possible."""

    def __init__(self, query: Query) -> None:
        self.moments: Dict[str, Moment] = {}  # name -> when its value was fetched
        self.sources: Dict[str, Source] = {}  # name -> what told its value
        self._query = query
        self._batches: Dict[Tuple[Source, ...], Tuple[Any, List[Any]]] = {}

    def read(self, names: Iterable[str]) -> Dict[str, Reading]:
        """A reading for each name of SOURCES, in the unit of its name (counters: raw, bytes).

        A device that refuses a name's first source is asked for the next one at once.
        """
        readings: Dict[str, Reading] = {}
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
                if missing is None and self._query.refused(source) is not None:
                    wanted[name] = self._open_source(name, readings)

    def _open_source(self, name: str, readings: Dict[str, Reading]) -> Optional[Source]:
        """The first source of `name` that the device supports; else the refusal as its reading."""
        for source in SOURCES[name]:
            refused = self._query.refused(source)
            if refused is None:
                return source
            readings[name] = refused
            if refused.reason != "unsupported":
                break
        return None

    def _fetch(self, sources: Tuple[Source, ...]) -> Tuple[Optional[Missing], List[Any]]:
        batch = self._batches.get(sources)
        if batch is None:
            array = (FieldValue * len(sources))()
            batch = (array, [array[i] for i in range(len(sources))])
            self._batches[sources] = batch
        array, elements = batch
        for source, element in zip(sources, elements):
            element.field_id, element.scope_id = source.id, source.scope
        return self._query.call("nvmlDeviceGetFieldValues", len(sources), array), elements

    def _value(self, source: Source, element: Any) -> Reading:
        code = int(element.code)
        if code != OK:
            # a driver that does not know the field calls it an invalid argument
            return self._query.refuse(NOT_SUPPORTED if code == INVALID_ARGUMENT else code, source)
        self._query.worked.add(source)
        if not 0 <= element.value_type < len(VALUE_MEMBERS):
            return Missing("error", f"value type {element.value_type}")
        value: float = getattr(element.value, VALUE_MEMBERS[element.value_type])
        value *= source.multiply
        return value if source.divide == 1 else value / source.divide
