"""Where the GPUs of a run were idle: all together, some while others worked, or in turns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import nan
from typing import NamedTuple

from gpumon.analysis.once import once
from gpumon.analysis.phases import between, change_points
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import Span, is_mostly_known, job_devices, observed, phase_bins
from gpumon.analysis.use import other_use

#: what of a stretch may be work: a context, a probe (proposed)
_BLIP_SHARE = 0.02
#: part of the run that is most of it, for stretches with moments of work (proposed)
_THROUGHOUT = 0.9
#: GPUs that work at random would work together in this part of the bins: where it is less, that
#: they do not is chance (proposed)
_CHANCE = 2 * _BLIP_SHARE
#: part of a stretch in which others work, so that one is idle beside them (proposed)
_MOST_WORK = 0.5


class Idle(NamedTuple):
    """Spans in which no GPU worked, but for moments: before the first work, between, after the
    last, or from the run's start to its end.
    """

    start: list[Span]  # at most one
    middle: list[Span]
    end: list[Span]  # at most one
    throughout: list[Span]  # at most one


class Turns(NamedTuple):
    """`most` of `devices` worked at a time, in nearly all bins of `parts` in which any did."""

    devices: list[DeviceData]
    most: int
    parts: list[Span]
    idle_bins: int  # of these devices, while another one worked


def idle_together(run: RunData, least_s: float) -> Idle:
    """Stretches of at least `least_s`; empty where no GPU worked, or their activity is unknown.

    Two that little work separates are one.
    """
    devices, whole = job_devices(run), observed(run)
    worked = _worked(run, 1)
    if not worked:
        return Idle([], [], [], [])
    found = [
        each
        for each in _joined(_gaps(worked, whole), worked)
        if (each.last - each.first) * run.bin_s >= least_s
        and all(is_mostly_known(device.active, each) for device in devices)
    ]
    since_start = [e for e in found if e.first == whole.first and run.coverage.from_start]
    throughout = [each for each in since_start if _is_throughout(each, worked, whole)]
    return Idle(
        [each for each in since_start if each not in throughout],
        [each for each in found if each.first > whole.first and each.last < whole.last],
        [each for each in found if each.last == whole.last and each.first > whole.first],
        throughout,
    )


def _is_throughout(span: Span, worked: Sequence[int], whole: Span) -> bool:
    """To the run's end; or nearly so, with moments of work in it."""
    nearly = span.last - span.first >= _THROUGHOUT * (whole.last - whole.first)
    return span == whole or (nearly and _bins_within(worked, span) > 0)


def idle_alone(run: RunData, device: DeviceData, least_s: float) -> list[Span]:
    """Stretches of at least `least_s` in which others worked, and this device only for moments:
    each from the first of the others' work to the last.
    """
    mine = {n for n, share in enumerate(device.active.mean) if share > 0}
    own = sorted(mine | other_use(device).bins)
    counts, least = _counts(run), run.bins(least_s)
    found = []
    for gap in _joined(_gaps(own, observed(run)), own):
        if gap.last - gap.first < least:
            continue
        others = [n for n in range(*gap) if counts.get(n, 0) > (n in mine)]
        if not others:
            continue
        span = Span(others[0], others[-1] + 1)
        bins = span.last - span.first
        beside = bins >= least and len(others) >= _MOST_WORK * bins
        if beside and is_mostly_known(device.active, span):
            found.append(span)
    return found


def _gaps(worked: Sequence[int], whole: Span) -> list[Span]:
    """The bins between those in which there was work."""
    edges = [whole.first - 1, *worked, whole.last]
    return [
        Span(before + 1, after) for before, after in zip(edges, edges[1:]) if after > before + 1
    ]


def worked_s(run: RunData, spans: Iterable[Span]) -> float:
    """Of these spans, the time in which any GPU worked."""
    worked = _worked(run, 1)
    return sum(_bins_within(worked, span) for span in spans) * run.bin_s


def _bins_within(bins: Sequence[int], span: Span) -> int:
    return bisect_left(bins, span.last) - bisect_left(bins, span.first)


def _worked(run: RunData, least: int) -> list[int]:
    """The bins in which at least so many of the devices worked."""
    return sorted(n for n, count in _counts(run).items() if count >= least)


@once
def _counts(run: RunData) -> dict[int, int]:
    """How many of the devices worked, by bin; of bins in which any did."""
    counts: dict[int, int] = {}
    for device in job_devices(run):
        for n, share in enumerate(device.active.mean):
            if share > 0:
                counts[n] = counts.get(n, 0) + 1
    return counts


def _joined(spans: list[Span], worked: list[int]) -> list[Span]:
    """Those that hardly any work separates become one."""
    found: list[Span] = []
    for span in spans:
        while found:
            both = Span(found[-1].first, span.last)
            if _bins_within(worked, both) > _BLIP_SHARE * (both.last - both.first):
                break
            found.pop()
            span = both
        found.append(span)
    return found


def turns(run: RunData, least_share: float, least_s: float) -> Turns | None:
    """Parts of the run in which devices worked one after another, and never all at a time.

    Each in at least `least_share` of the bins with work, and mostly for `least_s` and longer; None
    where they did not, or it is not known.
    """
    devices, worked = job_devices(run), _worked(run, 1)
    if len(devices) < 2 or not worked:
        return None
    working = Span(worked[0], worked[-1] + 1)
    if not all(is_mostly_known(each.active, working) for each in devices):
        return None
    counts = _counts(run)
    cuts = change_points([float(counts.get(n, nan)) for n in range(*working)], phase_bins(run))
    found = [
        part
        for edges in between([working.first + cut for cut in cuts], *working)
        if (part := _turns(run, Span(*edges), least_share, least_s)) is not None
    ]
    if not found:
        return None
    taking = {device.label for each in found for device in each.devices}
    return Turns(
        [each for each in devices if each.label in taking],
        max(each.most for each in found),
        [span for each in found for span in each.parts],
        sum(each.idle_bins for each in found),
    )


def _turns(run: RunData, span: Span, least_share: float, least_s: float) -> Turns | None:
    devices, counts = job_devices(run), _counts(run)
    bins = [n for n in range(*span) if n in counts]
    if not bins:
        return None
    working = [[each.active.mean[n] > 0 for n in bins] for each in devices]
    shares = [sum(each) / len(bins) for each in working]
    taking = [n for n, share in enumerate(shares) if share >= least_share]
    most = next(
        count
        for count in range(1, len(devices) + 1)
        if sum(counts[n] > count for n in bins) <= _BLIP_SHARE * len(bins)
    )
    if (
        most >= len(taking)
        or _by_chance(shares, most) < _CHANCE
        or not all(_lasts(working[n], run.bins(least_s)) for n in taking)
    ):
        return None
    found = [devices[n] for n in taking]
    idle_bins = sum(each.active.mean[n] == 0 for each in found for n in bins)
    return Turns(found, most, [span], idle_bins)


def _by_chance(shares: Sequence[float], most: int) -> float:
    """How often more than `most` would work at a time if they worked at random."""
    odds = [1.0]  # of so many at a time
    for share in shares:
        odds = [
            (odds[n] if n < len(odds) else 0.0) * (1 - share) + (odds[n - 1] if n else 0.0) * share
            for n in range(len(odds) + 1)
        ]
    return sum(odds[most + 1 :])


def _lasts(working: Sequence[bool], least: int) -> bool:
    """At least half of its work is in stretches of so many bins."""
    lengths = [sum(1 for _ in bins) for works, bins in groupby(working) if works]
    return 2 * sum(each for each in lengths if each >= least) >= sum(lengths)
