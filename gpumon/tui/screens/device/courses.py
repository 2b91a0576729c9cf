"""The readings of a device over time, a lane each."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text, rate_text
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.moment.pools import in_use
from gpumon.tui.parts.lanes import Lane, lane_of, short_bytes
from gpumon.tui.parts.plots import THROTTLED, Layer
from gpumon.tui.values import celsius, percent, watts

#: names as on every other screen
_SHARES = (
    ("busy_percent", "busy", "busy"),
    ("sm_active_percent", "SM", "busy"),
    ("tensor_active_percent", "tensor", "third"),
    ("dram_active_percent", "DRAM", "mem"),
    ("sm_occupancy_percent", "occupancy", "fourth"),
)
#: the others, by the field that says whether there is any
_OTHERS = (
    ("mem_used_bytes", "GPU memory"), ("power_w", "power"), ("sm_clock_mhz", "SM clock"),
    ("temperature_c", "temperature"), ("pcie_rx_bytes_per_s", "PCIe"),
    ("nvlink_rx_bytes_per_s", "NVLink"),
)  # fmt: skip
#: each direction of a link has a lane; both have the scale of the larger
_LINKS = (("PCIe", "pcie"), ("NVLink", "nvlink"))
#: reasons of readings that are on their way
_SOON = ("measuring", "not-sampled")
_LEAST_RATE = float(1 << 20)  # B/s that a scale of a link ends at


def courses(node: NodeView, device: DeviceView, now: float) -> list[Lane]:
    """Those of which anything is known, in an order that makes related ones neighbours."""
    found = [*_shares(node, device, now), *_levels(node, device, now)]
    memory = _memory(node, device, now)
    if memory is not None:
        found.insert(min(1, len(found)), memory)
    return [*found, *_links(node, device, now)]


def absent(node: NodeView, device: DeviceView, now: float) -> str:
    """Which have no lane, and why: `SM, tensor n/a needs Hopper or later`."""
    names: dict[str, list[str]] = {}
    for field, label in (*((field, label) for field, label, _ in _SHARES), *_OTHERS):
        reading = node.latest("device", device.key, field, now).reading
        if not isinstance(reading, Missing) or reading.reason in _SOON:
            continue
        if not _known(node, device, field):
            names.setdefault(str(reading), []).append(label)
    return " · ".join(f"{', '.join(labels)} {why}" for why, labels in names.items())


def _known(node: NodeView, device: DeviceView, field: str) -> bool:
    return node.first_time("device", device.key, field) is not None


def _shares(node: NodeView, device: DeviceView, now: float) -> Iterator[Lane]:
    """Busy and SM have another colour while the clocks were lowered, as on the Job screen."""
    for field, label, role in _SHARES:
        if _known(node, device, field):
            lane = lane_of(
                node, "device", device.key, field, label, role, percent, 100.0, "100", now
            )
            tint = [THROTTLED] if role == "busy" else []
            yield lane._replace(layers=[*lane.layers, *tint])


def _memory(node: NodeView, device: DeviceView, now: float) -> Lane | None:
    total = number(device.device.facts.get("mem_total_bytes"))
    if not total or not _known(node, device, "mem_used_bytes"):
        return None
    lane = lane_of(
        node, "device", device.key, "mem_used_bytes", "GPU memory", "mem", bytes_text, total,
        short_bytes(total), now,
    )  # fmt: skip
    pool = in_use(node, device.key, now)
    if pool is None or pool.pid is None:
        return lane
    used = Layer("used_bytes", "mem", "area", entity="pool", key=(device.key, pool.pid))
    reserved = lane.layers[0]._replace(role="hatch", kind="hatch", since=pool.since)
    held = number(node.latest("device", device.key, "mem_used_bytes", now).reading)
    note = f"in use of {short_bytes(held)}" if held is not None else "in use"
    return lane._replace(
        value=(bytes_text(pool.used_bytes), "mem"), note=note, layers=[used, reserved]
    )


def _mhz(value: float) -> str:
    return f"{value:.0f} MHz"


def _levels(node: NodeView, device: DeviceView, now: float) -> Iterator[Lane]:
    """Power against its limit, clocks against the highest, heat against where it slows down."""
    facts = device.device.facts
    limit = number(node.latest("device", device.key, "power_limit_w", now).reading)
    limit = limit or number(facts.get("power_limit_default_w")) or 400.0
    fastest = number(facts.get("sm_clock_max_mhz")) or 2000.0
    slow = number(facts.get("temperature_slowdown_c"))
    for field, label, role, form, high in (
        ("power_w", "power", "fourth", watts, limit),
        ("sm_clock_mhz", "SM clock", "third", _mhz, fastest),
        ("temperature_c", "temperature", "fourth", celsius, slow or 100.0),
    ):
        if _known(node, device, field):
            high = max(high, node.peak("device", device.key, field, past=True) or 0.0)
            top = f"{high:.0f}"
            yield lane_of(node, "device", device.key, field, label, role, form, high, top, now)


def _links(node: NodeView, device: DeviceView, now: float) -> Iterator[Lane]:
    for label, prefix in _LINKS:
        ways = ((f"{prefix}_rx_bytes_per_s", "↓", "busy"), (f"{prefix}_tx_bytes_per_s", "↑", "mem"))
        peaks = [node.peak("device", device.key, field, past=True) for field, _, _ in ways]
        known = [peak for peak in peaks if peak is not None]
        high = max(_LEAST_RATE, *known) if known else 0.0
        for field, sign, role in ways if known else ():
            yield lane_of(
                node, "device", device.key, field, f"{label} {sign}", role, rate_text, high,
                short_bytes(high), now,
            )  # fmt: skip
