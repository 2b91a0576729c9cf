"""Which part of a run its frames cover, and the nodes of which there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from gpumon.analysis.rundata import Coverage, Track
from gpumon.frames.frame import Frame

if TYPE_CHECKING:
    from gpumon.slurm.job import Job

#: samples that begin within a minute of the job's start cover it from the start
_NEAR_S = 60.0
#: s; Slurm counts whole seconds, and processes stop and go on some seconds later
_SUSPENDED_NEAR_S = 15.0


def span_of(job: Job | None, nodes: Sequence[Frame], live: bool) -> tuple[float, float]:
    """When the run began and ended: by Slurm, else by the job's environment, else by samples.

    `nodes`: those with samples.
    """
    first = min((node.samples.first for node in nodes), default=None)
    last = max((node.samples.last for node in nodes), default=None)
    told = [job.start if job is not None else None]
    told += [node.header.job.start for node in nodes if node.header and node.header.job]
    start = next((time for time in told if time is not None), first)
    ended = job.end if job is not None and job.has_ended and not live else None
    end = last if ended is None else ended
    if start is None:
        start = end if end is not None else 0.0
    return start, max(start, end if end is not None else start)


def coverage_of(
    nodes: Mapping[str, Frame],
    job: Job | None,
    start: float,
    end: float,
    live: bool,
    suspended_s: float,
) -> Coverage:
    """Of nodes whose header is known."""
    source = "live" if live else "recording"
    seen = [node.samples for node in nodes.values() if node.samples.seen]
    silent = [name for name, node in nodes.items() if not node.samples.seen]
    absent = _absent(nodes, job)
    missing = dict.fromkeys(silent, "no sample came from this node")
    missing |= dict.fromkeys(absent, "this node was not recorded")
    unrecorded = (*silent, *absent)
    headers = [node.header for node in nodes.values() if node.samples.seen]
    interval_s = max((each.interval_s for each in headers if each is not None), default=None)
    if interval_s is None:
        return Coverage(source, 0.0, None, missing=missing, unrecorded=unrecorded)
    # each of n samples stands for one interval, also the last
    run_s = max(end - start, max(each.last - each.first for each in seen) + interval_s)
    run_s = max(run_s - suspended_s, interval_s)
    covered_s = sum(min(each.total_s, run_s) for each in seen)
    return Coverage(
        source=source,
        covered_percent=100 * covered_s / (len(nodes) + len(absent)) / run_s,
        interval_s=interval_s,
        gaps=sum(each.gaps for each in seen),
        longest_gap_s=max(each.longest_gap_s for each in seen),
        from_start=all(each.first <= start + _NEAR_S for each in seen),
        to_end=live or all(each.last >= end - _NEAR_S for each in seen),
        missing=missing,
        unrecorded=unrecorded,
    )


def _absent(nodes: Mapping[str, Frame], job: Job | None) -> list[str]:
    """The job's nodes that are not among these. No more than these are too few: a node may have
    another name in Slurm than its host has.
    """
    here = {name.partition(".")[0] for name in nodes}
    listed = job.nodes if job is not None else ()
    absent = [name for name in listed if name.partition(".")[0] not in here]
    return absent[: max(0, len(listed) - len(nodes))]


def holes_of(covered: Track, bin_s: float) -> list[float]:
    """Seconds of each stretch between samples that has a bin without any."""
    known = [share == share for share in covered.mean]
    runs = [(is_known, len(list(same))) for is_known, same in groupby(known)]
    return [count * bin_s for is_known, count in runs[1:-1] if not is_known]


def without_suspension(
    coverage: Coverage, holes: Sequence[Sequence[float]], suspended_s: float
) -> Coverage:
    """Its gaps less those in which the job was suspended, so that nothing was lost: the longest of
    each node.

    Slurm's accounting tells for how long it was suspended in all, but not when.
    """
    gaps, longest_s = coverage.gaps, 0.0
    for own in holes:
        left_s = suspended_s + _SUSPENDED_NEAR_S
        for hole in sorted(own, reverse=True):
            if hole <= left_s:
                left_s -= hole
                gaps -= 1
            else:
                longest_s = max(longest_s, hole)
    gaps = max(gaps, 0)
    return replace(coverage, gaps=gaps, longest_gap_s=min(longest_s, coverage.longest_gap_s))
