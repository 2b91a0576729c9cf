"""The Job screen's view of a node: its devices together, and what is wrong there."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.reservation import reserves
from gpumon.analysis.rules.faults import fault_text, faults, is_of_program, xids_of
from gpumon.analysis.rules.instant import SLOWING, Fault
from gpumon.model.fields import ACTIVE_PERCENT, THROTTLE_REASONS
from gpumon.model.reading import number
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.moment.pools import in_use

_SMOOTHED_S = 10.0
_LEAST_SLOWING = min(bit for bit, name in THROTTLE_REASONS if name in SLOWING)
_TICK_S = 0.01  # so that the newest sample counts


def without_parents(devices: list[DeviceView]) -> list[DeviceView]:
    """The devices of one node, MIG instances in the place of their device."""
    parents = {each.device.mig.parent for each in devices if each.device.mig is not None}
    return [each for each in devices if each.device.uuid not in parents] if parents else devices


class DeviceLoad(NamedTuple):
    """What the devices of one node do together."""

    devices: int
    known: int  # those that say how much they work
    active: int  # those of `known` that do
    mem_keys: list[int]  # of devices whose memory in use is known
    mem_used_bytes: float  # theirs together
    mem_total_bytes: float


def device_load(node: NodeView, devices: list[DeviceView], now: float) -> DeviceLoad:
    """Ask the store; only what is true now counts."""
    keys = [device.key for device in devices]
    found = [busy for busy in activities(node, keys, now) if busy is not None]
    mem_keys = []
    used_bytes = total_bytes = 0.0
    for device, used in zip(devices, node.numbers("device", keys, "mem_used_bytes", now)):
        total = number(device.device.facts.get("mem_total_bytes"))
        if used is not None and total:
            mem_keys.append(device.key)
            used_bytes += used
            total_bytes += total
    active = sum(busy >= ACTIVE_PERCENT for busy in found)
    return DeviceLoad(len(devices), len(found), active, mem_keys, used_bytes, total_bytes)


def activities(node: NodeView, keys: list[int], now: float) -> list[float | None]:
    """How much devices work: busy %, where there is none (MIG) SM activity."""
    busy = node.numbers("device", keys, "busy_percent", now)
    if None not in busy:
        return busy
    active = node.numbers("device", keys, "sm_active_percent", now)
    return [other if own is None else own for own, other in zip(busy, active)]


class Facts(NamedTuple):
    """What is seldom new of one node, so it may be seconds old; its devices by their keys."""

    failures: list[str]  # of collectors, in words
    left_out: str  # what of its stream is not kept, as a sentence
    throttled: dict[int, int]  # devices -> why their clocks are lowered, NVML's bits
    idle_since: dict[int, float]  # devices that never worked -> since when that is known, node's s
    #: devices -> what takes memory ahead of need there, nobody knows how far ahead
    frameworks: dict[int, str]
    pools: dict[int, float]  # devices -> bytes in use of what frameworks reserve there
    faults: dict[int, Fault]  # of the devices that have one, as long as nothing is evaluated


def facts_of(node: NodeView, devices: list[DeviceView], now: float, *, is_evaluated: bool) -> Facts:
    keys = [device.key for device in devices]
    masks = {key: _throttled(node, key, now) for key in keys}
    pools = {key: found for key in keys if (found := in_use(node, key, now)) is not None}
    return Facts(
        _failures(node, now),
        node.left_out(),
        {key: mask for key, mask in masks.items() if mask},
        {key: since for key in keys if (since := _idle_since(node, key)) is not None},
        {
            key: name
            for key in keys
            if key not in pools and (name := reserving_framework(node, key))
        },
        {key: found.used_bytes for key, found in pools.items()},
        {} if is_evaluated else _faults(node, keys, now),
    )


def _throttled(node: NodeView, key: int, now: float) -> int:
    """Why its clocks were lowered in the last seconds: the mask with the highest bit.

    Clocks go down and up from sample to sample, and what is said of that should stand still.
    """
    if (node.peak("device", key, "throttle_mask") or 0) < _LEAST_SLOWING:
        return 0
    at = now - node.clock_offset_s
    high = node.stats("device", key, "throttle_mask", at - _SMOOTHED_S, at + _TICK_S).high
    return int(high or 0)


def _faults(node: NodeView, keys: list[int], now: float) -> dict[int, Fault]:
    xids: dict[int | None, list[str]] = {}
    for event in node.events():
        if event.kind == "xid":
            xids.setdefault(event.device, []).append(event.text)
    found = {key: _fault(node, key, xids_of(xids.get(key, ())), now) for key in keys}
    return {key: fault for key, fault in found.items() if fault is not None}


def _fault(node: NodeView, key: int, xids: list[str], now: float) -> Fault | None:
    words = faults(lambda name: node.latest("device", key, name, now).reading)
    if not words and not xids:
        return None
    return Fault(fault_text(words, xids), is_of_program(words, xids))


def _failures(node: NodeView, now: float) -> list[str]:
    """Collectors that failed in their latest run."""
    found = []
    for name in node.keys("collector"):
        ok = node.latest("collector", name, "ok", now)
        if number(ok.reading) == 0 and ok.fresh:
            detail = node.latest("collector", name, "detail", now).reading
            found.append(f"the {name} collector failed: {detail}")
    return found


def _idle_since(node: NodeView, key: int) -> float | None:
    """Since when this device is watched, if it did nothing since; None also without a reading.

    By the driver's own samples too, which miss no burst between ticks.
    """
    peak = node.peak("device", key, "busy_percent")
    first = node.first_time("device", key, "busy_percent")
    is_idle = peak is not None and peak < ACTIVE_PERCENT
    return max(first, node.since) if is_idle and first is not None else None


def reserving_framework(node: NodeView, key: int) -> str:
    """The framework on this device that takes memory ahead of need, "" if there is none."""
    return _reserving(node, key)[0]


def reserved_since(node: NodeView, key: int) -> float:
    """When its process began, epoch s by the node's clock; 0 if there is none."""
    return _reserving(node, key)[1]


def _reserving(node: NodeView, key: int) -> tuple[str, float]:
    for process in node.processes_on(key):
        if reserves(process):
            return process.framework, process.start
    return "", 0.0
