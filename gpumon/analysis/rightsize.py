"""From what a job used to what the next one should ask for: memory, CPUs, GPUs, time.

Each `…_need` says how much, on what it rests and how sure that is; each `…_line` writes it in the
form of the user's own request, rounded, with a unit. Formulas: jobstats' rounding, with the
maximum over nodes and time in place of its mean; UVA's 10 to 25 % more time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from gpumon.analysis.accounting import Used, highest, out_of_memory, used
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import Action, Recommendation
from gpumon.analysis.requested import Requested, node_types, requested
from gpumon.analysis.rules import NotEvaluable
from gpumon.analysis.signals import active_share, job_devices, job_processes
from gpumon.model.lines import EMPTY, Line, setting, value
from gpumon.model.reading import number
from gpumon.model.units import bytes_text, clock_text
from gpumon.slurm.job import Job

GIB = 1 << 30
MIB = 1 << 20
_QUARTER_S = 900
#: below this a figure per CPU or GPU is rounded to `_STEP`, else CPUs would multiply the error
_FINE_BELOW = 4 * GIB
_STEP = 256 * MIB
#: a GPU that worked in a smaller part of its bins is not counted (proposed)
WORKING_SHARE = 0.05


@dataclass(frozen=True)
class Need:
    """So much, and why. For memory: bytes of the node that used most, margin not yet added."""

    amount: float
    factor: float  # margin
    basis: str
    confidence: str
    is_upper_bound: bool = False
    in_all: float | None = None  # over all nodes

    @property
    def with_margin(self) -> float:
        return self.amount * self.factor


# -- how much is known -----------------------------------------------------------------------------


def thin(evidence: Evidence) -> str:
    """Why samples are too few to advise anything; "" where they are enough, or there are none."""
    coverage = evidence.coverage
    if not evidence.has_samples:
        return ""
    measured_s = evidence.elapsed_s * coverage.covered_percent / 100
    if coverage.interval_s and measured_s < 3 * coverage.interval_s:
        return f"too short: {int(measured_s / coverage.interval_s)} samples"
    least = evidence.site.threshold("low-coverage.advice_percent", 50.0)
    if coverage.covered_percent < least:
        return f"only {coverage.covered_percent:.0f} % of the run was measured"
    return ""


def is_whole(evidence: Evidence) -> bool:
    """Samples of the whole run, at most 5 s apart."""
    coverage = evidence.coverage
    close = coverage.interval_s is not None and coverage.interval_s <= 5
    return close and coverage.from_start and coverage.covered_percent >= 95


def accounted(evidence: Evidence) -> Used | NotEvaluable:
    """Slurm's own figures of an ended job. A job that was cut short by hand proves no need."""
    job = evidence.job
    if job is None or not job.has_ended:
        return NotEvaluable("no samples, and Slurm has figures only when a job has ended")
    figures = used(job)
    if job.state == "CANCELLED" and figures.source == "sacct":
        return NotEvaluable("cancelled before its end, and not recorded")
    return figures


# -- memory ----------------------------------------------------------------------------------------


def memory_need(evidence: Evidence) -> Need | NotEvaluable:
    """Host memory without page cache, of the node that used most.

    Margin: 1.2 on a record of the whole run, 1.3 on four fifths of it, 1.5 on less and on
    accounting that polls; 1.2 on accounting's peak with page cache, which is an upper bound.
    """
    nodes = requested(evidence).nodes
    peaks = [each.mem_peak_bytes for each in evidence.nodes if each.mem_peak_bytes is not None]
    if peaks and len(peaks) >= nodes:
        if reason := thin(evidence):
            return NotEvaluable(reason)
        return _recorded_need(evidence, peaks)
    figures = accounted(evidence)
    if isinstance(figures, NotEvaluable):
        reason = f"{nodes - len(peaks)} of {nodes} nodes were not recorded"
        return NotEvaluable(reason) if peaks else figures
    if figures.mem_bytes is None or figures.mem_meaning is None:
        return NotEvaluable(figures.missing.get("mem", "no figure of memory"))
    meaning = figures.mem_meaning
    return Need(
        max([figures.mem_bytes, *peaks]),
        1.2 if meaning.cache else 1.5,
        f"{figures.source}: {bytes_text(figures.mem_bytes)}, {meaning.words}",
        "low" if meaning.cache is None else "medium",
        is_upper_bound=meaning.is_upper_bound,
        in_all=sum(each.mem_used_bytes or 0 for each in figures.nodes.values())
        or figures.mem_bytes * nodes,
    )


def _recorded_need(evidence: Evidence, peaks: list[float]) -> Need:
    covered = evidence.coverage.covered_percent
    if is_whole(evidence):
        factor, confidence = 1.2, "high"
    elif covered >= 80 and evidence.coverage.from_start:
        factor, confidence = 1.3, "medium"
    else:
        factor, confidence = 1.5, "medium"
    until = ""
    if evidence.live:
        until, confidence = " so far", "low"
    elif not evidence.coverage.from_start:
        until = " since attach"
    where = " on one node" if len(peaks) > 1 else ""
    basis = f"peak {bytes_text(max(peaks))}{where}{until}, page cache not counted"
    return Need(max(peaks), factor, basis, confidence, in_all=sum(peaks))


def round_memory(size_bytes: float) -> int:
    """Up to whole GiB, at least 1; above 30 to the next 5, above 100 to 10, above 1000 to 100."""
    gib = size_bytes / GIB
    step = 1 if gib <= 30 else 5 if gib <= 100 else 10 if gib <= 1000 else 100
    return max(1, ceil(gib / step - 1e-9) * step) * GIB


def _round_share(size_bytes: float) -> int:
    """Of memory per CPU or per GPU."""
    if size_bytes >= _FINE_BELOW:
        return round_memory(size_bytes)
    return max(1, ceil(size_bytes / _STEP - 1e-9)) * _STEP


def size_text(size_bytes: float) -> str:
    """As Slurm reads it, always with a unit: `9G`, `768M`; rounded up to MiB."""
    mib = ceil(size_bytes / MIB)
    return f"{mib}M" if mib % 1024 else f"{mib // 1024}G"


def site_default_bytes(evidence: Evidence, cpus: int | None) -> float:
    """Memory that a job of so many CPUs gets without asking; 0 where the site has not said."""
    partition = evidence.job.partition if evidence.job else ""
    per_core = evidence.site.mem_default_per_core_bytes
    return float(per_core.get(partition, 0) * (cpus or 0))


def memory_line(
    request: Requested, node_bytes: float, cpus: int | None = None, gpus: int | None = None
) -> Recommendation | None:
    """The request for `node_bytes` per node, in the user's form; None where nothing changes.

    `cpus` and `gpus` are those of the new request: memory per CPU times fewer CPUs would be less.
    """
    if request.mem_bytes is None:
        return None
    units = {"cpu": (request.cpus, cpus), "gpu": (request.gpus, gpus)}.get(request.mem_form)
    if units is None:
        before, after = request.mem_bytes, round_memory(node_bytes)
        directive = "--mem"
    else:
        old, new = units[0], units[0] if units[1] is None else units[1]
        if not old:
            return None
        before = request.mem_bytes / old
        if not new:  # memory per GPU, and no GPU any more
            old_line = setting(f"--mem-per-{request.mem_form}", size_text(before))
            return _instead("--mem", old_line, size_text(round_memory(node_bytes)))
        after = _round_share(node_bytes / new)
        directive = f"--mem-per-{request.mem_form}"
    texts = size_text(before), size_text(after)
    return change(directive, *texts) if texts[0] != texts[1] else None


def less_memory(evidence: Evidence, need: Need, cpus: int | None = None) -> float | None:
    """Bytes per node to ask for; None where that is not less than was asked for.

    Never below the site's default, and never after an OOM.
    """
    request = requested(evidence)
    if request.mem_bytes is None or was_out_of_memory(evidence):
        return None
    cpus = request.cpus if cpus is None else cpus
    wanted = max(need.with_margin, site_default_bytes(evidence, cpus))
    return wanted if round_memory(wanted) < request.mem_bytes else None


def more_memory(evidence: Evidence) -> float | None:
    """After an OOM: half as much again, at least; None where no node has more."""
    request = requested(evidence)
    if request.mem_bytes is None:
        return None
    need = memory_need(evidence)
    wanted = 1.5 * request.mem_bytes
    if not isinstance(need, NotEvaluable):
        wanted = max(wanted, need.with_margin)
    largest = highest(
        [*(float(each.mem_bytes) for each in node_types(evidence)),
         *(number(each.header.facts.get("mem_total_bytes")) for each in evidence.nodes)]
    )  # fmt: skip
    if largest is not None and round_memory(wanted) > largest:
        wanted = largest // GIB * GIB
        return wanted if wanted > request.mem_bytes and round_memory(wanted) <= largest else None
    return wanted


def was_out_of_memory(evidence: Evidence) -> bool:
    """By the kernel on any node, or by any of Slurm's records of this job and its siblings."""
    jobs = [job for job in (evidence.job, *evidence.siblings) if job is not None]
    return any(each.oom_kills for each in evidence.nodes) or any(map(out_of_memory, jobs))


# -- CPUs ------------------------------------------------------------------------------------------


def peak_cores(evidence: Evidence) -> float | None:
    """Largest mean of a minute on one node; None as soon as a node is missing: it may be it."""
    peaks = [each.peak60_cores for each in evidence.nodes]
    if len(peaks) < requested(evidence).nodes or None in peaks:
        return None
    return highest(peaks)


def cpus_need(evidence: Evidence, serial: bool = False) -> int | None:
    """CPUs per node: max(1 + GPU processes, ceil(1.1 · peak)), rounded up to even.

    One, where a job without GPUs is known to be serial. None without a record.
    """
    peak = peak_cores(evidence)
    if peak is None or thin(evidence):
        return None
    devices = job_devices(evidence)
    per_node = [
        {each.facts.pid for d in devices if d.node == node.node for each in job_processes(d)}
        for node in evidence.nodes
    ]
    held = max((len([d for d in devices if d.node == n.node]) for n in evidence.nodes), default=0)
    feeders = max([held, requested(evidence).gpus or 0, *map(len, per_node)])
    return 1 if serial and not feeders else cpus_for(peak, feeders)


def cpus_for(peak: float, feeders: int) -> int:
    """CPUs for a peak of so many cores; `feeders`: GPUs, or processes on them."""
    return 2 * ceil(max(1 + feeders, ceil(1.1 * peak - 1e-9)) / 2)


def more_cpus(evidence: Evidence) -> int | None:
    """CPUs per node where the GPUs wait for data: ceil(CPUs · 0.9 / busy), at most the fair share.

    None where that is no more, or the GPUs' mean busy is not known. Without the site's share, the
    node's own processors are the bound.
    """
    request = requested(evidence)
    values = [each.track("busy_percent").average() for each in job_devices(evidence)]
    known = [value for value in values if value]
    if not known or not request.cpus or not request.gpus:
        return None
    wanted = ceil(request.cpus * 0.9 / (sum(known) / len(known) / 100))
    shares = [each.cores / each.gpus * request.gpus for each in node_types(evidence) if each.gpus]
    cores = [number(each.header.facts.get("cpus_online")) for each in evidence.nodes]
    bound = highest(shares) or highest(cores)
    if bound is None:
        return None
    wanted = min(wanted, int(bound))
    return wanted if wanted > request.cpus else None


def cpus_line(request: Requested, cpus: int, gpus: int | None = None) -> Recommendation | None:
    """The request for `cpus` per node, in the user's form; None where it stays the same.

    `gpus`: of the new request per node, where that changes; CPUs per GPU hang on it.
    """
    if not request.cpus:
        return None
    per_node = _tasks_per_node(request)
    if request.cpus_per_gpu and request.gpus:
        each = request.cpus // request.gpus
        if gpus == 0:
            return _instead("--cpus-per-task", Line("--cpus-per-gpu={}", each), str(cpus))
        directive, before, after = "--cpus-per-gpu", each, ceil(cpus / (gpus or request.gpus))
    elif per_node == 1 or (request.cpus_per_task or 1) > 1:
        directive = "--cpus-per-task"
        before, after = request.cpus_per_task or request.cpus // per_node, ceil(cpus / per_node)
    elif request.tasks_per_node:
        directive, before, after = "--ntasks-per-node", per_node, cpus
    else:
        directive, before, after = "--ntasks", request.tasks or request.cpus, cpus * request.nodes
    grows = cpus > request.cpus or directive == "--cpus-per-gpu"
    if after == before or (after > before and not grows):
        return None
    return change(directive, str(before), str(after))


def cpus_given(request: Requested, line: Recommendation, cpus: int, gpus: int | None = None) -> int:
    """CPUs per node that the line gives: per task or GPU, rounding gives more than `cpus`."""
    if line.directive == "--cpus-per-gpu":
        return int(line.after) * (gpus or request.gpus or 1)
    if line.directive == "--cpus-per-task":
        return int(line.after) * _tasks_per_node(request)
    return cpus


def _tasks_per_node(request: Requested) -> int:
    return request.tasks_per_node or ceil((request.tasks or request.nodes) / request.nodes)


# -- GPUs ------------------------------------------------------------------------------------------


def gpus_need(evidence: Evidence) -> tuple[int, int] | None:
    """(most on one node, in all) of the GPUs that worked; one of which nothing is known counts.

    None where not all GPUs of the job were recorded, nor are in jobstats' summary.
    """
    devices = job_devices(evidence)
    in_all = requested(evidence).gpus_in_all
    figures = accounted(evidence)
    if not evidence.has_samples and isinstance(figures, Used) and figures.nodes:
        counts = [sum(gpu.busy_percent != 0 for gpu in node.gpus.values())
                  for node in figures.nodes.values()]  # fmt: skip
        return max(counts), sum(counts)
    if not devices or len(devices) < (in_all or 0) or thin(evidence):
        return None
    share = evidence.site.threshold("gpus.working_share", WORKING_SHARE)
    shares = [(each.node, active_share(each)) for each in devices]
    working = [node for node, value in shares if value is None or value >= share]
    return max((working.count(node) for node in working), default=0), len(working)


def gpus_line(request: Requested, per_node: int, in_all: int) -> Recommendation | None:
    """The request for so many GPUs; an empty `after` deletes it. None where it stays the same."""
    if not request.gpu_text:
        return None
    if not in_all:
        return Recommendation(request.gpu_option, request.gpu_text, EMPTY, "")
    count = {"node": per_node, "job": in_all}.get(request.gpu_form)
    match = re.fullmatch(r"(.*[:=])?(\d+)", request.gpu_text)
    if count is None or match is None or int(match.group(2)) <= count:
        return None
    after = f"{match.group(1) or ''}{count}"
    return change(request.gpu_option, request.gpu_text, after)


# -- time ------------------------------------------------------------------------------------------


def round_time(seconds: float) -> int:
    """Up to the next quarter of an hour."""
    return max(1, ceil(seconds / _QUARTER_S - 1e-9)) * _QUARTER_S


def completed(evidence: Evidence) -> list[float]:
    """Elapsed seconds of this run and its siblings, of those that completed."""
    return completed_s([job for job in (evidence.job, *evidence.siblings) if job])


def completed_s(jobs: Iterable[Job]) -> list[float]:
    """Elapsed seconds of those that completed."""
    return [job.elapsed_s for job in jobs if job.state == "COMPLETED" and job.elapsed_s is not None]


def less_time(elapsed: Iterable[float]) -> int | None:
    """Time limit in seconds: 1.25 times the longest similar run, rounded up to 15 min."""
    longest = max(elapsed, default=None)
    return None if longest is None else round_time(1.25 * longest)


def action_of(line: Recommendation | None, text: str = "") -> Action:
    """The line as a directive of the job script; only the sentence where there is none."""
    if line is None:
        return Action("shell", EMPTY, text=text)
    before = line.before
    if before and not before.startswith("--"):
        before = setting(line.directive, before)
    return Action("sbatch", line.line, Line("#SBATCH {}", before), text)


def change(directive: str, before: str, after: str) -> Recommendation | None:
    """The line, where its new value is one of this option; an old one that is not is left out."""
    return _instead(directive, value(directive, before) or EMPTY, after)


def _instead(directive: str, before: Line, after: str) -> Recommendation | None:
    """... in place of another option."""
    new = value(directive, after)
    return None if new is None else Recommendation(directive, before, new, "")


def time_line(limit_s: float | None, wanted_s: float) -> Recommendation | None:
    if limit_s is None or wanted_s == limit_s:
        return None
    return change("--time", clock_text(limit_s), clock_text(wanted_s))
