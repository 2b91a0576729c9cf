"""What the Job screen says of a node: what its devices do together, and what is wrong there."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.reservation import reserves
from gpumon.model.reading import number
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.values import value_of

ACTIVE_PERCENT = 1.0  # a device busier than this works (findings.md 1.2)

#: 0 while all is well; read by the agent every 2 s (throttling) to 60 s
TROUBLES = (
    "throttle_mask", "ecc_uncorrected", "remap_failed", "remap_pending", "retired_pending",
    "recovery_action",
)  # fmt: skip


class DeviceLoad(NamedTuple):
    """The devices of one node, MIG instances in the place of their device."""

    devices: int
    known: int  # those that say how much they work
    active: int  # those of `known` that do
    mem_keys: list[int]  # of devices whose memory in use is known
    mem_used_bytes: float  # theirs together
    mem_total_bytes: float


def device_load(node: NodeView, devices: list[DeviceView], now: float) -> DeviceLoad:
    """Ask the store; only what is true now counts."""
    parents = {device.device.mig.parent for device in devices if device.device.mig}
    own = [device for device in devices if device.device.uuid not in parents]
    found = [busy for device in own if (busy := activity(node, device.key, now)) is not None]
    mem_keys = []
    used_bytes = total_bytes = 0.0
    for device in own:
        used = value_of(node.latest("device", device.key, "mem_used_bytes", now))
        total = number(device.device.facts.get("mem_total_bytes"))
        if used is not None and total:
            mem_keys.append(device.key)
            used_bytes += used
            total_bytes += total
    active = sum(busy >= ACTIVE_PERCENT for busy in found)
    return DeviceLoad(len(own), len(found), active, mem_keys, used_bytes, total_bytes)


def activity(node: NodeView, key: int, now: float) -> float | None:
    """How much a device works: busy %, where there is none (MIG) SM activity."""
    busy = value_of(node.latest("device", key, "busy_percent", now))
    return value_of(node.latest("device", key, "sm_active_percent", now)) if busy is None else busy


class Facts(NamedTuple):
    """What is seldom new of one node, so it may be seconds old; its devices by their keys."""

    failures: list[str]  # of collectors, in words
    troubles: dict[int, dict[str, float]]  # those of TROUBLES that are not 0, last known values
    idle_since: dict[int, float]  # devices that never worked -> since when that is known, node's s
    frameworks: dict[int, str]  # devices -> what takes memory ahead of need there


def facts_of(node: NodeView, devices: list[DeviceView], now: float) -> Facts:
    """Ask the store."""
    keys = [device.key for device in devices]
    return Facts(
        _failures(node, now),
        {key: found for key in keys if (found := _troubles(node, key, now))},
        {key: since for key in keys if (since := _idle_since(node, key)) is not None},
        {key: name for key in keys if (name := reserving_framework(node, key))},
    )


def _failures(node: NodeView, now: float) -> list[str]:
    """Collectors that failed in their latest run."""
    found = []
    for name in node.keys("collector"):
        ok = node.latest("collector", name, "ok", now)
        if number(ok.reading) == 0 and ok.fresh:
            detail = node.latest("collector", name, "detail", now).reading
            found.append(f"the {name} collector failed: {detail}")
    return found


def _troubles(node: NodeView, key: int, now: float) -> dict[str, float]:
    values = {field: number(node.latest("device", key, field, now).reading) for field in TROUBLES}
    return {field: value for field, value in values.items() if value}


def _idle_since(node: NodeView, key: int) -> float | None:
    """Since when this device is watched, if it did nothing since; None also without a reading.

    By the driver's own samples too, which miss no burst between ticks.
    """
    peaks = []
    for field in ("busy_percent", "busy_max_percent"):
        peak = node.peak("device", key, field)
        if peak is not None and peak >= 1:
            return None
        peaks.append(peak)
    return None if peaks == [None, None] else node.first_time("device", key, "busy_percent")


def reserving_framework(node: NodeView, key: int) -> str:
    """The framework on this device that takes memory ahead of need, "" if there is none."""
    for process in node.processes_on(key):
        if reserves(process):
            return process.framework
    return ""
