"""What readings are called in Prometheus: base units, counters that end in `_total`.

https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.model.fields import FIELDS

PREFIX = "gpumon"
#: entity -> the word in names
ENTITIES = {"device": "gpu", "host": "node", "job": "job", "net": "network", "disk": "disk",
            "usage": "process_gpu", "process": "process"}  # fmt: skip
#: the same for people
_SUBJECTS = {"device": "GPU", "host": "node", "job": "job", "net": "network", "disk": "disk",
             "usage": "process on a GPU", "process": "process"}  # fmt: skip
_SPELLED = {"sm": "SM", "dram": "DRAM", "pcie": "PCIe", "nvlink": "NVLink", "ecc": "ECC",
            "mig": "MIG", "bar1": "BAR1", "cpu": "CPU", "io": "I/O", "oom": "OOM"}  # fmt: skip
#: readings that only grow
COUNTERS = frozenset((
    "energy_j", "cpu_s", "throttle_power_s", "throttle_thermal_s", "pcie_replays", "ecc_corrected",
    "ecc_uncorrected", "oom_events", "oom_kills",
))  # fmt: skip
#: shown otherwise, or no quantity
LEFT_OUT = frozenset(("throttle_mask", "core_levels", "type", "state", "path"))
#: end of a reading's name -> end of the metric's, and the factor; the longest that fits
_UNITS = (
    ("_bytes_per_s", "_bytes_per_second", 1.0),
    ("_bits_per_s", "_bits_per_second", 1.0),
    ("_percent", "_ratio", 0.01),
    ("_bytes", "_bytes", 1.0),
    ("_mhz", "_hertz", 1e6),
    ("_w", "_watts", 1.0),
    ("_j", "_joules", 1.0),
    ("_c", "_celsius", 1.0),
    ("_s", "_seconds", 1.0),
)


class Name(NamedTuple):
    """A metric: its name without `_total`, the factor from the reading, and what it is."""

    name: str
    factor: float
    counter: bool
    help: str


def name_of(entity: str, field: str) -> Name | None:
    """None of what is no metric."""
    if field in LEFT_OUT or entity not in ENTITIES or field not in FIELDS[entity]:
        return None
    if FIELDS[entity][field].text:
        return None
    words, end, factor = field, "", 1.0
    for unit, ending, times in _UNITS:
        if field.endswith(unit):
            words, end, factor = field.removesuffix(unit), ending, times
            break
    words = re.sub(r"^mem(?=_|$)", "memory", words)
    full = f"{PREFIX}_{ENTITIES[entity]}_{words}{end}"
    text = f"{_SUBJECTS[entity]}: {_spelled(words)} ({field} in docs/json.md)."
    return Name(full, factor, field in COUNTERS, text)


def _spelled(words: str) -> str:
    """`sm_clock`: `SM clock`."""
    return " ".join(_SPELLED.get(word, word) for word in words.split("_"))
