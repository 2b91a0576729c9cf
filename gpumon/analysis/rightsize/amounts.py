"""How much a job needed: memory, time; on what that rests, and how sure it is.

Formulas: jobstats' rounding, with the maximum over nodes and time in place of its mean; UVA's 10 to
25 % more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, inf
from statistics import median

from gpumon.analysis.accounting import POLL_S, Used, has_completed, is_polled, out_of_memory, used
from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.known import highest
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.leaking import host_leaks
from gpumon.analysis.rightsize.proof import (
    CLOSE_S,
    PARTLY,
    is_close,
    is_whole,
    is_worth,
    unrecorded_text,
)
from gpumon.analysis.rightsize.requested import node_types, requested
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.thresholds import LowCoverage, of_site
from gpumon.model.reading import number
from gpumon.model.units import bytes_text, plural
from gpumon.plain import dataclass
from gpumon.slurm.job import Job

GIB = 1 << 30
MIB = 1 << 20
_STEP_S, _QUARTER_S, _HOUR_S = 300, 900, 3600
#: times the longest run; of runs whose longest took so many times the median (proposed)
_TIME_MARGIN, _VARIED_MARGIN, _ALIKE = 1.25, 2.0, 1.5
#: a shorter limit that saves less of the old one is not worth a change
_LEAST_TIME = 0.15
#: so much more than the greatest sample is a peak between two samples
_BETWEEN_SAMPLES = 1.05
#: of memory that was polled every half minute: programs hold twice their state while they load or
#: save it, for seconds
POLLED_FACTOR = 2.0
#: s; samples so close together show such a moment
_SPIKE_S = 1.5
#: s; samples further apart show nothing of what lies between, where the kernel keeps no peak
_ALONE_S = 2.0
#: times its length that a run whose memory leaks is to last
_LEAK_LONGER = 1.5
#: times the request, where no size of a node bounds what a leak at its pace would need (proposed)
_MOST_TIMES = 4


@dataclass(frozen=True)
class Need:
    """So much, and why. For memory: bytes of the node that used most, margin not yet added."""

    amount: float
    factor: float  # margin
    basis: str
    confidence: str
    is_upper_bound: bool = False
    polled_s: float | None = None  # s between looks at it, where more may lie between two
    in_all: float | None = None  # over all nodes
    cache_bytes: float = 0.0  # page cache in use, of the node that had most: read again without it
    grown_bytes: float = 0.0  # of memory that leaks, when a run takes half as long again

    @property
    def with_margin(self) -> float:
        return max(self.amount * self.factor, self.grown_bytes) + self.cache_bytes

    @property
    def in_all_with_margin(self) -> float | None:
        if self.in_all is None or self.grown_bytes:
            return None
        return self.in_all * self.factor + self.cache_bytes


# -- how much is known -----------------------------------------------------------------------------


def thin(run: RunData) -> NotEvaluable | None:
    """Why samples are too few to advise anything; None where they are enough, or there are none."""
    coverage = run.coverage
    if not run.has_samples:
        return None
    measured_s = run.elapsed_s * coverage.covered_percent / 100
    if coverage.interval_s and measured_s < 3 * coverage.interval_s:
        count = max(1, int(measured_s / coverage.interval_s))
        return NotEvaluable(Lack.TIME, f"too short: {plural(count, 'sample')}")
    least = of_site(run.site, "low-coverage", LowCoverage).advice_percent
    if coverage.covered_percent < least:
        covered = f"only {coverage.covered_percent:.0f} % of the run was measured"
        return NotEvaluable(Lack.READINGS, unrecorded_text(run) or covered)
    return None


@once
def accounted(run: RunData) -> Used | NotEvaluable:
    """Slurm's own figures of an ended job. A job that was cut short by hand proves no need."""
    job = run.job
    if job is None or not job.has_ended:
        return NotEvaluable(Lack.RECORDING)
    figures = used(job)
    if job.state == "CANCELLED" and figures.source == "sacct":
        return NotEvaluable(Lack.END, "cancelled before its end, and not recorded")
    return figures


# -- memory ----------------------------------------------------------------------------------------


@once
def memory_need(run: RunData) -> Need | NotEvaluable:
    """Host memory without page cache, of the node that used most.

    The greatest of all sources counts. Samples of the whole run show it: margin 1.2, or 1.3 where
    they are more than 5 s apart; up to 2 where more may lie between two of them (`most_between`).
    Where it may be even more, what may is asked for if that is still much less than was, else no
    less is sure (`polled_s`). Where they lack a part, what lay there at most, by the kernel's own
    peak, is an upper bound: margin 1.2; Slurm's polls where they show less and that frees nothing.
    Page cache that was read more than once is added, as the program would wait for storage without.
    Accounting: 1.2 of the kernel's peak; 2 of what was polled, as polls miss short peaks.
    """
    nodes = requested(run).nodes
    peaks = [peak for each in run.nodes if (peak := _sampled_peak(each)) is not None]
    figures = accounted(run)
    if peaks and len(peaks) >= nodes:
        known = _recorded_need(run, None if isinstance(figures, NotEvaluable) else figures)
        if isinstance(known, NotEvaluable):
            return known
        grown = [each.needs_bytes(_LEAK_LONGER * run.elapsed_s) for each in host_leaks(run)]
        # page cache that was read more than once, of the node that had most
        caches = (each.job.get("mem_active_cache_bytes", Track()).peak() for each in run.nodes)
        cache = 0.0 if known.is_upper_bound else highest(caches) or 0.0
        return replace(known, cache_bytes=cache, grown_bytes=max(grown, default=0.0))
    if isinstance(figures, NotEvaluable):
        reason = f"{nodes - len(peaks)} of {nodes} nodes were not recorded"
        return NotEvaluable(Lack.READINGS, reason) if peaks else figures
    if figures.mem_bytes is None or figures.mem_meaning is None:
        return NotEvaluable(Lack.SLURM, figures.missing.get("mem", "no figure of memory"))
    meaning = figures.mem_meaning
    return Need(
        max([figures.mem_bytes, *peaks]),
        POLLED_FACTOR if meaning.polled else 1.2,
        f"{figures.source}: {bytes_text(figures.mem_bytes)}, {meaning.words}",
        "low" if meaning.cache is None or meaning.polled else "medium",
        is_upper_bound=meaning.is_upper_bound and not meaning.polled,
        polled_s=POLL_S if run.job is not None and is_polled(run.job) else None,
        in_all=figures.mem_in_all_bytes or figures.mem_bytes * nodes,
    )


def _recorded_need(run: RunData, figures: Used | None) -> Need | NotEvaluable:
    """Of nodes that were all recorded; `figures`: Slurm's own, where they are to be had."""
    whole = is_whole(run)
    bounds = [kernel_peak(each) for each in run.nodes]
    if not whole:
        bounds = [most_between(run, each) for each in run.nodes]
        if not run.coverage.to_end:  # only Slurm's figure is of the end, too
            told = figures.mem_bytes if figures and figures.is_upper_bound else None
            bounds = [told] * len(bounds)
    sampled = [_sampled_peak(each) or 0.0 for each in run.nodes]
    polled = None if whole else _polled_need(run, sampled, figures)
    if not whole and None in bounds:
        return polled or thin(run) or PARTLY
    peaks = [max(peak, bound or 0.0) for peak, bound in zip(sampled, bounds)]
    most = max(peaks)
    is_bound = most > sampled[peaks.index(most)]
    where = (" on one node" if len(peaks) > 1 else "") + (" so far" if run.live else "")
    basis = f"peak {bytes_text(most)}{where}, page cache not counted"
    if is_bound:
        basis = f"the kernel's own peak {bytes_text(most)}{where}, page cache included"
    if figures is not None and figures.mem_meaning is not None:
        is_more = not figures.is_upper_bound or slurm_peak(run) is not None
        slurm = figures.mem_bytes or 0.0
        if is_more and slurm > most:
            most, is_bound = slurm, figures.is_upper_bound
            basis = f"{figures.source}: {bytes_text(slurm)}, {figures.mem_meaning.words}"
    sure = is_close(run) and not is_bound
    confidence = "low" if run.live else "high" if sure else "medium"
    factor = 1.2 if sure or is_bound else 1.3
    unseen = [most_between(run, each) for each in run.nodes]
    bound = highest(unseen) if None not in unseen else None
    apart_s = max(run.coverage.interval_s or 0.0, run.coverage.longest_gap_s) or None
    hidden, far_s = hidden_peak(apart_s, bound, most)
    factor = max(factor, hidden)
    need = Need(most, factor, basis, confidence, is_bound, far_s, in_all=max(most, sum(peaks)))
    safe = need
    if far_s and bound and most:
        safe = replace(need, factor=max(factor, 1.2 * bound / most), polled_s=None)
    if less_memory(run, safe) is not None:
        return safe
    return polled if polled is not None and polled.with_margin < need.with_margin else need


def _polled_need(run: RunData, sampled: Sequence[float], figures: Used | None) -> Need | None:
    """By the samples of a part of the run and by Slurm's polls of all of it, page cache not
    counted; None where Slurm has no such figure.
    """
    if figures is None or figures.is_upper_bound or not figures.mem_bytes:
        return None
    most = max(figures.mem_bytes, *sampled)
    meaning = figures.mem_meaning.words if figures.mem_meaning is not None else ""
    basis = f"{figures.source}: {bytes_text(figures.mem_bytes)}, {meaning}"
    if most > figures.mem_bytes:
        basis = f"peak {bytes_text(most)} in the samples, page cache not counted; {basis}"
    return Need(
        most, POLLED_FACTOR, basis, "medium", polled_s=POLL_S, in_all=max(most, sum(sampled))
    )


def hidden_peak(
    interval_s: float | None, kernel_bytes: float | None, most_bytes: float
) -> tuple[float, float | None]:
    """Margin for what may lie between two samples: no more than the kernel's own peak, which page
    cache may have reached later; and how far apart they are, where even more may.
    """
    if interval_s is not None and interval_s <= _SPIKE_S:
        return 1.0, None
    between = 1.2 * kernel_bytes / most_bytes if kernel_bytes and most_bytes else inf
    least_s = CLOSE_S if kernel_bytes else _ALONE_S
    is_far = interval_s is not None and interval_s > least_s and between > POLLED_FACTOR
    return min(POLLED_FACTOR, between), interval_s if is_far else None


def most_between(run: RunData, node: NodeData) -> float | None:
    """Bytes, page cache not counted, that a node's job used at most between its samples; None where
    the kernel's own peak is not known.

    No more was charged than that peak as it stood at the next sample, less the page cache that was
    there at both, but for what may have been given back and read anew in so much time: no more than
    the cache ever grew by. Before the first sample no cache is known.
    """
    marks, cache = (node.job.get(f"mem_{each}_bytes", Track()) for each in ("peak", "cache"))
    known = [n for n, mark in enumerate(marks.high) if mark == mark]
    if not known or not cache.known():
        return node.mem_charged_peak_bytes
    pairs = list(zip(known, known[1:]))
    level, low = cache.mean, cache.low
    grown = [(level[n] - level[last]) / (n - last) for last, n in pairs if level[n] > level[last]]
    fill, step_s = max(grown, default=0.0) / run.bin_s, run.coverage.interval_s or run.bin_s
    most = marks.high[known[0]]
    for last, n in pairs:
        new = fill * (step_s + (n - last - 1) * run.bin_s)
        there = min(low[last], low[n]) - new if low[last] == low[last] and low[n] == low[n] else 0.0
        most = max(most, marks.high[n] - max(0.0, there))
    return most


def _sampled_peak(node: NodeData) -> float | None:
    """Page cache not counted, and what was swapped out added: without swap it stays in memory."""
    swapped = node.job.get("swap_used_bytes", Track()).peak()
    return None if node.mem_peak_bytes is None else node.mem_peak_bytes + (swapped or 0.0)


def kernel_peak(node: NodeData) -> float | None:
    """The kernel's own peak of the job's memory on a node, page cache included, where it tells more
    than the samples, of a moment between two of them.

    None where it tells no more, and where it is not known. Source: `memory.peak` (cgroup v2),
    `memory.max_usage_in_bytes` (v1).
    """
    kernel = node.mem_charged_peak_bytes
    sampled = node.job.get("mem_charged_bytes", Track()).peak()
    if kernel is None:
        return None
    return kernel if sampled is not None and kernel > _BETWEEN_SAMPLES * sampled else None


def slurm_peak(run: RunData) -> float | None:
    """Slurm's figure of the largest task, page cache included, where that is more than any sample
    of all its memory: the samples missed a peak. None where it is not, or where not known.
    """
    if run.job is None:
        return None
    told = highest(step.max_rss_bytes for step in run.job.steps if not step.is_own)
    guests = highest(each.job.get("mem_gpumon_bytes", Track()).peak() for each in run.nodes)
    sampled = highest(each.job.get("mem_charged_bytes", Track()).peak() for each in run.nodes)
    if told is None or sampled is None or told <= _BETWEEN_SAMPLES * sampled:
        return None
    return max(sampled, told - (guests or 0.0))  # a recorder stands in the step that it records


def round_memory(size_bytes: float) -> int:
    """Up to whole GiB, at least 1; above 30 to the next 5, above 100 to 10, above 1000 to 100."""
    gib = size_bytes / GIB
    step = 1 if gib <= 30 else 5 if gib <= 100 else 10 if gib <= 1000 else 100
    return max(1, ceil(gib / step - 1e-9) * step) * GIB


def site_default_bytes(run: RunData, cpus: int | None) -> float:
    """Memory that a job of so many CPUs gets without asking; 0 where the site has not said."""
    partition = run.job.partition if run.job else ""
    per_core = run.site.mem_default_per_core_bytes
    return float(per_core.get(partition, 0) * (cpus or 0))


def less_memory(run: RunData, need: Need, cpus: int | None = None) -> float | None:
    """Bytes per node to ask for; None where that is not much less than was asked for.

    Never below the site's default, and never after an OOM.
    """
    request = requested(run)
    if request.mem_bytes is None or was_out_of_memory(run):
        return None
    cpus = request.cpus if cpus is None else cpus
    wanted = max(need.with_margin, site_default_bytes(run, cpus))
    return wanted if is_worth(request.mem_bytes, round_memory(wanted)) else None


def more_memory(run: RunData) -> float | None:
    """After an OOM: half as much again, at least; None where no node has more, or the job had all
    that its nodes have.

    Of a run that leaks, what lasts for the time limit at its pace; None where none does.
    """
    request = requested(run)
    if request.mem_bytes is None or request.is_whole_memory:
        return None
    if leaks := host_leaks(run):
        limit_s = request.time_limit_s
        needed = None if limit_s is None else max(each.needs_bytes(limit_s) for each in leaks)
        if needed is None or needed <= request.mem_bytes or not _fits(run, needed):
            return None
        is_bounded = _largest_bytes(run) is not None or needed <= _MOST_TIMES * request.mem_bytes
        return needed if is_bounded else None
    need = memory_need(run)
    wanted = 1.5 * request.mem_bytes
    if not isinstance(need, NotEvaluable):
        wanted = max(wanted, need.with_margin)
    if not _fits(run, wanted):
        wanted = (_largest_bytes(run) or 0.0) // GIB * GIB
        return wanted if wanted > request.mem_bytes and _fits(run, wanted) else None
    return wanted


def _largest_bytes(run: RunData) -> float | None:
    """Memory of the largest node that the job may get, as far as that is known."""
    of_nodes = [number(each.header.facts.get("mem_total_bytes")) for each in run.nodes]
    return highest([*of_nodes, *(float(each.mem_bytes) for each in node_types(run))])


def _fits(run: RunData, wanted: float) -> bool:
    largest = _largest_bytes(run)
    return largest is None or round_memory(wanted) <= largest


def was_out_of_memory(run: RunData) -> bool:
    """By the kernel on any node, or by any of Slurm's records of this job and its siblings."""
    jobs = [job for job in (run.job, *run.siblings) if job is not None]
    return any(each.oom_kills for each in run.nodes) or any(map(out_of_memory, jobs))


# -- time ------------------------------------------------------------------------------------------


def round_time(seconds: float) -> int:
    """Up to the next quarter of an hour; to the next 5 min, up to an hour."""
    step_s = _QUARTER_S if seconds > _HOUR_S else _STEP_S
    return max(1, ceil(seconds / step_s - 1e-9)) * step_s


def completed(run: RunData) -> list[float]:
    """Elapsed seconds of this run and its siblings, of those that completed."""
    return completed_s([job for job in (run.job, *run.siblings) if job])


def completed_s(jobs: Iterable[Job]) -> list[float]:
    """Elapsed seconds of those that completed."""
    return [job.elapsed_s for job in jobs if has_completed(job) and job.elapsed_s is not None]


def less_time(elapsed: Iterable[float], limit_s: float, longer: float = 1.0) -> int | None:
    """Time limit in seconds: 1.25 times the longest of similar runs, twice of runs that differ,
    rounded up; None where that is not much less. `longer`: times its time that the run may take
    with the cores of the new request.
    """
    known = list(elapsed)
    margin = _VARIED_MARGIN if max(known) > _ALIKE * median(known) else _TIME_MARGIN
    wanted = round_time(margin * longer * max(known))
    return wanted if is_worth(limit_s, wanted, _LEAST_TIME) else None
