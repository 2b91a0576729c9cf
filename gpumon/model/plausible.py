"""Limits of a device's readings, from the device's own facts.

The ranges of `model.fields` hold for every device; these are narrower. A margin has to let every
real device pass: a refused measurement is as false as an impossible one.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Dict, Mapping, Optional, Tuple

from gpumon.model.fields import FIELDS, Field
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Rows

#: (field, the maximum for a device), as `ceilings` gives them
Ceilings = Tuple[Tuple[str, float], ...]

#: of the highest settable limit: boards exceed it for milliseconds. A generous guess, which no
#: real board has confirmed; what it must refuse is far beyond
_POWER = 2.0
#: pages are rounded, and ECC takes its part of the total on some boards
_MEMORY = 1.01
#: of a node's memory: a virtual machine may have had more, and give it back
_NODE_MEMORY = 1.25
#: overclocking adds a few hundred MHz to what NVML gives as the maximum
_CLOCK = 1.5
#: the hardware powers off at its shutdown threshold; sensors differ by some degrees
_OVERSHOOT_C = 25.0
#: memory has no shutdown threshold of its own, and hot spots well above its rated maximum
_MEM_OVERSHOOT_C = 50.0
#: the times between which a rate was measured are known to a fifth
RATE_MARGIN = 1.25
#: PCIe generation -> Gbit/s of a lane before encoding (PCI-SIG)
_LANE_GBIT = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
#: of one NVLink and direction; NVLink 5 has 50 GB/s (NVIDIA), its successors twice that at most
_NVLINK_BYTES_PER_S = 100e9


def ceilings(facts: Mapping[str, Reading]) -> Dict[str, float]:
    """Field -> the maximum for a device with these facts; only where the facts determine it."""
    most: Dict[str, float] = {}

    def known(name: str) -> float:
        value = number(facts.get(name)) or 0.0
        return value if isfinite(value) else 0.0

    power_w = _POWER * max(known("power_limit_max_w"), known("power_limit_default_w"))
    most["power_w"] = most["power_limit_w"] = power_w
    total = _MEMORY * known("mem_total_bytes")
    for name in ("mem_used_bytes", "mem_reserved_bytes", "mem_bytes", "mem_peak_bytes"):
        most[name] = total
    for name in ("sm_clock", "mem_clock"):
        most[f"{name}_mhz"] = _CLOCK * known(f"{name}_max_mhz")
    shutdown, mem_max = known("temperature_shutdown_c"), known("temperature_mem_max_c")
    most["temperature_c"] = shutdown + _OVERSHOOT_C if shutdown > 0 else 0.0
    most["mem_temperature_c"] = mem_max + _MEM_OVERSHOOT_C if mem_max > 0 else 0.0
    lane = _LANE_GBIT.get(int(known("pcie_gen_max")), 0.0) * 1e9 / 8
    pcie = RATE_MARGIN * lane * known("pcie_width_max")
    nvlink = RATE_MARGIN * _NVLINK_BYTES_PER_S * known("nvlink_links")
    for way in ("tx", "rx"):
        most[f"pcie_{way}_bytes_per_s"] = pcie
        most[f"nvlink_{way}_bytes_per_s"] = nvlink
    return {name: value for name, value in most.items() if value > 0}


def node_ceilings(cpus: int, mem_total: Reading) -> Dict[str, Dict[str, float]]:
    """Entity -> field -> the most that a node with these CPUs and bytes of memory can have."""
    cores = RATE_MARGIN * (cpus + 1)  # CPU time is counted in ticks of 10 ms
    most = {"job": {"cpu_cores_used": cores}, "process": {"cpu_percent": 100 * cores}}
    memory = _NODE_MEMORY * (number(mem_total) or 0.0)
    if memory > 0:
        for name in ("used", "anon", "shmem", "cache", "charged", "peak"):
            most["job"][f"mem_{name}_bytes"] = memory
        most["process"]["rss_bytes"] = memory
    return most


def refuse_above(rows: Rows, most: Mapping[str, Mapping[str, float]]) -> None:
    """Make what exceeds its ceiling implausible, in place."""
    for entity, highs in most.items():
        for row in rows.get(entity, {}).values():
            for name, high in highs.items():
                value = number(row.get(name))
                if value is not None and value > high:
                    row[name] = implausible(value, FIELDS[entity][name].unit)


def narrowed(field: Field, most: Mapping[str, float]) -> Field:
    """The field with the range that it has on a device with these ceilings."""
    high = most.get(field.name)
    return field._replace(high=high) if high is not None and high < field.high else field


def most_cpu_per_s(cpus: Optional[Reading]) -> float:
    """CPU seconds that a node with so many CPUs can spend in a second; inf: not known."""
    count = number(cpus)
    return RATE_MARGIN * (count + 1) if count else inf


def implausible_growth(grown: Tuple[float, float], unit: str, limit: str) -> str:
    """Why a counter is refused that grew by so much in so many seconds."""
    value, seconds = grown
    return f"implausible: +{value:.4g} {unit} in {seconds:.0f} s is beyond {limit}"


def implausible(value: float, unit: str = "") -> Missing:
    """Missing for a number that cannot be, with the number for people."""
    text = str(value) if isinstance(value, int) else f"{value:.6g}"
    return Missing("implausible", f"{text} {unit}".rstrip())
