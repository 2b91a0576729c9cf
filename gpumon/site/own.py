"""gpumon's own metrics, made of the table of readings: base units, counters that end in `_total`.

`gpumon exporter` writes them, and the Prometheus source reads them back.
https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpumon.model.fields import FIELDS
from gpumon.site.prometheus import Family, Metric

PREFIX = "gpumon"
#: entity -> the word in names
ENTITIES = {"device": "gpu", "host": "node", "job": "job", "net": "network", "disk": "disk",
            "usage": "process_gpu", "process": "process"}  # fmt: skip
#: the same for people
_SUBJECTS = {"device": "GPU", "host": "node", "job": "job", "net": "network", "disk": "disk",
             "usage": "process on a GPU", "process": "process"}  # fmt: skip
_SPELLED = {"sm": "SM", "dram": "DRAM", "pcie": "PCIe", "nvlink": "NVLink", "ecc": "ECC",
            "mig": "MIG", "bar1": "BAR1", "cpu": "CPU", "io": "I/O", "oom": "OOM"}  # fmt: skip
#: end of a reading's name -> end of the metric's, the factor, and the one back; the first that fits
_UNITS = (
    ("_bytes_per_s", "_bytes_per_second", 1.0, 1.0),
    ("_bits_per_s", "_bits_per_second", 1.0, 1.0),
    ("_percent", "_ratio", 0.01, 100.0),
    ("_bytes", "_bytes", 1.0, 1.0),
    ("_mhz", "_hertz", 1e6, 1e-6),
    ("_w", "_watts", 1.0, 1.0),
    ("_j", "_joules", 1.0, 1.0),
    ("_c", "_celsius", 1.0, 1.0),
    ("_s", "_seconds", 1.0, 1.0),
)


class Name(NamedTuple):
    """A metric: its name without `_total`, the factor from the reading, and what it is."""

    name: str
    factor: float
    scale: float  # back to the reading
    counter: bool
    help: str


def name_of(entity: str, field: str) -> Name | None:
    """None of what is no metric."""
    known = FIELDS[entity].get(field) if entity in ENTITIES else None
    if known is None or known.text or not known.metric:
        return None
    words, end, factor, scale = field, "", 1.0, 1.0
    for unit, ending, times, back in _UNITS:
        if field.endswith(unit):
            words, end = field.removesuffix(unit), ending
            factor, scale = times, back
            break
    words = re.sub(r"^mem(?=_|$)", "memory", words)
    full = f"{PREFIX}_{ENTITIES[entity]}_{words}{end}"
    text = f"{_SUBJECTS[entity]}: {_spelled(words)} ({field} in docs/json.md)."
    return Name(full, factor, scale, known.metric == "counter", text)


def _spelled(words: str) -> str:
    """`sm_clock`: `SM clock`."""
    return " ".join(_SPELLED.get(word, word) for word in words.split("_"))


def own_families() -> tuple[Family, Family]:
    """Of GPUs and jobs, and of nodes."""
    about, source = "gpumon exporter", "docs/exporter.md"
    total = Metric(f"{PREFIX}_gpu_memory_total_bytes", "fact.mem_total_bytes")
    node_total = Metric(f"{PREFIX}_node_memory_total_bytes", "host_fact.mem_total_bytes")
    return (
        Family(
            "gpumon", about, (*_read_back("device"), *_read_back("job"), total), source,
            job="jobid", uuid="uuid", index="gpu", gpu_name="name", mig="mig_instance",
            mig_profile="mig_profile",
        ),
        Family("gpumon-node", about, (*_read_back("host"), node_total), source),
    )  # fmt: skip


def _read_back(entity: str) -> Iterator[Metric]:
    for field in FIELDS[entity]:
        if name := name_of(entity, field):
            ending = "_total" if name.counter else ""
            yield Metric(name.name + ending, f"{entity}.{field}", name.scale)
