"""GPU-hours that were held and not used, each GPU second counted once.

Every finding claims so many hours on its devices within its window. Where claims overlap, the
surer one (the larger share of its window) keeps its hours, and the other one only what is left of
its own beside them: a long mean that is low because of an idle end claims nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import LEVELS, Finding
from gpumon.analysis.signals import job_devices


def allocated_gpu_hours(evidence: Evidence) -> float | None:
    """GPUs held, on nodes without samples too, times elapsed; None: nobody says how many."""
    told = evidence.job.gpus if evidence.job else None
    count = max(len(job_devices(evidence)), told or 0)
    return count * evidence.elapsed_s / 3600 if count or told is not None else None


def attribute(findings: Iterable[Finding], start: float, end: float) -> list[Finding]:
    """The findings with the waste that is theirs, in the same order; suppressed ones have none.

    Between `start` and `end` (epoch s) the sum over the findings of a device is at most that time.
    A claim without devices or without a window is about something else than this run's GPUs (an
    array's other tasks) and stays as it is.
    """
    found = list(findings)
    spent: dict[str, _Spent] = {}
    kept: dict[int, float] = {}
    claims = [n for n, each in enumerate(found) if _claims(each)]
    for n in sorted(claims, key=lambda n: _surest(found[n])):
        each = found[n]
        first, last = max(start, each.start or start), min(end, each.end or end)
        claim_s = each.waste_gpu_hours * 3600 / len(each.devices)
        kept[n] = sum(
            spent.setdefault(device, _Spent()).take(first, last, claim_s)
            for device in dict.fromkeys(each.devices)
        )
    return [
        replace(each, waste_gpu_hours=0.0)
        if each.suppressed_by
        else replace(each, waste_gpu_hours=kept[n] / 3600)
        if n in kept
        else each
        for n, each in enumerate(found)
    ]


def total_gpu_hours(findings: Iterable[Finding]) -> float:
    """Of findings that were attributed: what they say of this run's devices."""
    return sum(each.waste_gpu_hours for each in findings if _claims(each))


def _claims(each: Finding) -> bool:
    known = each.devices and each.start is not None and each.end is not None
    return bool(known) and each.waste_gpu_hours > 0 and not each.suppressed_by


def _surest(each: Finding) -> tuple[float, int, float, str]:
    window_s = max(1e-9, (each.end or 0.0) - (each.start or 0.0)) * len(each.devices)
    share = round(each.waste_gpu_hours * 3600 / window_s, 3)
    return -share, LEVELS.index(each.level), -each.waste_gpu_hours, each.id


@dataclass
class _Spent:
    """What is claimed of one device: (from, to, share of it), in order, not overlapping."""

    pieces: list[tuple[float, float, float]] = field(default_factory=list)

    def take(self, first: float, last: float, claim_s: float) -> float:
        """Claim so much of this window; what was new of it. Fills what is still free, evenly."""
        if last <= first:
            return 0.0
        inside = self._cut(first, last)
        taken_s = sum((to - since) * share for since, to, share in inside)
        free_s = (last - first) - taken_s
        new_s = min(max(0.0, claim_s - taken_s), max(0.0, free_s))
        if new_s > 0:
            rate = new_s / free_s
            outside = [each for each in self.pieces if each[1] <= first or each[0] >= last]
            filled = [(since, to, share + (1 - share) * rate) for since, to, share in inside]
            self.pieces = sorted(outside + filled)
        return new_s

    def _cut(self, first: float, last: float) -> Sequence[tuple[float, float, float]]:
        """Pieces that cover the window, gaps with 0; those across its ends are cut in two."""
        pieces = []
        for since, to, share in self.pieces:
            edges = [since, *(edge for edge in (first, last) if since < edge < to), to]
            pieces += [(a, b, share) for a, b in zip(edges, edges[1:])]
        self.pieces = pieces
        inside = [each for each in pieces if first <= each[0] and each[1] <= last]
        covered = first
        cut = []
        for since, to, share in inside:
            if since > covered:
                cut.append((covered, since, 0.0))
            cut.append((since, to, share))
            covered = to
        return [*cut, (covered, last, 0.0)] if covered < last else cut
