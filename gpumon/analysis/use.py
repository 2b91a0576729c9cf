"""How much a device was used, by every reading: kernels, codecs, copies, power, filled memory.

Busy % and SM activity see kernels alone. So a device counts as unused only where every reading that
exists is at rest; a field that was never read says nothing either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.analysis.known import highest, total
from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.once import once
from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    IDLE_POWER_SHARE,
    LINKS,
    active_share,
    busy_track,
    idle_power_w,
    job_processes,
    power_limit_w,
)
from gpumon.analysis.thresholds import Gpus, of_site
from gpumon.model.fields import ACTIVE_PERCENT
from gpumon.model.units import bytes_text, rate_text

#: work that busy % does not see
ENGINES = ("encoder_percent", "decoder_percent")
#: bytes/s over a bin; reading NVML's counters moves less (proposed)
_TRAFFIC = 10e6
#: fields that show copies -> from where on, and what they are called
_COPIES = {
    **dict.fromkeys(LINKS[:2], (_TRAFFIC, "PCIe")),
    **dict.fromkeys(LINKS[2:], (_TRAFFIC, "NVLink")),
    "mem_controller_percent": (ACTIVE_PERCENT, "memory controller"),
    "dram_active_percent": (ACTIVE_PERCENT, "DRAM"),
}
_POWER, _MEMORY = "power", "GPU memory"
#: parts of the power limit above rest: beyond what a context takes on a server's GPU, and beyond
#: what anything but work takes (proposed); W that a context takes on a small one
_TRACE_POWER, _WORK_POWER, _CONTEXT_W = 0.1, 0.25, 25.0
#: s between polls, from which on a program's cycle may be in step with them (proposed)
_FAR_S = 20.0
#: memory that is taken ahead of need is no use (`memory.classify`)
_RESERVATIONS = ("tf", "jax", "kv", "pool")


class Use(NamedTuple):
    """`bins` with copies, or with power that only work takes; `share`: part of the time, 0 to 1.

    `traces`: the most that each reading shows of use; empty where all were at rest.
    """

    bins: frozenset[int]
    share: float
    traces: Mapping[str, float]


def work_percent(device: DeviceData, first: int = 0, last: int | None = None) -> float | None:
    """Mean % of the time in which it computed, encoded or decoded, by what it did most; None where
    its kernels are not known.
    """
    busy = busy_track(device).average(first, last)
    engines = (device.track(name).average(first, last) for name in ENGINES)
    return None if busy is None else highest([busy, *engines])


def gpus_worth(devices: Iterable[DeviceData]) -> float | None:
    """How many GPUs would have done the work, had they worked all the time; None: not known."""
    percents = total(map(work_percent, devices))
    return None if percents is None else percents / 100


@once
def other_use(device: DeviceData) -> Use:
    """What shows that a device was used for anything but kernels."""
    working: set[int] = set()
    peaks: dict[str, float] = {}
    for name, (least, what) in _COPIES.items():
        moved = _above(device, name, least)
        if moved:
            working |= moved.keys()
            peaks[what] = max(peaks.get(what, 0.0), *moved.values())
    rest_w, limit_w = _rest_w(device), power_limit_w(device)
    if rest_w is not None and limit_w is not None:
        working |= _above(device, "power_w", rest_w + _WORK_POWER * limit_w).keys()
        traces = _above(device, "power_w", rest_w + max(_TRACE_POWER * limit_w, _CONTEXT_W))
        if traces:
            peaks[_POWER] = max(traces.values())
    held = _held_bytes(device)
    if held:
        peaks[_MEMORY] = held
    known = max(device.track(name).known_count() for name in (*_COPIES, "power_w"))
    return Use(frozenset(working), len(working) / known if known else 0.0, peaks)


def traces_text(devices: Iterable[DeviceData]) -> str:
    """Every trace of use but kernels, the most of any of these devices; "" where there is none."""
    most: dict[str, float] = {}
    for device in devices:
        for what, peak in other_use(device).traces.items():
            most[what] = max(most.get(what, 0.0), peak)
    return ", ".join(f"{what} up to {_amount(what, peak)}" for what, peak in most.items())


def _amount(what: str, peak: float) -> str:
    if what == _MEMORY:
        return bytes_text(peak)
    if what == _POWER:
        return f"{peak:.0f} W"
    return f"{peak:.0f} %" if peak <= 100 else rate_text(peak)


def is_unused(device: DeviceData) -> bool:
    """Every reading that exists was at rest all the time."""
    return active_share(device) == 0 and not other_use(device).traces


def is_used_otherwise(run: RunData, device: DeviceData) -> bool:
    """Copies, or power that only work takes, in as much of the time as a GPU works that worked; or
    a use between two polls.
    """
    least = of_site(run.site, "gpus", Gpus).working_share
    return other_use(device).share >= least or is_seldom_polled(run, device)


def is_seldom_polled(run: RunData, device: DeviceData) -> bool:
    """Polls of a program on it are so far apart that it may have worked between any two."""
    far = device.polled and (run.coverage.interval_s or 0.0) >= _FAR_S
    return far and bool(job_processes(device) or not device.process_list_known)


def idle_shares(run: RunData, device: DeviceData) -> list[float]:
    """The part of each bin in which it did nothing; 0 where that is not known."""
    if not active_share(device) and is_used_otherwise(run, device):
        return [0.0] * len(device.active.mean)
    return [round(1 - share, 2) if share == share else 0.0 for share in device.active.mean]


def _above(device: DeviceData, name: str, least: float) -> dict[int, float]:
    """The bins whose mean is at least that."""
    return {n: value for n, value in enumerate(device.track(name).mean) if value >= least}


def _rest_w(device: DeviceData) -> float | None:
    """Power at rest; where it never rested, the most that a device at rest takes.

    None without a limit, and for a MIG instance: its power is the whole device's.
    """
    idle_w, limit_w = idle_power_w(device), power_limit_w(device)
    if device.device.mig or idle_w is None or limit_w is None:
        return None
    return min(idle_w, 1.5 * IDLE_POWER_SHARE * limit_w)


def _held_bytes(device: DeviceData) -> float:
    """What programs filled beyond their contexts; 0 where that is a reservation, or not known."""
    peak = device.track("mem_used_bytes").peak()
    if peak is None or mem_truth_of(device).kind in _RESERVATIONS:
        return 0.0
    held = peak - (device.mem_before_bytes or 0.0)
    return held if held > CONTEXT_BYTES * max(1, len(device.processes)) else 0.0
