"""How much CPU time a job used, over which time, and of how many cores; and its levels."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable
from gpumon.analysis.known import total
from gpumon.analysis.once import once
from gpumon.analysis.phases import between
from gpumon.analysis.rightsize import amounts
from gpumon.analysis.rightsize.cores import threads_per_core
from gpumon.analysis.rightsize.proof import is_close, is_whole
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.phrasing import elapsed_s, finding
from gpumon.analysis.rundata import RunData, Track
from gpumon.analysis.signals import observed, phase_bins
from gpumon.analysis.whole_run import counted_core_s
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.slurm.job import Job


class CoreTime(NamedTuple):
    """CPU seconds of the whole job, the time that they are spread over, and who says so."""

    core_s: float
    window_s: float
    source: str
    confidence: str


@once
def core_time(run: RunData) -> CoreTime | NotEvaluable:
    """By the recording where it reaches the end of the run, else by accounting where that knows."""
    recorded = _recorded_core_time(run)
    if recorded is not None and run.coverage.to_end:
        return recorded
    figures = amounts.accounted(run)
    if isinstance(figures, NotEvaluable):
        return recorded or figures
    if figures.cpu_core_s is None:
        lack = NotEvaluable(Lack.SLURM, figures.missing.get("cpu", "no CPU time"))
        return recorded or lack
    whole_s, source, confidence = max(1.0, elapsed_s(run)), figures.source, "medium"
    if source == "sacct" and run.job is not None and (where := few_nodes_text(run, run.job)):
        source, confidence = f"{source}, of {where}", "low"
    return CoreTime(figures.cpu_core_s, whole_s, source, confidence)


#: to a job of which Slurm counts only a part
COUNT_ALL = (
    "Check that the program runs on every node; start it with srun, so that Slurm counts all of it."
)


def few_nodes_text(run: RunData, job: Job) -> str:
    """`steps on 1 of 4 nodes`, beyond which Slurm counts nothing; "" where they reached all."""
    nodes = requested(run).nodes
    reached = [each.node_count for each in job.user_steps]
    known = [each for each in reached if each]
    most = max(known, default=0)
    return f"steps on {most} of {nodes} nodes" if 0 < most < nodes and known == reached else ""


def _recorded_core_time(run: RunData) -> CoreTime | None:
    core_s = total(each.cpu_core_s for each in run.nodes)
    if core_s is None or len(run.nodes) < requested(run).nodes:
        return None
    if not run.coverage.to_end:  # what came after the last sample is not known
        spans = [each.span for each in run.nodes if each.span is not None]
        if not spans:
            return None
        window_s = max(end for _, end in spans) - min(begin for begin, _ in spans)
        return CoreTime(core_s, max(run.bin_s, window_s), "recorded", "medium")
    whole_s = max(1.0, elapsed_s(run))
    if run.coverage.from_start:
        return CoreTime(core_s, whole_s, "recorded", "high")
    counted_s = counted_core_s(run)
    if counted_s is not None:
        return CoreTime(counted_s, whole_s, "the kernel's counter since the start", "high")
    since = max(run.bin_s, run.end - max(run.start, run.grid_start)) if run.count else whole_s
    return CoreTime(core_s, since, "recorded", "medium")


def node_means(run: RunData) -> dict[str, float] | None:
    """Cores that each node used over the time that was recorded; None as soon as one is missing."""
    means = {each.node: each.job.get("cpu_cores_used", Track()).average() for each in run.nodes}
    known = {node: mean for node, mean in means.items() if mean is not None}
    return known if len(known) >= max(len(means), requested(run).nodes) else None


def cores_in_all(run: RunData) -> int:
    """Of all nodes, as far as one thread per core can use them."""
    request = requested(run)
    cpus = run.job.allocated.cpus if run.job else None
    return (cpus or (request.cpus or 0) * request.nodes) // (threads_per_core(run) or 1)


def has_more_than_requested(run: RunData) -> bool:
    """Whole nodes by --exclusive or the partition's rule, or cores that came with the memory."""
    cpus = run.job.allocated.cpus if run.job else None
    asked = run.job.requested.resources.cpus if run.job else None
    return requested(run).is_exclusive or bool(cpus and asked and cpus > 2 * asked)


class Spare(NamedTuple):
    """The one node of several that used far less of its cores than all others."""

    node: str
    cores: float  # used in the mean


def spare_node(run: RunData) -> Spare | None:
    means, cpus = node_means(run) or {}, {each.node: each.cpus for each in run.nodes}
    shares = sorted((used / (cpus[node] or 1), node) for node, used in means.items())
    if len(shares) < 2 or shares[0][0] >= _SPARE_SHARE * shares[1][0]:
        return None
    node = shares[0][1]
    return Spare(clean(node), means[node])


def full_share(run: RunData) -> float | None:
    """Part of the time in which nearly all cores of a node were busy, of the node where that is
    least; None where it is not known.
    """
    usable = _NEARLY_ALL / (threads_per_core(run) or 1)
    shares = [
        sum(used >= usable * node.cpus for used in known) / len(known)
        for node in run.nodes
        if node.cpus and (known := node.job.get("cpu_cores_used", Track()).known())
    ]
    return min(shares, default=None)


#: of a node's cores (proposed)
_NEARLY_ALL = 0.9

#: a node that uses less than this part of what every other uses has too little to do (proposed)
_SPARE_SHARE = 0.5

#: cores: a level that uses less is a wait
_RESTING = 0.1
#: more levels than these are no story; part of the cores below which a level uses few, and from
#: which on one uses them (proposed)
_MOST_LEVELS, _FEW, _MANY = 4, 0.5, 0.75


@once
def _in_use(run: RunData) -> Track:
    """Cores in use on all nodes; empty where one was not recorded."""
    tracks = [each.job.get("cpu_cores_used", Track()) for each in run.nodes]
    if len(tracks) < requested(run).nodes or not all(len(each.mean) for each in tracks):
        return Track()
    return Track(array("f", map(sum, zip(*(each.mean for each in tracks)))))


def levels_text(run: RunData) -> str:
    """`4.0 of 16 cores used for 2 h 00 min, then 15.8 for 1 h 00 min` of a run with a part that
    uses few of its cores and one that uses them; "" for any other.
    """
    track, cores = _in_use(run), cores_in_all(run)
    parts = between(track.cuts(phase_bins(run)), *observed(run)) if len(track.mean) else []
    levels = [
        (mean, (last - first) * run.bin_s)
        for first, last in parts
        if (mean := track.average(first, last)) is not None and mean >= _RESTING
    ]
    used = [mean for mean, _ in levels]
    if not 2 <= len(levels) <= _MOST_LEVELS:
        return ""
    if min(used) > _FEW * cores or max(used) < _MANY * cores:
        return ""
    (first, seconds), *others = levels
    more = "".join(f", then {mean:.1f} for {age_text(s)}" for mean, s in others)
    return f"{first:.1f} of {cores} cores used for {age_text(seconds)}{more}"


def seldom_text(run: RunData) -> str:
    """`; more than three quarters of them for 5 min` of a run that seldom used so many."""
    values, cores = _in_use(run).known(), cores_in_all(run)
    bins = sum(value > _MANY * cores for value in values)
    if not bins or bins > _FEW * len(values):
        return ""
    return f"; more than three quarters of them for {age_text(bins * run.bin_s)}"


def cores_finding(
    run: RunData, level: str, text: str, numbers: Mapping[str, float], *actions: Action | None
) -> Finding:
    """Of the cores over the whole run."""
    return finding(
        run,
        level,
        text,
        rest=f", over {age_text(run.elapsed_s)}",
        confidence="high" if is_whole(run) and is_close(run) and not run.live else "medium",
        numbers=numbers,
        actions=actions,
    )
