"""What no GPU can have, whatever its driver reports: limits that do not come from the same answer.

A driver that returns garbage returns it for the facts, too, from which `model.plausible` takes the
limits of readings. A board that the table knows has its memory and a margin, another one what
boards may have in some years.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping

from gpumon.model.reading import IMPLAUSIBLE, Reading

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
            most = most_memory_bytes(name)
        if not 0 <= value <= most:  # nor is what is not a number
            found[fact] = IMPLAUSIBLE
    return found


def most_memory_bytes(name: str) -> float:
    """What a GPU of this name can have at most."""
    known = [mib for match, mib in MEMORY_MIB if re.search(match, name)]
    return _MARGIN * max(known) * (1 << 20) if known else LIMITS["mem_total_bytes"]
