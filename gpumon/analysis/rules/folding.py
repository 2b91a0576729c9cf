"""Which finding folds in which: a root cause its own consequences, on the same devices.

Never across resources: one idle GPU hides no other GPU's finding, and nothing about the host's
memory, the cores or the time (findings, 1.4). Never across time: what a root cause explains lies
for the most part within its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpumon.analysis.finding import Finding
from gpumon.plain import replace

#: says something of all its devices together, so one idle device among them explains it
_OF_DEVICES_TOGETHER = frozenset(("gpu-imbalance",))


Folds = Mapping[str, tuple[str, ...]]


def fold(findings: Iterable[Finding], folds: Folds) -> list[Finding]:
    """The findings in their order; `suppressed_by` set on those that a root cause folds in.

    `folds`: root cause -> its consequences; the first root that covers a finding folds it.
    """
    found = list(findings)
    roots: dict[str, list[Finding]] = {}
    for each in found:
        roots.setdefault(each.id, []).append(each)
    return [_folded(each, _root_of(each, roots, folds)) for each in found]


def _folded(each: Finding, root: str) -> Finding:
    return replace(each, suppressed_by=root) if root != each.suppressed_by else each


def _root_of(each: Finding, roots: dict[str, list[Finding]], folds: Folds) -> str:
    for root, folded in folds.items():
        if each.id in folded and root in roots and _covers(roots[root], each):
            return root
    return ""


def _explains(root: Finding, each: Finding) -> bool:
    """That memory is a reservation explains nothing of what rests on the measured need; and
    information folds no warning in, or it would be lost.
    """
    if root.id.startswith("alloc-all-") and each.mem_truth == "measured":
        return False
    return root.level != "info" or each.level == "info"


def _covers(roots: Iterable[Finding], each: Finding) -> bool:
    """The roots are about all devices of the finding; without devices, about its subject."""
    roots = [root for root in roots if _explains(root, each)]
    if each.devices:
        devices = {label for root in roots if _is_within(each, root) for label in root.devices}
        if each.id in _OF_DEVICES_TOGETHER:
            return bool(devices & set(each.devices))
        return set(each.devices) <= devices
    return any(root.subject in ("job", each.subject) for root in roots)


def _is_within(each: Finding, root: Finding) -> bool:
    """The root surely held for half of the finding's window, where both are known; all of the time
    in which it did not hold may lie there.
    """
    if each.start is None or each.end is None or root.start is None or root.end is None:
        return True
    shared_s = min(each.end, root.end) - max(each.start, root.start)
    absent_s = 0.0 if root.held_s is None else max(0.0, root.end - root.start - root.held_s)
    return shared_s - absent_s >= 0.5 * (each.end - each.start)
