"""Host memory and CPU time of the whole run, where samples show only a part of it.

Samples leave page cache out, but see moments. The kernel's own peak and its counter of CPU time
know the run since the job's start; the peak has page cache in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.accounting import meaning_of, used
from gpumon.analysis.known import highest, total
from gpumon.analysis.rightsize.amounts import kernel_peak, slurm_peak
from gpumon.analysis.rightsize.proof import covers_time, unrecorded_text
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text

#: s between the last samples of nodes that were recorded alike
_TOGETHER_S = 60.0
#: so much more than was sampled is worth a note
_MORE = 1.2


class HostPeak(NamedTuple):
    """Bytes that each node used at its peak; None where nothing was sampled."""

    nodes: Sequence[float | None]
    source: str = "cgroup"  # or sacct, jobstats
    note: str = ""  # on what it rests, where not on samples of the whole run


def why_partly(run: RunData) -> str:
    """Why the samples are not of the whole run; "" where they are."""
    return unrecorded_text(run) or _why_briefly(run)


def _why_briefly(run: RunData) -> str:
    """Why the nodes that were recorded were not so for the whole run; "" where they were."""
    coverage = run.coverage
    if covers_time(run) and not _ended_before_the_peak(run):
        return ""
    if not coverage.from_start:
        return "the recording began late"
    if not coverage.to_end:
        return f"the recording{_of_some(run)} ended early"
    if coverage.longest_gap_s < 1:
        return "a part of the run was not recorded"
    return f"the recording has a gap of {age_text(coverage.longest_gap_s)}"


def _of_some(run: RunData) -> str:
    """` of gpu02`: nodes whose samples end before those of others; "" where all end together."""
    ends = {each.node: each.span[1] for each in run.nodes if each.span is not None}
    last = max(ends.values(), default=0.0)
    early = [clean(node) for node, end in ends.items() if end < last - _TOGETHER_S]
    return f" of {', '.join(early)}" if early else ""


def _ended_before_the_peak(run: RunData) -> bool:
    """Whether Slurm's polls, page cache not counted, saw more than samples that end too early."""
    figures = used(run.job) if run.job is not None and not run.coverage.to_end else None
    if figures is None or figures.is_upper_bound:
        return False
    most = highest(each.mem_peak_bytes for each in run.nodes)
    return (figures.mem_bytes or 0.0) > _MORE * (most or 0.0)


def cache_peak(run: RunData) -> float | None:
    """Page cache of the node that had most, as sampled; None where that is not known."""
    return highest(each.job.get("mem_cache_bytes", Track()).peak() for each in run.nodes)


def host_peak(run: RunData) -> HostPeak:
    """The greatest of what was sampled, the kernel's own peak where that tells more, and Slurm's
    figure where the kernel's does not reach the end of the run.

    A peak between two samples had the page cache that the samples show, which is subtracted; of a
    part that was not sampled no cache is known. Where nodes were not recorded: of the others.
    """
    sampled = [each.mem_peak_bytes for each in run.nodes]
    why = _why_briefly(run)
    peaks = [_with_kernel(run, each, is_sampled=not why) for each in run.nodes]
    if lacking := unrecorded_text(run):
        return HostPeak(peaks, note=_others(run, lacking))
    note = ""
    if peaks != sampled:
        note = "the kernel's own peak between two samples, less the sampled page cache"
        note = f"{why}; the kernel's own peak, page cache included" if why else note
    charged = [each.mem_charged_peak_bytes for each in run.nodes]
    if not why or None in peaks:
        return HostPeak(peaks, note=note)
    if None in charged or not run.coverage.to_end:
        return _with_slurm(run, peaks, note or f"{why}; an earlier peak is not known")
    bound, most = total(charged) or 0.0, total(peaks) or 0.0
    if not note and bound > _MORE * most:
        note = (
            f"{why}: {bytes_text(most)} is the peak recorded, without page cache; the kernel's own "
            f"peak is {bytes_text(bound)}, page cache included"
        )
    return HostPeak(peaks, note=note)


def _others(run: RunData, lacking: str) -> str:
    """That a peak is not of all nodes, and Slurm's own, of the node that used most."""
    figures = used(run.job) if run.job is not None else None
    if figures is None or figures.mem_meaning is None or figures.mem_bytes is None:
        return lacking
    told = f"{bytes_text(figures.mem_bytes)}, {figures.mem_meaning.words}"
    return f"{lacking}; Slurm's peak of a node: {told}"


def _with_kernel(run: RunData, node: NodeData, *, is_sampled: bool) -> float | None:
    kernel = kernel_peak(node)
    alone = len(run.nodes) == 1 and not run.coverage.unrecorded
    if alone and run.job is not None and meaning_of(run.job).cache:
        kernel = highest((kernel, slurm_peak(run)))  # read from the same counter, at the end
    if kernel is None or node.mem_peak_bytes is None:
        return node.mem_peak_bytes
    cache = node.job.get("mem_cache_bytes", Track()).peak() if is_sampled else None
    return max(node.mem_peak_bytes, kernel - (cache or 0.0))


def _with_slurm(run: RunData, peaks: Sequence[float | None], note: str) -> HostPeak:
    """Slurm's figure is of the node that used most."""
    figures = used(run.job) if run.job is not None else None
    most = max(each or 0.0 for each in peaks)
    if figures is None or figures.mem_meaning is None or (figures.mem_bytes or 0.0) <= most:
        return HostPeak(peaks, note=note)
    nodes = list(peaks)
    nodes[nodes.index(most)] = figures.mem_bytes
    words = f"{_why_briefly(run)}; Slurm's peak, {figures.mem_meaning.words}"
    return HostPeak(nodes, figures.source, words)


def counted_core_s(run: RunData) -> float | None:
    """CPU seconds of the whole job by the kernel's counter, where the recording began late; None
    where it did not, or where the end or a node of the run is missing.
    """
    coverage = run.coverage
    if coverage.from_start or not coverage.to_end or len(run.nodes) < requested(run).nodes:
        return None
    return total(number(each.last.get("cpu_s")) for each in run.nodes)
