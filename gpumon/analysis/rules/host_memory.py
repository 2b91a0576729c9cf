"""Host memory: more requested than was needed.

Need is memory that the kernel cannot give back: anonymous, shared, and its own; page cache is
not, though it counts against the limit and though Slurm's own figure may contain it.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.finding import Action, Change, Lack, NotEvaluable, to_do
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.amounts import GIB, Need
from gpumon.analysis.rightsize.cores import fewer_cpus
from gpumon.analysis.rightsize.gate import polled_s
from gpumon.analysis.rightsize.proof import unproven
from gpumon.analysis.rightsize.requested import Requested, cores_of, node_types, requested
from gpumon.analysis.rules.cpu import cpu_mostly_idle
from gpumon.analysis.rules.cpu_peak import cpu_underused
from gpumon.analysis.rules.phrasing import MEM_HELD, finding, percent
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import RunData, Track
from gpumon.analysis.thresholds import Bytes, Seconds, Share, of_site
from gpumon.model.units import bytes_text

#: the end of a basis whose number the title has
_NO_CACHE = "page cache not counted"


class MemOver(NamedTuple):
    elapsed_s: Seconds = 300
    share: Share = 0.7  # of the request
    waste_bytes: Bytes = 64 * GIB  # on a node: warning
    node_share: Share = 0.85  # of the cores, that are as good as the whole node


@rule(
    "mem-over",
    title="less than {share} of the requested memory used",
    why=MEM_HELD,
    remedy="request the peak and a margin",
)
def mem_over(run: RunData, t: MemOver) -> Checked:
    """The request above the site's default. Warning from much waste on a node, or where a GPU's
    share of the node's memory is exceeded. Guards: not after an OOM; not for jobs of nearly all of
    a node's cores, or with --exclusive; information only of a job that did not complete, as it may
    have needed more, and where --mem=0 gave all that the node has; only where a smaller request
    follows; every node known; page cache that was read more than once counts as used. Source:
    jobstats 70 %, job_defense_shield 0.35.
    """
    request = requested(run)
    if request.mem_bytes is None:
        return NotEvaluable(Lack.SLURM, "how much memory was requested is not known")
    if run.elapsed_s <= t.elapsed_s:
        return NotEvaluable(Lack.TIME)
    need = amounts.memory_need(run)
    if isinstance(need, NotEvaluable):
        return need
    used = need.amount + need.cache_bytes
    if used >= t.share * request.mem_bytes:
        return None
    wanted = amounts.less_memory(run, need, _cpus_left(run, request))
    if wanted is None or _is_whole_node(run):
        return None
    line = changes.memory_line(request, wanted)
    if line is None:
        return None
    waste = request.mem_bytes - used
    cache = _cache_text(run, need)
    above = _share_per_gpu(run)
    exceeds = above and request.gpus and request.mem_bytes / request.gpus > above
    is_much = waste >= t.waste_bytes or bool(exceeds)
    is_sure = not request.is_whole_memory and unproven(run) is None
    return finding(
        run,
        "warning" if is_much and is_sure else "info",
        _peak_text(need, request, " so far" if run.live else ""),
        need.basis if need.is_upper_bound else f"{need.basis}{cache}",
        adds=f"{_NO_CACHE}{cache}" if need.basis.endswith(_NO_CACHE) else None,
        confidence=need.confidence,
        numbers={
            "peak_bytes": need.amount,
            "requested_bytes": request.mem_bytes,
            "waste_bytes": waste,
        },
        actions=[_less(run, request, need, line)],
    )


def _cpus_left(run: RunData, request: Requested) -> int | None:
    """Cores after the line that gives most of them back: a site's default of memory is for each."""
    fewer = fewer_cpus(run)
    is_most = fewer is not None and request.cpus and 2 * fewer.cpus <= request.cpus
    return fewer.cpus if fewer is not None and is_most else None


def _less(run: RunData, request: Requested, need: Need, line: Change) -> Action:
    """The smaller request; in words where the job asked for whatever its node has."""
    if request.is_whole_memory:
        needs = "If it can share the node, request only what it uses"
        enough = changes.memory_line(request, need.with_margin)
        proven = unproven(run) is None and polled_s(run) is None
        example = "; record a run to find out."
        if enough is not None and proven:
            example = f": {enough.setting} would do."
        return to_do(needs + example)
    # one task does not speak for the others of its array; `array-mem-over` does
    is_array = run.job is not None and run.job.array_job_id
    alone = "By this task alone: others of the array may need more." if is_array else ""
    return changes.action_of(line, alone)


def _peak_text(need: Need, request: Requested, until: str) -> str:
    """`peak memory use 7.4 GiB of 64 GiB requested (12 %)`."""
    whole = request.mem_bytes or 0.0
    used = f"memory use{until} at most " if need.is_upper_bound else f"peak memory use{until} "
    where = " on a node" if request.nodes > 1 else ""
    share = percent(100 * need.amount / whole)
    if request.is_whole_memory:
        held = f"--mem=0 reserved all {bytes_text(whole)} of the node"
        return f"{held}; {used}{bytes_text(need.amount)}{where} ({share})"
    return f"{used}{bytes_text(need.amount)} of {bytes_text(whole)} requested{where} ({share})"


def _cache_text(run: RunData, need: Need) -> str:
    caches = [each.job.get("mem_cache_bytes", Track()).peak() for each in run.nodes]
    cache = max((value for value in caches if value), default=None)
    again = f"; the {bytes_text(need.cache_bytes)} read more than once are kept"
    again = again if need.cache_bytes >= amounts.GIB else ""
    return f" ({bytes_text(cache)}{again})" if cache else ""


def _is_whole_node(run: RunData) -> bool:
    """Nobody else could use the memory: the job had the node to itself, or 0.85 of its cores.

    Not where the job hardly uses those cores either: then it may do with fewer.
    """
    if requested(run).is_exclusive:
        return True
    answers = (each(run) for each in (cpu_mostly_idle, cpu_underused))
    if any(isinstance(answer, list) and answer for answer in answers):
        return False
    share = of_site(run.site, "mem-over", MemOver).node_share
    for node in run.nodes:
        cores = cores_of(node)
        if node.cpus and cores and node.cpus >= share * cores:
            return True
    cpus, types = requested(run).cpus, node_types(run)
    return bool(cpus and types and cpus >= share * max(each.cores for each in types))


def _share_per_gpu(run: RunData) -> float | None:
    shares = [each.mem_bytes / each.gpus for each in node_types(run) if each.gpus]
    return max(shares, default=None)


class MemPerGpuHigh(NamedTuple):
    share: Share = 0.85  # of the request, used


@rule(
    "mem-per-gpu-high",
    title="more host memory per GPU than a fair share, unused",
    why="Without host memory, other jobs cannot use the node's other GPUs.",
    remedy="request the share",
    when="report",
)
def mem_per_gpu_high(run: RunData, t: MemPerGpuHigh) -> Checked:
    """Above the node's memory ÷ its GPUs. Guards: whole nodes; the share is the site's. Source:
    jobstats 115 and 240 GB per GPU and 0.85; job_defense_shield.
    """
    request = requested(run)
    if not request.gpus:
        return None
    share = _share_per_gpu(run)
    if request.mem_bytes is None or share is None:
        return NotEvaluable(Lack.SITE, "the site's file has no memory and GPUs of its nodes")
    each = request.mem_bytes / request.gpus
    if each <= share or request.is_whole_memory or _is_whole_node(run):
        return None
    need = amounts.memory_need(run)
    if isinstance(need, NotEvaluable):
        return need
    used = need.amount / request.mem_bytes
    if used >= t.share:
        return None
    wanted = amounts.less_memory(run, need)
    line = None if wanted is None else changes.memory_line(request, wanted)
    equal = f"(equal share {bytes_text(share)})"
    shares = f"{bytes_text(each)} of host memory requested per GPU {equal}"
    return finding(
        run,
        "info",
        f"{shares}, {percent(100 * used)} of it used",
        need.basis,
        confidence=need.confidence,
        numbers={"per_gpu_bytes": each, "share_bytes": share, "peak_bytes": need.amount},
        actions=[] if line is None else [changes.action_of(line)],
    )
