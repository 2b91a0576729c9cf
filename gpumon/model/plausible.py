"""Limits of a device's readings, from the device's own facts, and of these facts.

The ranges of `model.fields` hold for every device; these are narrower. A margin has to let every
real device pass: a refused measurement is as false as an impossible one.

A driver that returns garbage returns it for the facts, too, from which the limits of readings
are taken. A board that the table knows has its memory and a margin, another one what
boards may have in some years.
"""

from __future__ import annotations

import re
from math import inf, isfinite
from typing import Dict, Mapping, Optional, Tuple

from gpumon.model.fields import FIELDS, Field
from gpumon.model.reading import IMPLAUSIBLE, Missing, Reading, number
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


# -- facts

#: NVML's name (a regular expression) and memory in MiB: the boards of gpumon/site/gpus.toml
MEMORY_MIB = (
    ("B200", 183359),
    ("H200", 143771),
    ("H100.*80GB HBM3|H100 SXM", 81559),
    ("H100 NVL", 95830),
    ("H100 PCIe", 81559),
    ("A100.*80GB", 81920),
    ("A100.*40GB", 40960),
    ("A30$", 24576),
    ("RTX PRO 6000", 97887),
    ("L40S", 46068),
    ("L40$", 46068),
    ("RTX 6000 Ada", 46068),
    ("L4$", 23034),
    ("A40$", 46068),
    ("RTX A6000", 46068),
    ("A10G?$", 23028),
    ("RTX 4090", 24564),
    ("RTX 3090", 24576),
    ("RTX 2080 Ti", 11264),
    ("T4$", 15360),
    ("V100.*32GB", 32768),
    ("V100.*16GB", 16384),
    ("P100.*16GB", 16280),
)
#: names match loosely, and boards come out with more memory under the name that they had
_MARGIN = 2.0
#: fact -> the most of any board. The largest so far: 288 GB, 1.4 kW, 3 GHz, memory at 14 GHz
#: (NVIDIA GB300, RTX 5090); ECC's and link's modes are small numbers
LIMITS = {
    "mem_total_bytes": 4.0 * (1 << 40), "cores": 1e6, "multiprocessors": 1e4,
    "power_limit_default_w": 1e4, "power_limit_min_w": 1e4, "power_limit_max_w": 1e4,
    "sm_clock_max_mhz": 2e4, "mem_clock_max_mhz": 5e4, "temperature_slowdown_c": 250.0,
    "temperature_shutdown_c": 250.0, "temperature_mem_max_c": 250.0, "pcie_gen_max": 16,
    "pcie_width_max": 64, "nvlink_links": 256, "minor": 1e6, "numa_node": 1e5,
}  # fmt: skip


def checked_facts(name: str, facts: Mapping[str, Reading]) -> Dict[str, Reading]:
    """The facts of a GPU or instance of this name; numbers that it cannot have are implausible."""
    found = dict(facts)
    for fact, most in LIMITS.items():
        value = found.get(fact)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        if fact == "mem_total_bytes":
            most = _most_memory_bytes(name)
        if not 0 <= value <= most:  # nor is what is not a number
            found[fact] = IMPLAUSIBLE
    return found


def _most_memory_bytes(name: str) -> float:
    """What a GPU of this name can have at most."""
    known = [mib for match, mib in MEMORY_MIB if re.search(match, name)]
    return _MARGIN * max(known) * (1 << 20) if known else LIMITS["mem_total_bytes"]
