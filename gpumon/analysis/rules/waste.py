"""GPU-hours that were held and not used, each GPU second counted once.

Every finding claims so many hours on its devices within its window. Where claims overlap, the
surer one (the larger share of its window) keeps its hours, and the other one only what is left of
its own beside them: a long mean that is low because of an idle end claims nothing twice. A claim
takes idle time first; the idle time that no finding claims is wasted, too, and not explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gpumon.analysis.finding import LEVELS, Finding
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import is_allocated, job_devices
from gpumon.analysis.use import idle_shares
from gpumon.plain import replace


class Piece(NamedTuple):
    """A part of a device's time: from, to, and what nobody claimed of it, 0 to 1."""

    since: float
    to: float
    idle: float
    other: float


class Ledger:
    """The time of a run's devices, as far as no finding claimed it."""

    def __init__(
        self, start: float, end: float, idle: Mapping[str, Sequence[Piece]] | None = None
    ) -> None:
        """`idle`: of the devices whose idle time is known, pieces that cover start to end."""
        self._start, self._end = start, max(start, end)
        self._free = {label: list(pieces) for label, pieces in (idle or {}).items()}
        self._idle = dict(idle or {})

    def attribute(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with the waste that is theirs, in the same order; suppressed ones have none.

        The sum over the findings of a device is at most the run's time. A claim without devices or
        without a window is about something else than this run's GPUs (an array's other tasks) and
        stays as it is.
        """
        found = list(findings)
        kept: dict[int, float] = {}
        claims = [n for n, each in enumerate(found) if _claims(each)]
        for n in sorted(claims, key=lambda n: _surest(found[n])):
            each = found[n]
            first, last = max(self._start, each.start or 0), min(self._end, each.end or self._end)
            claims_s = self._shares(each, first, last)
            kept[n] = sum(self._take(device, first, last, s) for device, s in claims_s.items())
        return [
            replace(each, waste_gpu_hours=0.0)
            if each.suppressed_by
            else replace(each, waste_gpu_hours=kept[n] / 3600)
            if n in kept
            else each
            for n, each in enumerate(found)
        ]

    @property
    def unclaimed_gpu_hours(self) -> float:
        """Idle time that no finding explains."""
        pieces = (piece for free in self._free.values() for piece in free)
        return sum((each.to - each.since) * each.idle for each in pieces) / 3600

    def _shares(self, each: Finding, first: float, last: float) -> dict[str, float]:
        """The claim on each device: by its idle time in the window where that covers the claim of
        all of them, else the same on each.
        """
        claim_s = each.waste_gpu_hours * 3600
        idle_s = {
            device: sum(
                max(0.0, min(last, piece.to) - max(first, piece.since)) * piece.idle
                for piece in self._idle.get(device, ())
            )
            for device in each.devices
        }
        in_all_s = sum(idle_s.values())
        if in_all_s < claim_s:
            return dict.fromkeys(each.devices, claim_s / len(each.devices))
        return {device: claim_s * own_s / in_all_s for device, own_s in idle_s.items()}

    def _take(self, device: str, first: float, last: float, claim_s: float) -> float:
        """Claim so much of this window; what was new of it. Idle time first, evenly."""
        if last <= first:
            return 0.0
        pieces = self._free.setdefault(device, [Piece(self._start, self._end, 0.0, 1.0)])
        pieces = list(_split(_split(pieces, first), last))
        inside = [each for each in pieces if first <= each.since and each.to <= last]
        idle_s = sum((each.to - each.since) * each.idle for each in inside)
        other_s = sum((each.to - each.since) * each.other for each in inside)
        taken_s = (last - first) - idle_s - other_s
        new_s = min(max(0.0, claim_s - taken_s), idle_s + other_s)
        of_idle_s = min(new_s, idle_s)
        idle_left = 1 - of_idle_s / idle_s if idle_s else 1.0
        other_left = 1 - (new_s - of_idle_s) / other_s if other_s else 1.0
        self._free[device] = [
            each._replace(idle=each.idle * idle_left, other=each.other * max(0.0, other_left))
            if first <= each.since and each.to <= last
            else each
            for each in pieces
        ]
        return new_s


def _split(pieces: Iterable[Piece], at: float) -> Iterable[Piece]:
    """That one in two in which the time lies."""
    for each in pieces:
        if each.since < at < each.to:
            yield each._replace(to=at)
            yield each._replace(since=at)
        else:
            yield each


def ledger_of(run: RunData) -> Ledger:
    """With the idle time of the devices that a job holds; on other machines nobody wastes it."""
    devices = job_devices(run) if is_allocated(run) else []
    return Ledger(run.start, run.end, {each.label: _pieces(run, each) for each in devices})


def _pieces(run: RunData, device: DeviceData) -> list[Piece]:
    """Bins that are as idle as their neighbours together; what is not known is not idle."""
    at = max(run.start, min(run.end, run.grid_start)) if run.count else run.start
    found = [Piece(run.start, at, 0.0, 1.0)] if at > run.start else []
    n = 0
    for idle, bins in groupby(idle_shares(run, device)):
        n += len(list(bins))
        to = min(run.end, run.grid_start + n * run.bin_s)
        if to > at:
            found.append(Piece(at, to, idle, 1 - idle))
            at = to
    return [*found, Piece(at, run.end, 0.0, 1.0)] if at < run.end else found


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
