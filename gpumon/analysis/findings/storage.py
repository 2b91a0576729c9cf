"""Storage and placement: disks about to fill, caches in the home directory, jobs spread thinly."""

from __future__ import annotations

import re
from math import isnan

from gpumon.analysis import rightsize
from gpumon.analysis.evidence import Evidence, NodeEvidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent
from gpumon.analysis.requested import Requested, node_types, requested
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.model.lines import Line, Word, setting, value, word
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text

_GIB = 1 << 30
#: a disk is read every 30 s; older than three of those says nothing about now
_FRESH_S = 90.0
_SLOPE_S = 600.0
_SHM = "/dev/shm"
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


def scratch_full(evidence: Evidence) -> Outcome:
    """A temporary directory or /dev/shm at 90 % (warning) or 97 % (critical) now, or full in less
    than 30 min at the pace of the last 10.

    Guards: what the file system keeps for root is not free to a user; the extrapolation needs a
    quarter of it used. Files in /dev/shm are charged to the job's memory, and no process shows
    them. Numbers proposed.
    """
    found: list[Finding] = []
    judged = False
    for node in evidence.nodes:
        for label, tracks in node.disks.items():
            space = _space(evidence, tracks)
            if space is None:
                continue
            judged = True
            answer = _filling(evidence, node, label, *space)
            if answer is not None:
                found.append(answer)
    return found if judged else NotEvaluable("no file system was read lately")


def _space(
    evidence: Evidence, tracks: dict[str, Track]
) -> tuple[float, float, float | None] | None:
    """(used, what a user can use in all, growth per second or None), of now."""
    first = max(0, evidence.count - evidence.bins(_FRESH_S))
    used = tracks.get("used_bytes", Track())
    now, free = used.known(first), tracks.get("free_bytes", Track()).known(first)
    if not now or not free or now[-1] + free[-1] <= 0:
        return None
    begin = max(0, evidence.count - evidence.bins(_SLOPE_S))
    known = [(n, v) for n, v in enumerate(used.mean[begin:]) if not isnan(v)]
    span_s = (known[-1][0] - known[0][0]) * evidence.bin_s
    per_s = (known[-1][1] - known[0][1]) / span_s if span_s >= _SLOPE_S / 3 else None
    return now[-1], now[-1] + free[-1], per_s if per_s is not None and per_s > 0 else None


def _filling(
    evidence: Evidence, node: NodeEvidence, label: str, used: float, total: float,
    per_s: float | None,
) -> Finding | None:  # fmt: skip
    share = 100 * used / total
    full_in_s = None if per_s is None else (total - used) / per_s
    limit = evidence.site.threshold
    soon = (
        full_in_s is not None
        and full_in_s < limit("scratch-full.full_in_s", 1800)
        and share >= limit("scratch-full.least_percent", 25)
    )
    if share < limit("scratch-full.warning_percent", 90) and not soon:
        return None
    path = clean(node.disk_paths.get(label, label))
    text = f"{path} {of_bytes_text(used, total)} ({percent(share)} full)"
    if per_s is not None and full_in_s is not None:
        text += f", +{bytes_text(60 * per_s)}/min, full in {age_text(full_in_s)}"
    in_memory = path == _SHM or label == "shm"
    text += "; counts as job memory" if in_memory else ""
    fix = (
        Action("code", Line("DataLoader(num_workers=2)"),
               text="Fewer workers, fewer shared batches.")
        if in_memory
        else Action("sbatch", Line("#SBATCH --tmp={}", word("size", _tmp_text(total))),
                    text="Delete what is not needed; next time ask for a node with more.")
    )  # fmt: skip
    critical = share >= limit("scratch-full.critical_percent", 97)
    return Finding(
        "scratch-full", "critical" if critical else "warning", f"{clean(node.node)}: {text}",
        text, "high", clean(node.node), resource="storage", start=evidence.start, end=evidence.end,
        numbers={"used_bytes": used, "total_bytes": total}, harm_in_s=full_in_s, actions=(fix,),
    )  # fmt: skip


def _tmp_text(total: float) -> str:
    return rightsize.size_text(rightsize.round_memory(2 * total))


def home_cache(evidence: Evidence) -> Outcome:
    """The job's output says that a quota or disk is full, beside the path of a cache at home.

    Guards: no quota is asked for and no tree walked; the program's own words are the proof. Source:
    UVA's workshop (models land in ~/.cache/huggingface).
    """
    if not evidence.log_tail:
        return NotEvaluable("the job's output is not readable")
    match = _CACHE_FULL.search(evidence.log_tail)
    if match is None:
        return []
    cache = match.group(1) or match.group(2)
    words = "Disk quota exceeded" if "quota" in match.group() else "No space left on device"
    return [
        Finding(
            "home-cache", "info", f"{words}: ~/{cache} does not fit any more",
            f"the job's output says: {words}, at ~/{cache}", "medium", resource="storage",
            actions=(Action("shell", _CACHE_FIX[cache],
                            text="Or wherever your site keeps large files."),),
        )
    ]  # fmt: skip


# -- placement -------------------------------------------------------------------------------------


def frag_nodes(evidence: Evidence) -> Outcome:
    """As many nodes as GPUs, more than one, and one node of that kind has as many GPUs.

    Guards: more host memory than one node has, or more cores, explains it. The site names its
    nodes. Source: jobstats (nnodes == gpus), job_defense_shield.
    """
    request = requested(evidence)
    in_all = request.gpus_in_all
    if in_all is None:
        return NotEvaluable("how many GPUs it had is not known")
    if request.nodes < 2 or in_all != request.nodes:
        return []
    types = [each for each in node_types(evidence) if each.gpus]
    if not types:
        return NotEvaluable("the site has not said how many GPUs a node has")
    cores, memory = (request.cpus or 0) * request.nodes, _memory_in_all(evidence, request)
    fits = [e for e in types if e.gpus >= in_all and e.cores >= cores and e.mem_bytes >= memory]
    if not fits:
        return []
    most = max(each.gpus for each in fits)
    lines = _merged(request)
    return [
        Finding(
            "frag-nodes", "info", f"{in_all} GPUs on {request.nodes} nodes; one node has {most}",
            f"{request.nodes} nodes with one GPU each; GPUs of one node talk faster",
            "high", resource="placement", start=evidence.start, end=evidence.end,
            numbers={"nodes": request.nodes, "gpus": in_all, "node_gpus": most},
            actions=(Action("sbatch", *lines),),
        )
    ]  # fmt: skip


def _merged(request: Requested) -> tuple[Line, Line]:
    """(after, before) of one node in place of several, for eyes; `recommend` has each line."""
    before, after = Line("#SBATCH --nodes={}", request.nodes), Line("#SBATCH --nodes=1")
    merged = merged_gpus(request)
    if merged is not None:
        before = Line("{} {}", before, setting(request.gpu_option, request.gpu_text))
        after = Line("{} {}", after, setting(request.gpu_option, merged))
    return after, before


def merged_gpus(request: Requested) -> Word | None:
    """The GPU request when one node stands for all; None where it is not per node."""
    match = re.fullmatch(r"(.*?)(?::(\d+))?", request.gpu_text)
    if request.gpu_form != "node" or not request.gpu_text or match is None:
        return None
    if request.gpu_text.isdecimal():
        merged = str(int(request.gpu_text) * request.nodes)
    else:
        merged = f"{match.group(1)}:{int(match.group(2) or 1) * request.nodes}"
    return value(request.gpu_option, merged)


def _memory_in_all(evidence: Evidence, request: Requested) -> float:
    """That one node would have to hold: what was needed where that is known, else asked for."""
    need = rightsize.memory_need(evidence)
    if isinstance(need, NotEvaluable) or need.in_all is None:
        return (request.mem_bytes or 0) * request.nodes
    return need.in_all * need.factor


def few_cores_per_node(evidence: Evidence) -> Outcome:
    """A CPU job on several nodes with under half of a node's cores on each, that one node holds.

    Guards: memory that fills 0.85 of the nodes it is spread over explains it. The site names its
    nodes. Source: jobstats, per cluster 16 to 56 cores per node, 0.85 of the memory.
    """
    request = requested(evidence)
    if request.gpus is None or not request.cpus:
        return NotEvaluable("whether it had GPUs, or its cores, is not known")
    if request.gpus or request.nodes < 2:
        return []
    types = [each for each in node_types(evidence) if not each.gpus]
    if not types:
        return NotEvaluable("the site has not said how many cores a node has")
    least = evidence.site.threshold("few-cores-per-node.share", 0.5)
    cores = request.cpus * request.nodes
    memory = (request.mem_bytes or 0) * request.nodes
    fits = [
        each
        for each in types
        if cores <= each.cores
        and request.cpus < least * each.cores
        and memory <= 0.85 * each.mem_bytes
    ]
    if not fits:
        return []
    most = max(each.cores for each in fits)
    after, before = Line("#SBATCH --nodes=1"), Line("#SBATCH --nodes={}", request.nodes)
    if request.tasks:
        after, before = (Line("{} --ntasks={}", each, request.tasks) for each in (after, before))
    return [
        Finding(
            "few-cores-per-node", "info",
            f"{request.nodes} nodes × {request.cpus} cores; one node has {most}",
            f"{cores} cores in all fit one node of {most}", "high", resource="placement",
            start=evidence.start, end=evidence.end,
            numbers={"nodes": request.nodes, "cores": request.cpus, "node_cores": most},
            actions=(Action("sbatch", after, before),),
        )
    ]  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("scratch-full", scratch_full, report=False),
    Rule("home-cache", home_cache),
    Rule("frag-nodes", frag_nodes, live=False),
    Rule("few-cores-per-node", few_cores_per_node, live=False),
)
