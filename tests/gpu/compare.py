"""What other monitors say, beside gpumon's stream: parsers, tolerances, verdicts.

Two programs never read a device at the same moment, so a peer's value agrees when it lies inside
what gpumon read around that moment, widened by the tolerance of the field.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

from gpumon.model.fields import PERIODS_S
from gpumon.model.reading import Reading, number
from gpumon.model.sample import Device, Header, Sample

#: gpumon ticks once a second: a reading before and one after, and half a tick of slack
_AROUND_S = 1.5
#: share of a peer's rows that must agree: a load that begins or ends may put a few apart
_ENOUGH = 0.9
_MIB = 2**20

#: a peer's names -> gpumon's field, and the factor to its unit
Names = dict[str, tuple[str, float]]
SMI_GPU: Names = {
    "utilization.gpu": ("busy_percent", 1),
    "utilization.memory": ("mem_controller_percent", 1),
    "memory.used": ("mem_used_bytes", _MIB),
    "memory.reserved": ("mem_reserved_bytes", _MIB),
    "power.draw": ("power_w", 1),
    "enforced.power.limit": ("power_limit_w", 1),
    "temperature.gpu": ("temperature_c", 1),
    "temperature.memory": ("mem_temperature_c", 1),
    "clocks.sm": ("sm_clock_mhz", 1),
    "clocks.mem": ("mem_clock_mhz", 1),
    "pstate": ("pstate", 1),
    "pcie.link.width.current": ("pcie_width", 1),
    "clocks_event_reasons.active": ("throttle_mask", 1),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", 1),
}
SMI_APPS: Names = {"used_memory": ("mem_bytes", _MIB)}
DMON: Names = {  # numbers of GPM metrics
    "2": ("sm_active_percent", 1),
    "3": ("sm_occupancy_percent", 1),
    "5": ("tensor_active_percent", 1),
    "10": ("dram_active_percent", 1),
}
NVITOP: Names = {
    "gpu_utilization": ("busy_percent", 1),
    "memory_utilization": ("mem_controller_percent", 1),
    "memory_used": ("mem_used_bytes", 1),
    "power_usage": ("power_w", 1e-3),
    "power_limit": ("power_limit_w", 1e-3),
    "temperature": ("temperature_c", 1),
    "sm_clock": ("sm_clock_mhz", 1),
    "memory_clock": ("mem_clock_mhz", 1),
    "performance_state": ("pstate", 1),
}
NVTOP: Names = {  # without its memory, which has the driver's reserve in it
    "gpu_util": ("busy_percent", 1),
    "power_draw": ("power_w", 1),
    "temp": ("temperature_c", 1),
    "gpu_clock": ("sm_clock_mhz", 1),
    "mem_clock": ("mem_clock_mhz", 1),
}


class Tolerance(NamedTuple):
    """How far apart two readings of one thing may be (the larger of the two), and why."""

    absolute: float
    share: float
    why: str


_SAMPLED = Tolerance(10, 0, "the driver's period is up to 1 s, and every reader meets another one")
_CUT = Tolerance(2 * _MIB, 0, "peers cut to MiB")
_SLOW = Tolerance(2, 0, "whole degrees, moving while gpumon waits 5 s for the next look")
_MOVES = Tolerance(60, 0.05, "moves within milliseconds, in steps of 15 MHz")
_WINDOW = Tolerance(10, 0.1, "a difference of counters over another second")
#: fields that are not here must be equal to one of gpumon's readings around that time
TOLERANCES = {
    "busy_percent": _SAMPLED,
    "mem_controller_percent": _SAMPLED,
    "mem_used_bytes": _CUT,
    "mem_reserved_bytes": _CUT,
    "mem_bytes": _CUT,
    "power_w": Tolerance(10, 0.05, "the mean of a second that ended at another moment"),
    "power_limit_w": Tolerance(0.6, 0, "rounded"),
    "temperature_c": _SLOW,
    "mem_temperature_c": _SLOW,
    "sm_clock_mhz": _MOVES,
    "mem_clock_mhz": _MOVES,
    **{field: _WINDOW for field, _ in DMON.values()},
}


class PeerRow(NamedTuple):
    """One peer's values at one time, under gpumon's names and units; None where it shows none."""

    time: float  # epoch s
    entity: str  # device or usage
    key: int  # a device's index, a process's pid
    values: dict[str, Optional[float]]


class Line(NamedTuple):
    """One field of one device or process beside one peer, over all rows of the peer."""

    peer: str
    what: str
    verdict: str  # agree, differ, lost by gpumon, only in gpumon, in neither
    rows: int
    agreeing: int
    median_difference: Optional[float]  # the peer's value less gpumon's nearest in time
    farthest: str  # the two readings that are farthest apart: "gpumon / peer"


#: verdicts that fail a case
BAD = ("differ", "lost by gpumon")


class Stream:
    """A recorded stream, by reading."""

    def __init__(self, items: Iterable[Header | Sample]) -> None:
        self.samples: list[Sample] = []
        self.header: Optional[Header] = None
        for item in items:
            if isinstance(item, Header):
                self.header = item
            else:
                self.samples.append(item)

    def device(self, index: int) -> Optional[Device]:
        """The whole GPU with NVML's index."""
        devices = self.header.devices if self.header else []
        return next((d for d in devices if d.index == index and d.mig is None), None)

    def readings(self, entity: str, key: int, field: str) -> list[tuple[float, Reading]]:
        """(epoch s, reading) of a device by its index, or of a process by its pid."""
        device = self.device(key) if entity == "device" else None
        wanted = device.key if device else key
        return [
            (sample.time, row[field])
            for sample in self.samples
            for k, row in sample.rows.get(entity, {}).items()
            if field in row and (k[1] if isinstance(k, tuple) else k) == wanted
        ]


# -- parsers: text and the time (epoch s) at which the program was started ------------------------
def number_of(text: Any) -> Optional[float]:
    """`97`, `1980MHz`, `P0`, `0x24` -> a number; `[N/A]`, `-`, None -> None."""
    found = re.fullmatch(r"P?(0x[0-9a-fA-F]+|-?\d+(?:\.\d+)?) ?(?:[A-Za-z]+|%)?", str(text).strip())
    if found is None:
        return None
    return float(int(found[1], 16)) if found[1].startswith("0x") else float(found[1])


def _row(at: float, entity: str, key: str, names: Names, texts: Sequence[Any]) -> PeerRow:
    if len(texts) != len(names):
        raise ValueError(f"{len(texts)} values for {len(names)} names: {str(texts)[:200]}")
    values = {}
    for (field, factor), text in zip(names.values(), texts):
        value = number_of(text)
        values[field] = None if value is None else value * factor
    return PeerRow(at, entity, int(key), values)


def parse_smi_gpu(text: str, at: float) -> list[PeerRow]:
    """`nvidia-smi --query-gpu=index,<SMI_GPU> --format=csv,noheader,nounits`."""
    lines = [line.split(",") for line in text.splitlines()]
    return [_row(at, "device", cells[0], SMI_GPU, cells[1:]) for cells in lines]


def parse_smi_apps(text: str, at: float) -> list[PeerRow]:
    """`nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits`."""
    lines = [line.split(",") for line in text.splitlines()]
    return [_row(at, "usage", cells[0], SMI_APPS, cells[1:]) for cells in lines]


def parse_dmon(text: str, at: float) -> list[PeerRow]:
    """`nvidia-smi dmon -o T --gpm-metrics <DMON>`: local time, and units that begin with GPM."""
    rows, columns = [], list[int]()
    for line in text.splitlines():
        cells = line.lstrip("# ").split()
        if line.startswith("#"):
            columns = [i for i, cell in enumerate(cells) if cell.startswith("GPM")] or columns
        elif cells:
            texts = [cells[i] for i in columns]
            rows.append(_row(_epoch(cells[0], at), "device", cells[1], DMON, texts))
    return rows


def _epoch(clock: str, near: float) -> float:
    """The middle of a local second HH:MM:SS, on the day that brings it nearest to `near`."""
    hours, minutes, seconds = map(int, clock.split(":"))
    day = time.localtime(near)
    midnight = time.mktime((*day[:3], 0, 0, 0, 0, 0, -1))
    moment = midnight + 3600 * hours + 60 * minutes + seconds + 0.5
    return min((moment + shift for shift in (-86400, 0, 86400)), key=lambda t: abs(t - near))


def parse_nvtop(text: str, at: float) -> list[PeerRow]:
    """`nvtop -s`: a list of devices by their place; 3.3.0 forgets commas between lines."""
    devices = json.loads(re.sub(r'"[ \t]*\n(\s*")', r'",\n\1', text))
    return [
        _row(at, "device", str(place), NVTOP, [device.get(name) for name in NVTOP])
        for place, device in enumerate(devices)
    ]


def parse_nvitop(text: str, at: float) -> list[PeerRow]:
    """Lines of JSON: [epoch s, index, [<NVITOP>]]."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [_row(when, "device", index, NVITOP, texts) for when, index, texts in lines]


# -- the comparison ------------------------------------------------------------------------------
def compare(stream: Stream, peer: str, rows: Iterable[PeerRow]) -> list[Line]:
    """One line for each field of each device and process that the peer names."""
    told: dict[tuple[str, int, str], list[tuple[float, Optional[float]]]] = {}
    for row in rows:
        for field, value in row.values.items():
            told.setdefault((row.entity, row.key, field), []).append((row.time, value))
    return [_line(stream, peer, place, theirs) for place, theirs in told.items()]


def _line(
    stream: Stream,
    peer: str,
    place: tuple[str, int, str],
    theirs: list[tuple[float, Optional[float]]],
) -> Line:
    entity, key, field = place
    ours = stream.readings(*place)
    around_s = PERIODS_S[entity, field] + _AROUND_S
    pairs = [(value, _numbers_near(ours, moment, around_s)) for moment, value in theirs]
    told = [(value, known) for value, known in pairs if value is not None]
    both = [(value, known) for value, known in told if known]
    agreeing = sum(_fits(field, value, known) for value, known in both)
    if not told:
        verdict = "only in gpumon" if any(known for _, known in pairs) else "in neither"
    elif len(both) < _ENOUGH * len(told):
        verdict = "lost by gpumon"
    else:
        verdict = "agree" if agreeing >= _ENOUGH * len(both) else "differ"
    median, farthest = None, str(ours[-1][1] if ours else "not sampled")
    if both:
        median = statistics.median(value - known[0] for value, known in both)
        value, known = max(both, key=lambda pair: abs(pair[0] - pair[1][0]))
        farthest = f"{known[0]:.10g} / {value:.10g}"
    return Line(peer, f"{entity} {key} {field}", verdict, len(pairs), agreeing, median, farthest)


def _numbers_near(ours: list[tuple[float, Reading]], moment: float, around_s: float) -> list[float]:
    """gpumon's numbers around a moment, the nearest first."""
    near = [(abs(t - moment), number(reading)) for t, reading in ours]
    known = [(away_s, n) for away_s, n in near if n is not None and away_s <= around_s]
    return [n for _, n in sorted(known)]


def _fits(field: str, value: float, known: list[float]) -> bool:
    tolerance = TOLERANCES.get(field)
    if tolerance is None:
        return value in known
    slack = max(tolerance.absolute, tolerance.share * abs(value))
    return min(known) - slack <= value <= max(known) + slack
