"""Samples of a busy node, as many as wanted: every number moves as a measured one does.

Eight H100 with GPM, two processes on each, a job's cgroup, the node, its network and disks; every
field of every group at its period. Seeded: the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from gpumon.model.fields import GROUPS, Field, Group
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Event, Header, JobContext, Key, Sample

START = 1_795_200_000.0
_GIB = 1 << 30
#: what stands still while a job runs
_CONSTANT = {
    "mem_reserved_bytes": 947912704, "mem_clock_mhz": 2619, "fan_percent": 0, "pstate": 0,
    "power_limit_w": 700.0, "pcie_gen": 5, "pcie_width": 16, "bar1_used_bytes": 10265600,
    "busy_gap_s": 0, "encoder_percent": 0, "decoder_percent": 0,
    "fp64_active_percent": 0, "fp32_active_percent": 0, "int_active_percent": 0, "threads": 41,
    "write_bytes_per_s": 0, "throttle_thermal_s": 0,
    "link_bits_per_s": 10**11,
    "mem_limit_bytes": 512 * _GIB, "total_bytes": 4096 * _GIB, "ok": 1, "processes": 2,
}  # fmt: skip
#: whole numbers, as the driver gives them
_WHOLE = ("busy_percent", "mem_controller_percent", "sm_percent", "mem_percent")
#: standard deviation around the load, of the scale; others: 0.01 (7 W of a device, 1 %)
_NOISE = {"B/s": 0.05, "ms": 0.05, "": 0.002}
_UNSUPPORTED = Missing("unsupported", "needs a newer driver")


def header(node: str = "gpu01", job: JobContext | None = None) -> Header:
    return Header(
        node=node,
        boot_id="6c1b4b3e",
        time=START,
        mono=100.0,
        interval_s=1.0,
        gpumon="0.1.0",
        devices=[
            Device(n, n, f"GPU-{n:08d}", "NVIDIA H100 80GB HBM3", n, None, {"cores": 16896})
            for n in range(8)
        ],
        driver="580.159.03",
        cuda="13.0",
        job=job,
    )


def process_events(time: float, count: int = 16) -> list[Event]:
    return [
        Event(
            time,
            "process",
            pid=9000 + n,
            data={
                "user": "ada", "command": f"python train.py --rank {n}", "name": "python",
                "own": True, "in_job": True, "framework": "torch", "job": "4711",
            },
        )
        for n in range(count)
    ]  # fmt: skip


class _Value:
    """A field of one key: a load that steps now and then, and noise around it."""

    def __init__(self, field: Field, seed: str) -> None:
        self._field = field
        self._random = random.Random(seed)
        self._load = self._random.random()
        self._count = 0.0

    def next(self, period_s: float) -> int | float | str | Missing:
        field, rng = self._field, self._random
        if field.text:
            return {"type": "C", "state": "R", "path": "/scratch"}.get(field.name, "")
        if field.name in _CONSTANT:
            return _CONSTANT[field.name]
        if field.high <= 64 or (field.unit == "" and field.high > 1e8):
            return 0  # switches, counters of errors, masks
        if field.name in ("mem_peak_bytes", "swap_used_bytes"):
            return _UNSUPPORTED if field.name == "mem_peak_bytes" else 0
        if rng.random() < 0.01:
            self._load = rng.random()
        level = min(max(self._load + rng.gauss(0, _NOISE.get(field.unit, 0.01)), 0.0), 1.0)
        return self._scaled(level, period_s)

    def _scaled(self, level: float, period_s: float) -> int | float:
        field = self._field
        if field.unit == "%":
            return round(100 * level) if field.name in _WHOLE else 100 * level
        if field.unit in ("J", "s"):  # counters
            self._count += level * period_s * (650 if field.unit == "J" else 8)
            return self._count
        if field.unit == "B":
            return int(self._load * 64 * _GIB) & ~0x1FFFFF if field.digits == 0 else self._pages()
        scale = {"W": 700.0, "MHz": 1980.0, "°C": 80.0, "B/s": 2e10, "ms": 5.0}.get(
            field.unit, 16.0
        )
        if field.unit == "MHz":
            return round(scale * level / 15) * 15  # the driver's steps
        return round(scale * level) if field.unit in ("°C", "B/s") else scale * level

    def _pages(self) -> int:
        return (int(self._load * 16 * _GIB) + self._random.randrange(1 << 22)) & ~0xFFF


def _keys(group: Group) -> list[Key]:
    keys: dict[str, list[Key]] = {
        "device": list(range(8)),
        "usage": [(n // 2, 9000 + n) for n in range(16)],
        "process": [9000 + n for n in range(16)],
        "pool": [(0, 9000)],  # few programs have a probe
        "program": [9000],
        "net": ["ib0", "eth0"],
        "disk": ["scratch", "tmp", "shm"],
        "collector": ["nvml", "processes", "cgroup", "host", "network", "storage"],
    }
    return keys.get(group.entity, [""])


def samples(count: int, *, interval_s: float = 1.0) -> Iterator[Sample]:
    """`count` samples from START on; the first brings the processes."""
    values = {
        (group.key, key, field.name): _Value(field, f"{group.key} {key} {field.name}")
        for group in GROUPS
        for key in _keys(group)
        for field in group.fields
    }
    jitter = random.Random("clock")
    for n in range(count):
        rows: dict = {}
        for group in GROUPS:
            if group.period_s and n % max(1, round(group.period_s / interval_s)):
                continue
            for key in _keys(group):
                row = rows.setdefault(group.entity, {}).setdefault(key, {})
                for field in group.fields:
                    row[field.name] = values[group.key, key, field.name].next(group.period_s or 1)
        at = n * interval_s + jitter.uniform(0.001, 0.006)
        events = process_events(START) if n == 0 else []
        yield Sample(START + at, 100.0 + at, rows, {}, events)
