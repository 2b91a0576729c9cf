"""Host memory: asked for far more than was needed, near its limit, killed, growing, swapping.

Need is memory that the kernel cannot give back: anonymous, shared, and its own; page cache is
not, though it counts against the limit and though Slurm's own figure may contain it.
"""

from __future__ import annotations

import re
from math import isnan

from gpumon.analysis import rightsize
from gpumon.analysis.accounting import out_of_memory
from gpumon.analysis.evidence import Evidence, NodeEvidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent
from gpumon.analysis.leak import leak
from gpumon.analysis.requested import Requested, cores_of, mem_limit_bytes, node_types, requested
from gpumon.analysis.rightsize import GIB, Need
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import WARM_UP_MOST_S, sustained
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text, rate_text

_SLURMD_OOM = re.compile(r"Detected (\d+) oom[_-]kill event", re.IGNORECASE)
_RATE_S = 300.0


# -- more than was needed --------------------------------------------------------------------------


def mem_over(evidence: Evidence) -> Outcome:
    """Peak under 0.7 of the request, the request above the site's default, elapsed > 300 s.

    Warning from 64 GiB of waste on a node, or where a GPU's share of the node's memory is
    exceeded. Guards: not after an OOM; not for jobs of 0.85 of a node's cores; only where a smaller
    request follows; every node known. Source: jobstats 70 %, job_defense_shield 0.35.
    """
    request = requested(evidence)
    if request.mem_bytes is None:
        return NotEvaluable("how much memory was asked for is not known")
    if evidence.elapsed_s <= evidence.site.threshold("mem-over.elapsed_s", 300):
        return NotEvaluable("too short to judge")
    need = rightsize.memory_need(evidence)
    if isinstance(need, NotEvaluable):
        return need
    wanted = rightsize.less_memory(evidence, need)
    share = evidence.site.threshold("mem-over.share", 0.7)
    if wanted is None or need.amount >= share * request.mem_bytes or _is_whole_node(evidence):
        return []
    line = rightsize.memory_line(request, wanted)
    if line is None:
        return []
    waste = request.mem_bytes - need.amount
    most = evidence.site.threshold("mem-over.waste_bytes", 64.0 * GIB)
    above = _share_per_gpu(evidence)
    warning = waste >= most or bool(
        above and request.gpus and request.mem_bytes / request.gpus > above
    )
    title = f"{_peak_text(need, request)} ({percent(100 * need.amount / request.mem_bytes)})"
    return [
        _finding(
            evidence, "mem-over", "warning" if warning else "info", title,
            f"{need.basis}{_cache_text(evidence)}", need.confidence,
            {"peak_bytes": need.amount, "requested_bytes": request.mem_bytes, "waste_bytes": waste},
            rightsize.action_of(line, _alone(evidence)),
        )
    ]  # fmt: skip


def _alone(evidence: Evidence) -> str:
    """One task does not speak for the others of its array; `array-mem-over` does."""
    is_array = evidence.job is not None and evidence.job.array_job_id
    return "By this task alone: others of the array may need more." if is_array else ""


def _peak_text(need: Need, request: Requested) -> str:
    bound = "memory at most " if need.is_upper_bound else "memory peak "
    where = " on a node" if request.nodes > 1 else ""
    return f"{bound}{of_bytes_text(need.amount, request.mem_bytes or 0)}{where}"


def _cache_text(evidence: Evidence) -> str:
    caches = [each.job.get("mem_cache_bytes", Track()).peak() for each in evidence.nodes]
    cache = max((value for value in caches if value), default=None)
    return f"; page cache {bytes_text(cache)} on top" if cache else ""


def _is_whole_node(evidence: Evidence) -> bool:
    """0.85 of the node's cores are as good as the whole node: nobody else could use the memory."""
    share = evidence.site.threshold("mem-over.node_share", 0.85)
    for node in evidence.nodes:
        cores = cores_of(node)
        if node.cpus and cores and node.cpus >= share * cores:
            return True
    cpus, types = requested(evidence).cpus, node_types(evidence)
    return bool(cpus and types and cpus >= share * max(each.cores for each in types))


def _share_per_gpu(evidence: Evidence) -> float | None:
    shares = [each.mem_bytes / each.gpus for each in node_types(evidence) if each.gpus]
    return max(shares, default=None)


def mem_per_gpu_high(evidence: Evidence) -> Outcome:
    """Host memory per GPU above the node's memory ÷ its GPUs, and under 0.85 of it used.

    Guards: whole nodes; the share is the site's. Source: jobstats 115 and 240 GB per GPU and 0.85;
    job_defense_shield.
    """
    request = requested(evidence)
    if not request.gpus:
        return []
    share = _share_per_gpu(evidence)
    if request.mem_bytes is None or share is None:
        return NotEvaluable("the site has not said how much memory a GPU's share is")
    each = request.mem_bytes / request.gpus
    if each <= share or _is_whole_node(evidence):
        return []
    need = rightsize.memory_need(evidence)
    if isinstance(need, NotEvaluable):
        return need
    used = need.amount / request.mem_bytes
    if used >= evidence.site.threshold("mem-per-gpu-high.share", 0.85):
        return []
    wanted = rightsize.less_memory(evidence, need)
    line = None if wanted is None else rightsize.memory_line(request, wanted)
    title = (
        f"{bytes_text(each)} host memory per GPU (share {bytes_text(share)}), "
        f"used {percent(100 * used)}"
    )
    return [
        _finding(
            evidence, "mem-per-gpu-high", "info", title, need.basis, need.confidence,
            {"per_gpu_bytes": each, "share_bytes": share, "peak_bytes": need.amount},
            rightsize.action_of(line, "Others cannot use the node's other GPUs without memory."),
        )
    ]  # fmt: skip


# -- the limit -------------------------------------------------------------------------------------


def mem_near_limit(evidence: Evidence) -> Outcome:
    """Now at 90 % (warning) or 97 % (critical) of the cgroup's limit, page cache not counted.

    Guards: never judged on what is charged, which page cache fills; a reading older than a minute
    says nothing. Source: slurmwatch's "OOM guard"; numbers proposed.
    """
    found: list[Finding] = []
    judged = False
    for node in evidence.nodes:
        limit = mem_limit_bytes(node)
        track = node.job.get("mem_used_bytes", Track())
        now = _newest(evidence, track)
        if limit is None or now is None:
            continue
        judged = True
        share = 100 * now / limit
        if share >= evidence.site.threshold("mem-near-limit.warning_percent", 90):
            found.append(_near(evidence, node, now, limit, _growth_per_s(evidence, track)))
    return found if judged else NotEvaluable("memory or its limit is not known")


def _newest(evidence: Evidence, track: Track) -> float | None:
    values = track.known(max(0, evidence.count - evidence.bins(60)))
    return values[-1] if values else None


def _growth_per_s(evidence: Evidence, track: Track) -> float | None:
    """Over the last five minutes; None where less than two bins are known, or it shrinks."""
    first = max(0, evidence.count - evidence.bins(_RATE_S))
    known = [(n, v) for n, v in enumerate(track.mean[first:], first) if not isnan(v)]
    if len(known) < 2:
        return None
    grown = (known[-1][1] - known[0][1]) / ((known[-1][0] - known[0][0]) * evidence.bin_s)
    return grown if grown > 0 else None


def _near(
    evidence: Evidence, node: NodeEvidence, now: float, limit: float, per_s: float | None
) -> Finding:
    share = 100 * now / limit
    critical = share >= evidence.site.threshold("mem-near-limit.critical_percent", 97)
    text = of_bytes_text(now, limit)
    left_s = None if per_s is None else max(0.0, limit - now) / per_s
    if per_s is not None and left_s is not None:
        text += f", +{bytes_text(60 * per_s)}/min, full in {age_text(left_s)}"
    wanted = rightsize.more_memory(evidence)
    line = None if wanted is None else rightsize.memory_line(requested(evidence), wanted)
    return Finding(
        "mem-near-limit", "critical" if critical else "warning",
        f"{clean(node.node)}: host memory {text}",
        f"{text} ({percent(share)}), page cache not counted", "high", clean(node.node),
        resource="mem", start=evidence.start, end=evidence.end,
        numbers={"used_bytes": now, "limit_bytes": limit}, harm_in_s=left_s,
        actions=(rightsize.action_of(line, "For the next run; now: fewer DataLoader workers."),),
    )  # fmt: skip


def oom_killed(evidence: Evidence) -> Outcome:
    """The kernel killed a process of the job, by any of: its cgroup's counter; state OUT_OF_MEMORY
    or signal 125 of the job or a step; slurmd's line in the job's output; exit code 137.

    Guards: also when the job COMPLETED (a worker died). Never read from MaxRSS, which is 0 for
    steps that died early. Exit 137 alone is of medium confidence: anybody can send SIGKILL.
    """
    job = evidence.job
    proofs = [
        f"{clean(node.node)}: {node.oom_kills} process{'es' if node.oom_kills > 1 else ''} killed"
        for node in evidence.nodes
        if node.oom_kills
    ]
    if job is not None:
        proofs += [_slurm_proof(evidence, where) for where in out_of_memory(job)]
    if line := _SLURMD_OOM.search(evidence.log_tail):
        proofs.append(f"slurmd detected {line.group(1)} in the job's output")
    confidence = "high"
    if (
        not proofs
        and job is not None
        and 137 in (code.code for code in (job.exit_code, job.derived_exit_code) if code)
    ):
        proofs, confidence = ["exit code 137 (killed, most often for memory)"], "medium"
    if not proofs:
        counted = [each for each in evidence.nodes if each.oom_kills is not None]
        known = bool(counted) or (job is not None and job.has_ended)
        return [] if known else NotEvaluable("neither the kernel's count nor an ended job")
    wanted = rightsize.more_memory(evidence)
    line_up = None if wanted is None else rightsize.memory_line(requested(evidence), wanted)
    request = requested(evidence)
    limit = f", limit {bytes_text(request.mem_bytes)}" if request.mem_bytes else ""
    return [
        _finding(
            evidence, "oom-killed", "critical", f"out of memory: {proofs[0]}{limit}",
            "; ".join(proofs) + limit, confidence,
            {"requested_bytes": request.mem_bytes} if request.mem_bytes else {},
            rightsize.action_of(line_up, "Or fewer workers, smaller batches on the host."),
        )
    ]  # fmt: skip


def _slurm_proof(evidence: Evidence, where: str) -> str:
    job = evidence.job
    assert job is not None
    if where == "job":
        code = next((c for c in (job.exit_code, job.derived_exit_code) if c and c.signal), None)
        return f"job {clean(job.state)} ({code})" if code else f"job {clean(job.state)}"
    step = next(each for each in job.steps if each.id == where)
    return f"step {clean(job.id)}.{clean(where)} {clean(step.state)} ({step.exit_code})"


# -- growth and swap -------------------------------------------------------------------------------


def host_leak(evidence: Evidence) -> Outcome:
    """The leak rule (`analysis.leak`) on anonymous memory alone, per node, against the limit.

    Guards: never on all memory, where page cache filling up looks like a leak; 10 min of warm-up
    and 40 min of data are the rule's own.
    """
    found: list[Finding] = []
    judged = False
    for node in evidence.nodes:
        limit = mem_limit_bytes(node) or requested(evidence).mem_bytes
        track = node.job.get("mem_anon_bytes", Track())
        if limit is None or not track.known():
            continue
        judged = True
        grows = leak(track.mean, evidence.bin_s, limit)
        if grows is not None:
            text = f"anonymous memory +{bytes_text(3600 * grows.per_s)}/h"
            full = f"limit in about {age_text(grows.full_in_s)}"
            found.append(
                Finding(
                    "host-leak", "warning", f"{clean(node.node)}: {text}, {full}",
                    f"{text} over {age_text(evidence.elapsed_s)} (z = {grows.z:.1f}), {full}",
                    "high", clean(node.node), resource="mem",
                    start=evidence.start, end=evidence.end,
                    numbers={"per_s": grows.per_s, "full_in_s": grows.full_in_s, "z": grows.z},
                    harm_in_s=grows.full_in_s if evidence.live else None,
                    actions=(
                        Action("code", Line("import tracemalloc; tracemalloc.start()"),
                               text="Find lists or caches that grow, and what each DataLoader "
                               "worker copies; more --mem only delays the end."),
                    ),
                )
            )  # fmt: skip
    return found if judged else NotEvaluable("anonymous memory or its limit is not known")


def swap_io(evidence: Evidence) -> Outcome:
    """After the warm-up: the job's swap rises over 5 min (by 64 MiB), or some of its processes wait
    for I/O 40 % of the time for 5 min.

    Guards: loading libraries at the start is normal. The kernel's `full` pressure is not recorded;
    `some`, which is, is larger, hence 40 in place of 20. Numbers proposed.
    """
    found: list[Finding] = []
    judged = False
    warm = evidence.bins(min(WARM_UP_MOST_S, 120.0))
    most = evidence.site.threshold("swap-io.io_pressure_percent", 40)
    for node in evidence.nodes:
        swap = node.job.get("swap_used_bytes", Track())
        pressure = node.job.get("io_pressure_percent", Track())
        grown = _swap_growth(evidence, swap, warm)
        held = sustained(evidence, 300.0, lambda means: means[0] >= most, (pressure,), warm)
        judged = judged or held.known or grown is not None
        least = evidence.site.threshold("swap-io.growth_bytes", 64.0 * (1 << 20))
        words = []
        if grown is not None and grown >= least:
            words.append(f"swap {bytes_text(swap.known()[-1])} (+{rate_text(grown / 300)})")
        if held.spans:
            words.append(f"waiting for I/O {percent(pressure.average(*held.spans[-1]) or 0)}")
        if words:
            found.append(_swapping(evidence, node, ", ".join(words), bool(grown)))
    return found if judged else NotEvaluable("neither swap nor I/O pressure is known")


def _swap_growth(evidence: Evidence, swap: Track, first: int) -> float | None:
    """The most that swap grew in five minutes; None where that is not known."""
    width = evidence.bins(300)
    values = swap.mean
    steps = [
        values[n + width] - values[n]
        for n in range(first, len(values) - width)
        if not isnan(values[n]) and not isnan(values[n + width])
    ]
    return max(steps, default=None)


def _swapping(evidence: Evidence, node: NodeEvidence, text: str, swaps: bool) -> Finding:
    stage = Action("shell", Line('cp -r DATA "$TMPDIR"'), text="Stage data to the node's own disk.")
    wanted = rightsize.more_memory(evidence) if swaps else None
    line = None if wanted is None else rightsize.memory_line(requested(evidence), wanted)
    return Finding(
        "swap-io", "warning", f"{clean(node.node)}: {text}", f"{text}, after the first minutes",
        "medium", clean(node.node), resource="mem", start=evidence.start, end=evidence.end,
        actions=(rightsize.action_of(line), stage) if line else (stage,),
    )  # fmt: skip


def _finding(
    evidence: Evidence, rule: str, level: str, title: str, text: str, confidence: str,
    numbers: dict[str, float], action: Action,
) -> Finding:  # fmt: skip
    return Finding(
        rule, level, title, text, confidence, resource="mem",
        start=evidence.start, end=evidence.end, numbers=numbers, actions=(action,),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("mem-over", mem_over),
    Rule("mem-per-gpu-high", mem_per_gpu_high, live=False),
    Rule("mem-near-limit", mem_near_limit, report=False),
    Rule("oom-killed", oom_killed),
    Rule("host-leak", host_leak),
    Rule("swap-io", swap_io),
)
