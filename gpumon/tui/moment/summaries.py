"""One line for each node: its devices as cells, its host's load, and what stands out.

The Nodes screen and a Job screen of very many devices draw from here. A node is asked again when
a sample of it came, or because readings age.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

from gpumon.analysis.rules.instant import KINDS, Remark
from gpumon.model.reading import number
from gpumon.model.units import age_text
from gpumon.model.view import DeviceView, Status
from gpumon.store import NodeView
from gpumon.tui.moment import states
from gpumon.tui.moment.cache import Current
from gpumon.tui.moment.facts import activities
from gpumon.tui.moment.remarks import LEVELS, Standing, label

#: how bad, worst first
ROLES = ("bad", "attention", "unknown", "")


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
    def load(self) -> Load:
        return self.ask(self.node)


class Summaries:
    """Computes summaries and remembers them while they are true."""

    def __init__(self) -> None:
        self._loads: dict[str, Current[Load]] = {metric.name: Current() for metric in METRICS}

    def all(
        self,
        devices: Mapping[NodeView, list[DeviceView]],
        metric: str,
        now: float,
        standing: Standing,
        status: Callable[[NodeView], Status],
    ) -> list[Summary]:
        """A summary for each node of `devices`, which MIG instances replace."""

        def ask(node: NodeView) -> Load:
            return _load(node, devices[node], metric, now)

        def load(node: NodeView) -> Load:
            return self._loads[metric].of(node, now, ask)

        found = []
        have_all_ended = len(devices) > 1 and all(status(node).state == "ended" for node in devices)
        for node, mine in devices.items():
            its = None if have_all_ended else status(node)  # the title says it once
            level, remark = _standing_out(node, mine, standing, its, now)
            found.append(Summary(node, len(mine), level, remark, load))
        return found


def in_order(found: list[Summary], sort: str, *, reverse: bool) -> list[Summary]:
    """Sorted by one of SORTS: the worst or the largest first; what is not known comes last."""
    found = sorted(found, key=lambda summary: _natural(summary.node.name))
    if sort == "worst":
        found.sort(key=lambda summary: ROLES.index(summary.level))  # the rest stands still
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
    load = summary.load
    host = load.host
    if sort == "network":
        both = (host.rx_bytes_per_s, host.tx_bytes_per_s)
        return None if None in both else sum(value or 0.0 for value in both)
    return {"cells": load.mean, "cpu": host.cpu_percent, "memory": host.mem_used_bytes}[sort]


def _load(node: NodeView, devices: list[DeviceView], metric: str, now: float) -> Load:
    cells = _cells(node, devices, metric, now)
    values = [cell.value for cell in cells if cell.value is not None]
    return Load(cells, sum(values) / len(values) if values else None, _host(node, now))


def _cells(node: NodeView, devices: list[DeviceView], metric: str, now: float) -> tuple[Cell, ...]:
    keys = [device.key for device in devices]

    def numbers(field: str) -> list[float | None]:
        return node.numbers("device", keys, field, now)

    if metric == "busy":
        values = activities(node, keys, now)
        shares = [None if value is None else value / 100 for value in values]
    elif metric == "mem":
        shares = list(map(_ratio, numbers("mem_used_bytes"), _facts(devices, "mem_total_bytes")))
        values = [None if share is None else share * 100 for share in shares]
    elif metric == "power":
        values = numbers("power_w")
        limits = (
            number(node.latest("device", key, "power_limit_w", now).reading) or limit
            for key, limit in zip(keys, _facts(devices, "power_limit_default_w"))
        )
        shares = list(map(_ratio, values, limits))
    else:
        values = numbers("temperature_c")
        slow = (each or 90.0 for each in _facts(devices, "temperature_slowdown_c"))
        shares = [
            None if value is None else max(0.0, value - 30) / max(most - 30, 1.0)
            for value, most in zip(values, slow)
        ]
    return tuple(
        Cell(None, None, "hung" if states.kind_of(device) == "hung" else "lost")
        if states.is_silent(device)
        else Cell(value, share)
        for device, value, share in zip(devices, values, shares)
    )


def _facts(devices: list[DeviceView], name: str) -> list[float | None]:
    return [number(device.device.facts.get(name)) for device in devices]


def _ratio(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None


def _host(node: NodeView, now: float) -> Host:
    def pairs(entity: str, *fields: str) -> Iterator[tuple[Any, ...]]:
        """The keys for which both fields are known, and those."""
        keys = [key for key in node.keys(entity) if isinstance(key, str)]
        columns = (node.numbers(entity, keys, field, now) for field in fields)
        return (each for each in zip(keys, *columns) if None not in each)

    traffic = [(rx, tx) for _, rx, tx in pairs("net", "rx_bytes_per_s", "tx_bytes_per_s")]
    rx, tx = max(traffic, key=sum) if traffic else (None, None)
    disks = [
        (used / total * 100, label)
        for label, used, total in pairs("disk", "used_bytes", "total_bytes")
        if total
    ]
    percent, label = max(disks) if disks else (None, "")
    cpu, mem = (
        node.numbers("host", [""], field, now)[0] for field in ("cpu_percent", "mem_used_bytes")
    )
    return Host(cpu, mem, rx, tx, label, percent)


def _standing_out(
    node: NodeView, devices: list[DeviceView], standing: Standing, status: Status | None, now: float
) -> tuple[str, str]:
    """The level of the worst, and all there is to say, worst first.

    status: of its stream; None where that is not to be repeated.
    """
    said = [] if status is None or status.state == "live" else [states.stream(status, now)]
    said += _silent(devices)
    if status is None or status.state == "live":
        remarks = standing.of_node.get(node.name, [])
        said += remark_words(node, devices, remarks)
        kinds = [KINDS[each.kind].rules for each in remarks if each.kind in BRIEF]
        brief = {id for rules in kinds for id in rules}
        said += [
            (LEVELS[each.level], each.title.rstrip("."))
            for each in standing.findings_of_node.get(node.name, ())
            if each.id not in brief and each.level != "info"
        ]
    said.sort(key=lambda each: ROLES.index(each[0]))
    return (said[0][0] if said else ""), ", ".join(words for _, words in said)


def _silent(devices: list[DeviceView]) -> list[tuple[str, str]]:
    if all(map(states.is_well, devices)):
        return []
    lost = [device for device in devices if states.kind_of(device) in ("gone", "lost")]
    hung = [device for device in devices if states.kind_of(device) == "hung"]
    return [
        ("bad", states.brief(kind, some, _names(some, devices)))
        for kind, some in (("lost", lost), ("hung", hung))
        if some
    ]


#: kinds of remarks that the line of a node has room for; {some} is empty if all devices are meant
BRIEF = {
    "faulty": "{some}{detail}",
    "own-fault": "{some}{detail}",
    "idle": "{some}idle {age}",
    "slow": "{some}busy {value:.0f} % below the median",
}


def remark_words(
    node: NodeView, devices: list[DeviceView], remarks: Sequence[Remark]
) -> list[tuple[str, str]]:
    """(level, words) of each kind that is brief."""
    if not remarks:
        return []
    well = [each for each in devices if states.is_well(each)]
    found = []
    for kind, words in BRIEF.items():
        mine = [each for each in remarks if each.kind == kind]
        values = {each.device: each.value for each in mine}
        some = [device for device in well if label(node, device) in values]
        if not some:
            continue
        who = "" if len(some) == len(well) else f"{_names(some, devices)} "
        age = age_text(min(values.values()))
        detail = "; ".join(dict.fromkeys(each.detail for each in mine))
        text = words.format(some=who, age=age, value=fmean(values.values()), detail=detail)
        found.append((LEVELS[KINDS[kind].level], text))
    return found


def _names(some: list[DeviceView], devices: list[DeviceView]) -> str:
    """`GPU 3`, `GPUs 3 and 5`, `6 of 8 GPUs`."""
    labels = [device.device.label for device in some]
    if len(labels) == 1:
        return f"GPU {labels[0]}"
    if len(labels) <= 3:
        return f"GPUs {', '.join(labels[:-1])} and {labels[-1]}"
    return f"{len(labels)} of {len(devices)} GPUs"
