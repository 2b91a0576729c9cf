"""One line for each node: its devices as cells, its host's load, and what stands out.

The Nodes screen and a Job screen of very many devices draw from here. A node is asked again when
a sample of it came, or because readings age; what looks back over a series (means, how long it is
idle), only in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.model.view import DeviceView, Status
from gpumon.store import NodeView
from gpumon.tui.asking import Current, Turns
from gpumon.tui.values import lost_detail, value_of

IDLE_PERCENT = 1.0  # below that a device does nothing (findings.md 1.2)
IDLE_AFTER_S = 60.0  # shorter pauses are no news
STRAGGLER_SHARE = 0.2  # of the median: further below, and it is named (findings.md, straggler)
STRAGGLER_NODES = 3  # of fewer there is no telling which one is the exception
BACK_S = 300.0  # the stretch over which nodes are compared
_SHORTEST_S = 60.0  # measured at least so long before they are
_BUCKETS = 60
_BACK_ROUND_S = 10  # every node is looked back at so often; one costs up to 2 ms
#: how bad, worst first
LEVELS = ("bad", "attention", "unknown", "")


class Metric(NamedTuple):
    """What the cells can show: `name`, its heading, and the role of its glyphs."""

    name: str
    heading: str
    role: str


METRICS = (
    Metric("busy", "busy %", "busy"),
    Metric("mem", "mem %", "mem"),
    Metric("power", "power W", "fourth"),
    Metric("temperature", "temp °C", "third"),
)
SORTS = ("worst", "name", "cells", "cpu", "memory", "network")


class Cell(NamedTuple):
    """One device: the metric, and its share of the scale from 0 to 1; `trouble`: lost or hung."""

    value: float | None
    share: float | None
    trouble: str = ""


class Host(NamedTuple):
    """The node beside its devices; None: not known now."""

    cpu_percent: float | None = None
    mem_used_bytes: float | None = None
    rx_bytes_per_s: float | None = None  # of the interface with the most traffic
    tx_bytes_per_s: float | None = None
    disk: str = ""  # label of the fullest file system that a job can fill
    disk_percent: float | None = None


class Load(NamedTuple):
    """What a node does now. `mean`: of the metric over its devices."""

    cells: tuple[Cell, ...]
    mean: float | None
    host: Host


class Summary(NamedTuple):
    """One node as a row; its load is asked for when the row is seen, or sorted by it."""

    node: NodeView
    devices: int
    level: str
    remark: str
    ask: Callable[[NodeView], Load]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.ask(self.node).cells

    @property
    def mean(self) -> float | None:
        return self.ask(self.node).mean

    @property
    def host(self) -> Host:
        return self.ask(self.node).host


class _Back(NamedTuple):
    """What a look back says of one device."""

    mean: float | None  # busy, over BACK_S
    idle_s: float


class Summaries:
    """Computes summaries and remembers them while they are true."""

    def __init__(self) -> None:
        self._loads: dict[str, Current[Load]] = {metric.name: Current() for metric in METRICS}
        self._backs: Turns[dict[int, _Back]] = Turns(_BACK_ROUND_S)

    def all(
        self, nodes: list[NodeView], devices: list[tuple[NodeView, DeviceView]],
        metric: str, now: float,
    ) -> list[Summary]:  # fmt: skip
        """A summary for each node, in the nodes' order; devices as the screen shows them."""
        mine: dict[str, list[DeviceView]] = {node.name: [] for node in nodes}
        parents = {device.device.mig.parent for _, device in devices if device.device.mig}
        for node, device in devices:
            if device.device.uuid not in parents:  # its instances stand for it
                mine[node.name].append(device)

        def look_back(node: NodeView) -> dict[int, _Back]:
            return {device.key: _look_back(node, device, now) for device in mine[node.name]}

        def ask(node: NodeView) -> Load:
            return _load(node, mine[node.name], metric, now)

        def load(node: NodeView) -> Load:
            return self._loads[metric].of(node, now, ask)

        backs = self._backs.of(nodes, now, look_back)
        means = [back.mean for by_key in backs.values() for back in by_key.values()]
        known = [mean for mean in means if mean is not None]
        middle = median(known) if len(nodes) >= STRAGGLER_NODES and known else None
        found = []
        for node in nodes:
            devices_of = mine[node.name]
            level, remark = _verdict(devices_of, node.status(now), backs[node], middle, now)
            found.append(Summary(node, len(devices_of), level, remark, load))
        return found


def in_order(found: list[Summary], sort: str, *, reverse: bool) -> list[Summary]:
    """Sorted by one of SORTS: the worst or the largest first; what is not known comes last."""
    found = sorted(found, key=lambda summary: _natural(summary.node.name))
    if sort == "worst":
        found.sort(key=lambda summary: LEVELS.index(summary.level))  # the rest stands still
    elif sort != "name":
        known = [summary for summary in found if _figure(summary, sort) is not None]
        known.sort(key=lambda summary: _figure(summary, sort) or 0.0, reverse=not reverse)
        return known + [summary for summary in found if _figure(summary, sort) is None]
    return found[::-1] if reverse else found


@lru_cache(maxsize=4096)
def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """gpu2 before gpu10."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part[:15]), "") if part.isdecimal() else (-1, part) for part in parts)


def _figure(summary: Summary, sort: str) -> float | None:
    host = summary.host
    if sort == "network":
        both = (host.rx_bytes_per_s, host.tx_bytes_per_s)
        return None if None in both else sum(value or 0.0 for value in both)
    return {"cells": summary.mean, "cpu": host.cpu_percent, "memory": host.mem_used_bytes}[sort]


def _load(node: NodeView, devices: list[DeviceView], metric: str, now: float) -> Load:
    cells = tuple(_cell(node, device, metric, now) for device in devices)
    values = [cell.value for cell in cells if cell.value is not None]
    return Load(cells, sum(values) / len(values) if values else None, _host(node, now))


def _cell(node: NodeView, device: DeviceView, metric: str, now: float) -> Cell:
    state = device.state
    if device.gone or (state is not None and state.state in ("lost", "hung")):
        return Cell(None, None, "hung" if state and state.state == "hung" else "lost")

    def value(field: str) -> float | None:
        return value_of(node.latest("device", device.key, field, now))

    if metric == "busy":
        busy = value("busy_percent")
        busy = value("sm_active_percent") if busy is None else busy  # MIG has no busy
        return Cell(busy, None if busy is None else busy / 100)
    facts = device.device.facts
    if metric == "mem":
        used, total = value("mem_used_bytes"), number(facts.get("mem_total_bytes"))
        share = used / total if used is not None and total else None
        return Cell(None if share is None else share * 100, share)
    if metric == "power":
        power = value("power_w")
        limit = number(node.latest("device", device.key, "power_limit_w", now).reading)
        limit = limit or number(facts.get("power_limit_default_w"))
        return Cell(power, power / limit if power is not None and limit else None)
    heat = value("temperature_c")
    slow = number(facts.get("temperature_slowdown_c")) or 90.0
    return Cell(heat, None if heat is None else max(0.0, heat - 30) / max(slow - 30, 1.0))


def _host(node: NodeView, now: float) -> Host:
    def value(entity: str, key: int | str, field: str) -> float | None:
        return value_of(node.latest(entity, key, field, now))

    traffic = [
        (rx, tx)
        for key in node.keys("net")
        if isinstance(key, str)
        and (rx := value("net", key, "rx_bytes_per_s")) is not None
        and (tx := value("net", key, "tx_bytes_per_s")) is not None
    ]
    rx, tx = max(traffic, key=sum) if traffic else (None, None)
    disks = [
        (used / total * 100, str(key))
        for key in node.keys("disk")
        if isinstance(key, str)
        and (used := value("disk", key, "used_bytes")) is not None
        and (total := value("disk", key, "total_bytes"))
    ]
    percent, label = max(disks) if disks else (None, "")
    cpu, mem = value("host", "", "cpu_percent"), value("host", "", "mem_used_bytes")
    return Host(cpu, mem, rx, tx, label, percent)


def _look_back(node: NodeView, device: DeviceView, now: float) -> _Back:
    at = now - node.clock_offset_s
    first = node.first_time("device", device.key, "busy_percent")
    if first is None or at - first < _SHORTEST_S:
        return _Back(None, 0.0)
    stats = node.stats("device", device.key, "busy_percent", at - BACK_S, at)
    idle_s = 0.0
    busy = value_of(node.latest("device", device.key, "busy_percent", now))
    if busy is not None and busy < IDLE_PERCENT:
        span_s = max(at - first, _SHORTEST_S)
        buckets = node.window("device", device.key, "busy_percent", at, span_s, _BUCKETS)
        for bucket in reversed(buckets):
            if bucket is None or bucket.high >= IDLE_PERCENT:
                break
            idle_s += span_s / _BUCKETS
    return _Back(stats.mean, idle_s)


def _verdict(
    devices: list[DeviceView], status: Status, backs: dict[int, _Back], middle: float | None,
    now: float,
) -> tuple[str, str]:  # fmt: skip
    """The level of the worst, and all there is to say, worst first."""
    said = [status_words(status, now)] if status.state != "live" else []
    said += _troubles(devices)
    if status.state == "live":
        said += _idle_or_slow(devices, backs, middle)
    said.sort(key=lambda each: LEVELS.index(each[0]))
    return (said[0][0] if said else ""), ", ".join(words for _, words in said)


def status_words(status: Status, now: float) -> tuple[str, str]:
    """The stream in its own words, with the way it came by: `lost by ssh: connection refused`."""
    level = {"connecting": "unknown", "stale": "bad", "lost": "bad"}.get(status.state, "")
    detail = clean(status.detail)
    if status.state == "stale":
        return level, detail or "stale"
    words = f"{status.state} by {status.source}" if status.source else status.state
    if status.state == "lost" and status.since > 0:
        words += f" {age_text(now - status.since)} ago"
    return level, f"{words}: {detail}" if detail else words


def _troubles(devices: list[DeviceView]) -> list[tuple[str, str]]:
    found = []
    lost = [d for d in devices if d.gone or (d.state is not None and d.state.state == "lost")]
    if lost:
        whys = {lost_detail(device.state) for device in lost if device.state is not None}
        why = ", ".join(sorted(filter(None, whys)))
        found.append(("bad", f"{_names(lost, devices)} lost" + (f" ({why})" if why else "")))
    hung = [d for d in devices if d.state is not None and d.state.state == "hung" and not d.gone]
    if hung:
        found.append(("bad", f"{_names(hung, devices)}: no answer"))
    return found


def _idle_or_slow(
    devices: list[DeviceView], backs: dict[int, _Back], middle: float | None
) -> list[tuple[str, str]]:
    well = [d for d in devices if d.key in backs and d.state is None and not d.gone]
    idle = [d for d in well if backs[d.key].idle_s >= IDLE_AFTER_S]
    found = []
    if idle:
        least_s = min(backs[device.key].idle_s for device in idle)
        who = "" if len(idle) == len(well) else f"{_names(idle, devices)} "
        found.append(("attention", f"{who}idle {age_text(least_s)}"))
    means = {device.key: backs[device.key].mean for device in well if device not in idle}
    slow = [
        device
        for device in well
        if middle
        and (mean := means.get(device.key)) is not None
        and mean < middle * (1 - STRAGGLER_SHARE)
    ]
    if slow and middle:
        mean = sum(means[device.key] or 0.0 for device in slow) / len(slow)
        who = "" if len(slow) == len(well) else f"{_names(slow, devices)} "
        found.append(("attention", f"{who}busy {(1 - mean / middle) * 100:.0f} % below the median"))
    return found


def _names(some: list[DeviceView], devices: list[DeviceView]) -> str:
    """`GPU 3`, `GPUs 3 and 5`, `6 of 8 GPUs`."""
    labels = [device.device.label for device in some]
    if len(labels) == 1:
        return f"GPU {labels[0]}"
    if len(labels) <= 3:
        return f"GPUs {', '.join(labels[:-1])} and {labels[-1]}"
    return f"{len(labels)} of {len(devices)} GPUs"
