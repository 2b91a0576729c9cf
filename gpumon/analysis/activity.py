"""How much a device was used, by every reading: kernels, codecs, copies, power, filled memory; and
what polls miss.

Busy % and SM activity see kernels alone, and a poll sees a moment. So a device counts as unused
only where every reading that exists is at rest, and where no work can lie between two polls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.once import once
from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    IDLE_POWER_SHARE,
    LINKS,
    idle_power_w,
    job_processes,
    node_of,
    power_limit_w,
)
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
#: memory that is taken ahead of need is no use (`memory.classify`)
_RESERVATIONS = ("tf", "jax", "kv", "pool")


class OtherUse(NamedTuple):
    """`bins` with copies, or with power that only work takes; `traces`: the most that each reading
    shows of use, empty where all were at rest.
    """

    bins: frozenset[int]
    traces: Mapping[str, float]


@once
def other_use(device: DeviceData) -> OtherUse:
    """What shows that a device was used for anything but kernels."""
    working: set[int] = set()
    peaks: dict[str, float] = {}
    for name, (least, what) in _COPIES.items():
        if device.device.mig and name in LINKS:
            continue  # which are the whole device's
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
    return OtherUse(frozenset(working), peaks)


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


#: odds below which a stretch of polls at zero is no chance (proposed)
_CHANCE = 0.01
#: fields that cover all of the time between two samples
_ACCUMULATED = ("busy_max_percent", "sm_active_percent")
#: s that the driver's other readings cover at most; s between polls from which on a program's cycle
#: may be in step with them (proposed)
_WINDOW_S, FAR_S = 5.0, 20.0
#: more energy than the power at the polls explains: as a part of it, and in W
_MORE, _MORE_W = 1.1, 3.0


class Missed(NamedTuple):
    """Buckets whose polls are all zero: in which the device `worked` in part, by the polls beside
    them; and of which it is `unknown`.
    """

    worked: frozenset[int]
    unknown: frozenset[int]


_NONE = Missed(frozenset(), frozenset())


def between_polls(run: RunData, device: DeviceData) -> Missed:
    """A program that worked in some share of the polls beside a stretch shows that many zeros in a
    row by chance. Where the energy counter, which misses nothing, shows more than the polls, they
    are in step with the work, and its share is not known.
    """
    every = run.coverage.interval_s or 0.0
    accumulated = any(device.track(each).known_count() for each in _ACCUMULATED)
    if not device.polled and (accumulated or every < _WINDOW_S):
        return _NONE
    if device.process_list_known and not job_processes(device):
        return _NONE
    active, polls = device.active.mean, max(1.0, run.bin_s / max(every, 1.0))
    known = [n for n, share in enumerate(active) if share == share]
    hits = [n for n in known if active[n] > 0]
    missed = _missed_energy(run, device)
    if missed or (not hits and missed is None and every >= FAR_S):
        return Missed(frozenset(), frozenset(n for n in known if active[n] == 0))
    if not hits:
        return _NONE
    caught = sum(min(1.0, active[n]) for n in hits) * polls
    worked: set[int] = set()
    for first, last in zip([known[0] - 1, *hits], [*hits, known[-1] + 1]):
        gap = [n for n in range(first + 1, last) if active[n] == 0]
        inside = first >= hits[0] and last <= hits[-1]
        beside = (hits[-1] - hits[0] + 1 - (len(gap) if inside else 0)) * polls
        rest = max(0.0, 1 - caught / max(beside, 1.0))
        if gap and len(known) * polls * rest ** (len(gap) * polls) > _CHANCE:
            worked.update(gap)
    return Missed(frozenset(worked), frozenset())


def _missed_energy(run: RunData, device: DeviceData) -> bool | None:
    """Whether it took more energy than its power at the samples tells, even if it took all that it
    may in gaps, which the counter saw, too; None: not known.
    """
    joules, read_w = device.counters.get("energy_j"), device.track("power_w").average()
    node = node_of(run, device)
    if joules is None or read_w is None or node is None or not node.covered_s:
        return None
    if node.gaps:
        if (limit_w := power_limit_w(device)) is None or node.span is None:
            return None
        joules -= limit_w * max(0.0, node.span[1] - node.span[0] - node.covered_s)
    return joules / node.covered_s > _MORE * read_w + _MORE_W
