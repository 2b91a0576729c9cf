"""What findings weigh: which folds in which, what each wastes, and how certain it is.

A root cause folds in its own consequences, on the same devices: never across resources (one idle
GPU hides no other GPU's finding, and nothing about the host's memory, the cores or the time;
findings, 1.4), and never across time (what it explains lies mostly within its window).

GPU-hours that were held and not used are counted by the ledger, each bucket once. Of findings on
the same bucket the surer one has it: the one of which more of the time was unused. What no finding
has is wasted, too, and not explained. What a finding says of other GPUs than the run's (an array's
other tasks, a summary's) stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

from gpumon.analysis.finding import LEVELS, Finding
from gpumon.analysis.ledger import Ledger, Row, State, ledger_of
from gpumon.analysis.rightsize.proof import is_whole, unrecorded_text
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import observed, seconds_of
from gpumon.analysis.thresholds import Phases, of_site
from gpumon.model.units import age_text, measured_text
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
    return [replace(each, suppressed_by=_root_of(each, roots, folds)) for each in found]


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


#: id of a finding -> the states whose unused time it is about
Wasting = Mapping[str, Sequence[State]]


class _Claim(NamedTuple):
    """A finding, and the buckets of each of its devices that it is about."""

    at: int  # in the list of findings
    found: Finding
    parts: list[tuple[Row, list[int]]]
    unused_s: float
    share: float  # of the time of its spans

    @property
    def order(self) -> tuple[float, int, float, str]:
        level = LEVELS.index(self.found.level)
        return -round(self.share, 3), level, -self.unused_s, self.found.id


def claimed(run: RunData, findings: Iterable[Finding], wasting: Wasting) -> list[Finding]:
    """The findings, with all that was not used in their own buckets."""
    found = list(findings)
    own_s = {each.at: each.unused_s for each in _claims(ledger_of(run), found, wasting)}
    return [_with(each, own_s.get(n)) for n, each in enumerate(found)]


def shared_out(
    run: RunData, findings: Iterable[Finding], wasting: Wasting
) -> tuple[list[Finding], float]:
    """The findings with the waste that is theirs alone, in the same order, and the GPU-hours that
    none has. Suppressed ones have none.
    """
    found, ledger = list(findings), ledger_of(run)
    claims = list(_claims(ledger, found, wasting))
    told: dict[str, set[int]] = {row.device.label: set() for row in ledger.rows}
    own_s = dict.fromkeys((claim.at for claim in claims), 0.0)
    for claim in sorted(claims, key=lambda each: each.order):
        for row, bins in claim.parts:
            known = told[row.device.label]
            own_s[claim.at] += ledger.unused_s(row, (n for n in bins if n not in known))
            known.update(bins)
    rest_s = max(0.0, ledger.waste_s() - sum(own_s.values()))
    return [_with(each, own_s.get(n)) for n, each in enumerate(found)], rest_s / 3600


def _with(found: Finding, own_s: float | None) -> Finding:
    if own_s is not None:
        return replace(found, waste_gpu_hours=own_s / 3600)
    is_none = found.suppressed_by and found.waste_gpu_hours
    return replace(found, waste_gpu_hours=0.0) if is_none else found


def _claims(ledger: Ledger, found: Sequence[Finding], wasting: Wasting) -> Iterator[_Claim]:
    for at, each in enumerate(found if ledger.is_held else ()):
        states = () if each.suppressed_by else wasting.get(each.id, ())
        rows = [row for label in each.devices if (row := ledger.row_of(label)) is not None]
        if not states or not rows:
            continue
        bins = _bins(ledger, each)
        parts = [(row, [n for n in bins if row.states[n] in states]) for row in rows]
        unused_s = sum(ledger.unused_s(row, own) for row, own in parts)
        whole_s = max(1.0, len(rows) * len(bins) * ledger.bin_s)
        yield _Claim(at, each, parts, unused_s, unused_s / whole_s)


def _bins(ledger: Ledger, found: Finding) -> Sequence[int]:
    """The buckets of its spans, in their order; of the whole run where it has none."""

    def at(time: float) -> float:
        return (time - ledger.grid_start) / ledger.bin_s

    spans = [range(max(0, floor(at(start) + 0.01)), min(ledger.count, ceil(at(end) - 0.01)))
             for start, end in found.spans]  # fmt: skip
    return sorted({n for span in spans for n in span}) if spans else range(ledger.count)


def total_gpu_hours(findings: Iterable[Finding]) -> float:
    """Of findings that were attributed: what they say of this run's devices."""
    return sum(
        each.waste_gpu_hours
        for each in findings
        if each.devices and each.start is not None and not each.suppressed_by
    )


def weighed(run: RunData, found: Finding) -> Finding:
    """The finding; in a report as information, with its share, where it held in a small part of
    what was observed and wasted little. What is no condition but an event has no such part.
    """
    if run.live or found.level == "info" or found.held_s is None:
        return found
    t = of_site(run.site, "phases", Phases)
    observed_s = seconds_of(run, [observed(run)])
    if found.held_s >= t.least_percent / 100 * observed_s or found.waste_gpu_hours >= t.gpu_hours:
        return found
    share = f"{age_text(found.held_s)} of {age_text(observed_s)}"
    joint = "; " if found.adds or found.goes_on else ""
    adds = None if found.adds is None else f"{found.adds}{joint}{share}"
    return replace(found, level="info", evidence=f"{found.evidence}; {share}", adds=adds)


def doubted(run: RunData, found: Finding) -> Finding:
    """The finding, with the reason of a low confidence that is its own and not the run's."""
    if found.confidence != "low" or run.sibling_runs or preliminary(run):
        return found
    return replace(found, doubt="Uncertain: no reading shows it directly")


def preliminary(run: RunData) -> str:
    """Why nothing that is found in the run is sure; "" where nothing speaks for that."""
    if run.sibling_runs:
        return ""  # a task's figure has its source beside it
    if not run.has_samples:
        source = "jobstats' summary" if run.coverage.source == "jobstats" else "Slurm's accounting"
        return f"Based on {source} alone"
    if lacking := unrecorded_text(run):
        return f"Preliminary: {lacking}"
    if not is_whole(run) and run.nodes:
        seen_s = min(each.covered_s for each in run.nodes)
        return f"Preliminary: {measured_text(seen_s)} of {age_text(run.elapsed_s)} observed"
    return ""
