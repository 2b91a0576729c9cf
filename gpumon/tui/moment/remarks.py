"""What stands out at one moment: the evaluation's findings, and the rules' immediate remarks.

The Job screen and the Nodes screen draw from the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.rules.instant import (
    COMPARED_LEAST_S,
    COMPARED_S,
    KINDS,
    STATES,
    Now,
    Remark,
    instant,
    unsaid,
)
from gpumon.model.fields import ACTIVE_PERCENT
from gpumon.model.view import DeviceView
from gpumon.store import NodeView
from gpumon.tui.moment.cache import Turns
from gpumon.tui.moment.facts import Facts
from gpumon.tui.moment.states import is_well
from gpumon.tui.values import value_of

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.pipeline.evaluator import LiveEvaluation

_BUCKETS = 60
_BACK_ROUND_S = 10  # every node is looked back at so often; one costs up to 2 ms
#: level of a finding or a remark -> role
LEVELS = {"critical": "bad", "warning": "attention", "info": "note", "unknown": "unknown"}


class _Back(NamedTuple):
    """What a look back says of one device."""

    mean: float | None = None  # busy, over COMPARED_S
    idle_s: float = 0.0


class Standing:
    """What stands out. `remarks`: by the newest samples, also where a finding says more."""

    def __init__(
        self, remarks: list[Remark], evaluation: LiveEvaluation | None, silent: set[str]
    ) -> None:
        self.remarks = remarks
        found = None if evaluation is None else evaluation.findings
        self._all = found
        #: without those that are states of a device or node, which screens show as they are now
        self.findings = [
            each
            for each in found or ()
            if each.id not in STATES and not (each.devices and silent.issuperset(each.devices))
        ]

    @cached_property
    def unsaid(self) -> list[Remark]:
        """The remarks that no finding covers."""
        return unsaid(self.remarks, self._all)

    @cached_property
    def of_device(self) -> dict[str, dict[str, Remark]]:
        """All remarks by the label of their device, then by their kind."""
        found: dict[str, dict[str, Remark]] = {}
        for each in self.remarks:
            found.setdefault(each.device, {})[each.kind] = each
        return found

    @cached_property
    def of_node(self) -> dict[str, list[Remark]]:
        """The remarks by the name of their node; without those that any evaluation says better."""
        found: dict[str, list[Remark]] = {}
        for each in self.remarks:
            if self._all is None or not KINDS[each.kind].until_evaluated:
                found.setdefault(node_of(each.device), []).append(each)
        return found

    @cached_property
    def findings_of_node(self) -> dict[str, list[Finding]]:
        """The findings about one node alone, by its name."""
        found: dict[str, list[Finding]] = {}
        for each in self.findings:
            names = set(map(node_of, each.devices)) or {each.subject}
            if len(names) == 1:
                found.setdefault(names.pop(), []).append(each)
        return found


def node_of(label: str) -> str:
    """`gpu01` of `gpu01:0`."""
    return label.rpartition(":")[0]


class _Known(NamedTuple):
    """The devices of one node that are well, as rules take them."""

    facts: Facts
    back: dict[int, _Back]
    keys: list[int]
    nows: list[Now]

    def stands(self, facts: Facts, back: dict[int, _Back], keys: list[int]) -> bool:
        """Whether the node was not asked again since, and the same devices are well."""
        return self.facts is facts and self.back is back and self.keys == keys


class Remarks:
    """Asks nodes, and remembers what looks back over a series."""

    def __init__(self) -> None:
        self._backs: Turns[dict[int, _Back]] = Turns(_BACK_ROUND_S)
        self._known: dict[NodeView, _Known] = {}

    def at(
        self,
        devices: Mapping[NodeView, list[DeviceView]],
        facts: Mapping[NodeView, Facts],
        evaluation: LiveEvaluation | None,
        now: float,
        *,
        silent: set[str],
        in_job: bool,
    ) -> Standing:
        """What stands out of `devices`, instances in the place of theirs; `silent`: labels of
        those that are lost or hung.
        """

        def look_back(node: NodeView) -> dict[int, _Back]:
            return {device.key: _look_back(node, device, now) for device in devices[node]}

        backs = self._backs.of(list(facts), now, look_back)
        known, self._known = self._known, {}
        for node, mine in devices.items():
            well = [device for device in mine if is_well(device)]
            basis = (facts[node], backs[node], [device.key for device in well])
            same = known.get(node)
            if same is None or not same.stands(*basis):
                nows = [_now(node, device, *basis[:2], now, in_job) for device in well]
                same = _Known(*basis, nows)
            self._known[node] = same
        found = [each for same in self._known.values() for each in same.nows]
        site = None if evaluation is None else evaluation.run.site
        return Standing(instant(found, len(facts), site), evaluation, silent)


def label(node: NodeView, device: DeviceView) -> str:
    """`gpu01:0`, as findings name it."""
    return f"{node.name}:{device.device.label}"


def _now(
    node: NodeView,
    device: DeviceView,
    facts: Facts,
    backs: dict[int, _Back],
    now: float,
    in_job: bool,
) -> Now:
    back = backs.get(device.key, _Back())
    since = facts.idle_since.get(device.key)
    return Now(
        label(node, device),
        back.mean,
        back.idle_s,
        0.0 if since is None else now - node.clock_offset_s - since,
        facts.throttled.get(device.key, 0),
        in_job,
        facts.frameworks.get(device.key, ""),
        facts.faults.get(device.key),
    )


def _look_back(node: NodeView, device: DeviceView, now: float) -> _Back:
    at = now - node.clock_offset_s
    first = node.first_time("device", device.key, "busy_percent")
    if first is None or at - (first := max(first, node.since)) < COMPARED_LEAST_S:
        return _Back()
    stats = node.stats("device", device.key, "busy_percent", max(first, at - COMPARED_S), at)
    idle_s = 0.0
    busy = value_of(node.latest("device", device.key, "busy_percent", now))
    if busy is not None and busy < ACTIVE_PERCENT:
        span_s = max(at - first, COMPARED_LEAST_S)
        buckets = node.window("device", device.key, "busy_percent", at, span_s, _BUCKETS)
        for bucket in reversed(buckets):
            if bucket is None or bucket.high >= ACTIVE_PERCENT:
                break
            idle_s += span_s / _BUCKETS
    return _Back(stats.mean, idle_s)
