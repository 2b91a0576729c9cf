"""Which finding folds in which: a root cause its own consequences, on the same devices.

Never across resources: one idle GPU hides no other GPU's finding, and nothing about the host's
memory, the cores or the time (findings, 1.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpumon.analysis.finding import Finding

_CONSEQUENCES_OF_IDLE = (
    "gpu-allocated-no-process", "low-busy", "low-sm", "low-power-high-busy", "no-tensor",
    "gpu-mem-headroom", "smaller-gpu", "idle-tail",
)  # fmt: skip
_CONSEQUENCES_OF_RESERVING = ("gpu-mem-full", "gpu-mem-headroom", "smaller-gpu", "gpu-leak")
_WAITING = ("low-busy",)

#: root cause -> what it folds in. The first root in this order that covers a finding folds it.
FOLDS: dict[str, tuple[str, ...]] = {
    "gpu-never-used": _CONSEQUENCES_OF_IDLE,
    "gpus-partly-idle": (*_CONSEQUENCES_OF_IDLE, "gpu-imbalance"),
    "alloc-all-tf": _CONSEQUENCES_OF_RESERVING,
    "alloc-all-jax": _CONSEQUENCES_OF_RESERVING,
    "alloc-all-kv": _CONSEQUENCES_OF_RESERVING,
    "alloc-all-pool": _CONSEQUENCES_OF_RESERVING,
    "suspected-hang": ("low-power-high-busy", "low-sm", "comm-bound"),
    "low-sm": ("low-power-high-busy",),
    "input-bound": _WAITING,
    "host-stall": _WAITING,
    "policy-kill-soon": ("gpu-idle-now",),
    "oom-killed": ("mem-near-limit",),
    "cpu-low": ("cpu-underused",),
}
#: says something of all its devices together, so one idle device among them explains it
_OF_DEVICES_TOGETHER = frozenset(("gpu-imbalance",))


def fold(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in their order; `suppressed_by` set on those that a root cause folds in."""
    found = list(findings)
    roots: dict[str, list[Finding]] = {}
    for each in found:
        roots.setdefault(each.id, []).append(each)
    return [replace(each, suppressed_by=_root_of(each, roots)) for each in found]


def _root_of(each: Finding, roots: dict[str, list[Finding]]) -> str:
    for root, folded in FOLDS.items():
        if each.id in folded and root in roots and _covers(roots[root], each):
            return root
    return ""


def _covers(roots: Iterable[Finding], each: Finding) -> bool:
    """The roots are about all devices of the finding; without devices, about its subject."""
    if each.devices:
        devices = {label for root in roots for label in root.devices}
        if each.id in _OF_DEVICES_TOGETHER:
            return bool(devices & set(each.devices))
        return set(each.devices) <= devices
    return any(root.subject in ("job", each.subject) for root in roots)
