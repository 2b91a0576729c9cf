"""Storage and placement: disks about to fill, caches in the home directory, jobs spread thinly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.finding import (
    Action,
    Change,
    Finding,
    Lack,
    NotEvaluable,
    ask_for,
    to_do,
    to_write,
)
from gpumon.analysis.kinds import learns
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.requested import Requested, node_types, requested
from gpumon.analysis.rules.phrasing import filling_text, finding, percent
from gpumon.analysis.rules.rule import Checked, of_nodes, rule
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import growth_per_s
from gpumon.analysis.thresholds import Bytes, Percent, Seconds, Share
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import of_bytes_text

#: a disk is read every 30 s; older than three of those says nothing about now
_FRESH_S = 90.0
_SLOPE_S = 600.0
_SHM = "/dev/shm"
_HARDLY_BYTES = float(1 << 30)  # one file
#: what programs say when a cache no longer fits: errno EDQUOT and ENOSPC beside a cache's path
_CACHES = r"\.cache/(?:huggingface|pip|torch|conda)|\.conda|\.local/lib"
_FULL = r"Disk quota exceeded|No space left on device"
_CACHE_FULL = re.compile(
    rf"(?:{_FULL})[^\n]{{0,400}}?({_CACHES})|({_CACHES})[^\n]{{0,400}}?(?:{_FULL})"
)
_CACHE_FIX = {
    ".cache/huggingface": Line("export HF_HOME=/scratch/$USER/huggingface"),
    ".cache/pip": Line("export PIP_CACHE_DIR=/scratch/$USER/pip"),
    ".cache/torch": Line("export TORCH_HOME=/scratch/$USER/torch"),
    ".cache/conda": Line("export CONDA_PKGS_DIRS=/scratch/$USER/conda"),
    ".conda": Line("export CONDA_PKGS_DIRS=/scratch/$USER/conda"),
    ".local/lib": Line("export PYTHONUSERBASE=/scratch/$USER/lib"),
}


class ScratchFull(NamedTuple):
    warning_percent: Percent = 90
    critical_percent: Percent = 97
    full_in_s: Seconds = 1800  # at the pace of the last 10 min
    least_percent: Percent = 25  # used, for that to count
    free_bytes: Bytes = 100 * (1 << 30)  # more free space is no danger, unless it fills soon


@rule(
    "scratch-full",
    title="a temporary directory or /dev/shm nearly full",
    why="When it is full, the next write fails, and often the job too.",
    remedy="clean up, or write elsewhere",
    when="live",
)
def scratch_full(run: RunData, t: ScratchFull) -> Checked:
    """Critical where it also grows, or where hardly anything is free.

    Guards: what the file system keeps for root is not free to a user; the extrapolation needs a
    part of it used; of a large disk a tenth is much, and what fills it is mostly others'. Files in
    /dev/shm are charged to the job's memory, and no process shows them. Numbers proposed.
    """
    lacking = "no file system was read lately"
    return of_nodes(run, lambda node: _filling(run, node, t), lacking)


def _filling(run: RunData, node: NodeData, t: ScratchFull) -> list[Finding] | None:
    disks = [(label, _space(run, tracks)) for label, tracks in node.disks.items()]
    known = [(label, space) for label, space in disks if space is not None]
    found = [_full(run, node, label, space, t) for label, space in known]
    return [each for each in found if each is not None] if known else None


class _Space(NamedTuple):
    """Bytes of a file system, of now."""

    used: float
    total: float  # what a user can use
    per_s: float | None  # growth


def _space(run: RunData, tracks: Mapping[str, Track]) -> _Space | None:
    first = max(0, run.count - run.bins(_FRESH_S))
    used = tracks.get("used_bytes", Track())
    now, free = used.known(first), tracks.get("free_bytes", Track()).known(first)
    if not now or not free or now[-1] + free[-1] <= 0:
        return None
    return _Space(now[-1], now[-1] + free[-1], growth_per_s(run, used, _SLOPE_S, _SLOPE_S / 3))


def _full(
    run: RunData, node: NodeData, label: str, space: _Space, t: ScratchFull
) -> Finding | None:
    used, total, per_s = space
    share = 100 * used / total
    full_in_s = None if per_s is None else (total - used) / per_s
    soon = full_in_s is not None and full_in_s < t.full_in_s and share >= t.least_percent
    is_full = share >= t.warning_percent and total - used < t.free_bytes
    is_near = per_s is not None or total - used < _HARDLY_BYTES
    if not is_full and not soon:
        return None
    path = clean(node.disk_paths.get(label, label))
    text = f"{path} {of_bytes_text(used, total)} ({percent(share)} full)"
    text += filling_text(per_s, full_in_s)
    fix = to_do("Delete unneeded files; let the next run write elsewhere.")
    if path == _SHM or label == "shm":
        text += "; counts as job memory"
        fix = to_write("Keep less there; it needs memory of the job.")
        if learns(run):
            fewer = Line("DataLoader(num_workers=2)")
            fix = Action("code", fewer, text="Fewer workers keep fewer batches there.")
    return finding(
        run,
        "critical" if is_full and share >= t.critical_percent and is_near else "warning",
        text,
        node=node,
        numbers={"used_bytes": used, "total_bytes": total},
        actions=[fix],
        harm_in_s=full_in_s,
    )


@rule(
    "home-cache",
    title="a full quota, and a cache in the home directory",
    why="With a full home directory, programs and logins fail in odd ways.",
    remedy="move `HF_HOME` and similar caches to scratch",
)
def home_cache(run: RunData) -> Checked:
    """The job's output says that a quota or disk is full, beside the path of a cache at home.

    Guards: no quota is asked for and no tree walked; the program's own words are the proof. Source:
    UVA's workshop (models land in ~/.cache/huggingface).
    """
    if not run.log_tail:
        return NotEvaluable(Lack.SLURM, "the job's output is not readable")
    match = _CACHE_FULL.search(run.log_tail)
    if match is None:
        return None
    cache = match.group(1) or match.group(2)
    words = "Disk quota exceeded" if "quota" in match.group() else "No space left on device"
    fix = Action(
        "shell", _CACHE_FIX[cache], text="Move the cache to where your site keeps large files."
    )
    made = finding(
        run,
        "info",
        f"{words}: no room left for ~/{cache}",
        rest=" (by the job's output)",
        confidence="medium",
        actions=[fix],
    )
    return replace(made, start=None, end=None)  # nobody says when


# -- placement -------------------------------------------------------------------------------------


@rule(
    "frag-nodes",
    title="one GPU on each of several nodes, where one node has as many",
    why="GPUs on one node communicate faster than across the network.",
    remedy="request one node",
    when="report",
)
def frag_nodes(run: RunData) -> Checked:
    """As many nodes as GPUs, more than one, and one node of that kind has as many GPUs.

    Guards: more host memory than one node has, or more cores, explains it. The site names its
    nodes. Source: jobstats (nnodes == gpus), job_defense_shield.
    """
    request = requested(run)
    in_all = request.gpus_in_all
    if in_all is None:
        return NotEvaluable(Lack.SLURM, "the job's number of GPUs is unknown")
    if request.nodes < 2 or in_all != request.nodes:
        return None
    types = [each for each in node_types(run) if each.gpus]
    if not types:
        return NotEvaluable(Lack.SITE, "the site file does not define the GPUs of a node")
    cores, memory = (request.cpus or 0) * request.nodes, _memory_in_all(run, request)
    fits = [e for e in types if e.gpus >= in_all and e.cores >= cores and e.mem_bytes >= memory]
    if not fits:
        return None
    most = max(each.gpus for each in fits)
    lines = (Change("--nodes", request.nodes, 1), changes.merged_gpus(request))
    return finding(
        run,
        "info",
        f"{in_all} GPUs on {request.nodes} nodes; one node has {most}",
        rest=", which communicate faster",
        numbers={"nodes": request.nodes, "gpus": in_all, "node_gpus": most},
        actions=[ask_for(*filter(None, lines))],
    )


def _memory_in_all(run: RunData, request: Requested) -> float:
    """That one node would have to hold: what was needed where that is known, else asked for."""
    need = amounts.memory_need(run)
    wanted = None if isinstance(need, NotEvaluable) else need.in_all_with_margin
    return (request.mem_bytes or 0) * request.nodes if wanted is None else wanted


class FewCoresPerNode(NamedTuple):
    share: Share = 0.5  # of a node's cores


@rule(
    "few-cores-per-node",
    title="a CPU job spread thinly over nodes",
    why="Tasks on one node communicate faster and leave whole nodes free.",
    remedy="request fewer nodes",
    when="report",
)
def few_cores_per_node(run: RunData, t: FewCoresPerNode) -> Checked:
    """A CPU job on several nodes with few cores on each, that one node holds.

    Guards: memory that fills 0.85 of the nodes it is spread over explains it. The site names its
    nodes. Source: jobstats, per cluster 16 to 56 cores per node, 0.85 of the memory.
    """
    request = requested(run)
    if request.gpus is None or not request.cpus:
        return NotEvaluable(Lack.SLURM, "whether it had GPUs, or its cores, is not known")
    if request.gpus or request.nodes < 2:
        return None
    types = [each for each in node_types(run) if not each.gpus]
    if not types:
        return NotEvaluable(Lack.SITE, "the site file does not define the cores of a node")
    cores = request.cpus * request.nodes
    memory = (request.mem_bytes or 0) * request.nodes
    fits = [
        each.cores
        for each in types
        if cores <= each.cores
        and request.cpus < t.share * each.cores
        and memory <= 0.85 * each.mem_bytes
    ]
    if not fits:
        return None
    most = max(fits)
    lines = [Change("--nodes", request.nodes, 1)]
    if request.tasks:
        lines.append(Change("--ntasks", request.tasks, request.tasks))
    return finding(
        run,
        "info",
        f"{request.cpus} cores on each of {request.nodes} nodes; one node has {most} cores",
        rest=f", enough for all {cores}",
        numbers={"nodes": request.nodes, "cores": request.cpus, "node_cores": most},
        actions=[ask_for(*lines)],
    )
