"""Cores that no minute needed: a peak far below them, a serial program, more than a GPU's share.

Every line downwards rests on the peak of a minute, which only a recording has; a mean alone asks a
question. Cores that idle because the program waits (`analysis.waiting`) are not too many.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.finding import Lack, NotEvaluable, to_do, to_write
from gpumon.analysis.rightsize import amounts, changes
from gpumon.analysis.rightsize.cores import cpus_need, fewer_cpus, peak_cores, threads_per_core
from gpumon.analysis.rightsize.proof import PARTLY, is_whole, is_worth
from gpumon.analysis.rightsize.requested import cores_of, node_types, requested
from gpumon.analysis.rules.bottleneck import nodes_short_of_cores
from gpumon.analysis.rules.core_time import (
    COUNT_ALL,
    core_time,
    cores_finding,
    cores_in_all,
    node_means,
)
from gpumon.analysis.rules.phrasing import CORES_HELD, elapsed_s, finding, percent
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import active_share, job_devices
from gpumon.analysis.thresholds import Cores, Seconds, Share
from gpumon.analysis.waiting import bound_nodes, is_blocked, sharing_one_core, threads_of_one_core
from gpumon.model.units import age_text


def gpus_worked(run: RunData) -> bool | None:
    """None where that is not known; False also for a job without GPUs."""
    shares = [active_share(each) for each in job_devices(run)]
    if any(shares):
        return True
    if None in shares:
        return None
    if shares or requested(run).gpus == 0:
        return False
    figures = amounts.accounted(run)
    if isinstance(figures, NotEvaluable):
        return None
    busy = [gpu.busy_percent for node in figures.nodes.values() for gpu in node.gpus.values()]
    return any(busy) if busy and None not in busy else None


def _peak(
    run: RunData, recorded_s: float, *, is_part: bool = False
) -> tuple[float, int] | NotEvaluable:
    """(peak cores of a minute on one node, cores per node), of so much recorded time; `is_part`: of
    a run of which a part was not recorded, too.
    """
    cpus = requested(run).cpus
    if not run.has_samples:
        figures = amounts.accounted(run)
        mean = None if isinstance(figures, NotEvaluable) else figures.cpu_cores_mean
        if mean is None or not cpus:
            return NotEvaluable(Lack.RECORDING, "a peak needs a recording")
        used = percent(100 * mean / (cpus * requested(run).nodes))
        detail = f"mean {used} of the cores; a peak needs a recording"
        return NotEvaluable(Lack.RECORDING, detail)
    if run.elapsed_s < recorded_s:
        return NotEvaluable(Lack.TIME)
    peak = peak_cores(run)
    if peak is None or not cpus:
        return NotEvaluable(Lack.READINGS, "cores used are not known on every node")
    if not is_whole(run) and (few := amounts.thin(run) or (None if is_part else PARTLY)):
        return few
    return peak, cpus


class CpuUnderused(NamedTuple):
    recorded_s: Seconds = 900
    share: Share = 0.66  # of the cores


@rule(
    "cpu-underused",
    title="never more than {share} of the cores in any minute",
    why=CORES_HELD,
    remedy="request as many as the peak",
)
def cpu_underused(run: RunData, t: CpuUnderused) -> Checked:
    """Of more than 2 cores. Guards: the peak and never the mean; one core and one per GPU are
    always kept; not where `serial-many-cores` or `cpu-binding` says it better; of cores with two
    hardware threads one is enough; processes that wait for I/O get no line; of a run of which a
    part was not recorded only where the CPU time of that part bounds what it needed. Source: UVA's
    workshop ("you may need all cores for preprocessing"); 0.66 proposed.
    """
    is_bounded = not run.live and fewer_cpus(run) is not None
    measured = _peak(run, t.recorded_s, is_part=is_bounded)
    if isinstance(measured, NotEvaluable):
        return measured
    peak, cpus = measured
    if cpus <= 2 or (threads_per_core(run) or 1) * peak >= t.share * cpus:
        return None
    needed = cpus_need(run)
    if needed is None or not is_worth(cpus, needed.seen) or requested(run).is_alone:
        return None
    if is_serial(run) or _prepares(run):
        return None
    if nodes_short_of_cores(run):  # their workers are at their limit: more of them need these
        return None
    means = node_means(run)
    minute = "any minute" if is_whole(run) else "any minute recorded"
    text = f"at most {peak:.1f} of {cpus} cores{_on_a_node(run)} used in {minute}"
    text += f", mean {max(means.values()):.1f}" if means else ""
    line = changes.fewer_cpus_line(run)
    action = changes.action_of(line) if line else None
    return cores_finding(run, "info", text, {"peak": peak, "cores": cpus}, action)


def _prepares(run: RunData) -> bool:
    """A running job whose GPUs have not worked yet: its use so far shows no need."""
    return run.live and bool(job_devices(run)) and not gpus_worked(run)


def _on_a_node(run: RunData) -> str:
    return " on a node" if requested(run).nodes > 1 else ""


def is_serial(run: RunData) -> bool:
    found = serial_many_cores(run)
    return isinstance(found, list) and bool(found)


class SerialManyCores(NamedTuple):
    recorded_s: Seconds = 900
    low: Cores = 0.85  # in the mean
    high: Cores = 1.01
    peak: Cores = 1.3  # of a minute


@rule(
    "serial-many-cores",
    title="only one of several cores is busy",
    why="The other cores were idle and made the job wait longer in the queue.",
    remedy="request one core, or run in parallel",
)
def serial_many_cores(run: RunData, t: SerialManyCores) -> Checked:
    """By the peak of a minute; by a mean alone (Slurm's accounting) as a question and without a
    line, because processes that are bound to one core have the same mean.

    Guards: not where processes wait for cores (`cpu-binding`) or for I/O; several processes that
    share one core are no serial program; info for GPU jobs, where one core feeds the GPU, and for
    running ones, which may still prepare. Source: jobstats 0.85 to 1.01, job_defense_shield 0.85.
    """
    if bound_nodes(run) or is_blocked(run):
        return None
    if not run.has_samples:
        return _serial_by_mean(run, t)
    measured = _peak(run, t.recorded_s)
    if isinstance(measured, NotEvaluable):
        return measured
    peak, cpus = measured
    means = node_means(run)
    if means is None:
        return NotEvaluable(Lack.READINGS, "cores used are not known on every node")
    in_all, mean, busiest = cpus * requested(run).nodes, sum(means.values()), max(means.values())
    if in_all <= 1 or busiest < t.low or mean > t.high or peak >= t.peak:
        return None
    has_gpus = bool(requested(run).gpus or job_devices(run))
    if has_gpus and (cpus <= 1 + len(job_devices(run)) or _prepares(run)):
        return None  # no core to spare, or not known yet
    count = sharing_one_core(run)
    if count:
        return cores_finding(
            run,
            "info",
            f"{count} processes together use {mean:.2f} of {in_all} cores",
            {"mean": mean, "peak": peak, "cores": in_all, "processes": count},
            to_do(_MAYBE_PINNED),
        )
    threads = threads_of_one_core(run)
    if threads and not has_gpus:
        return cores_finding(
            run,
            "info" if run.live else "warning",
            f"one of {in_all} cores is busy, of a program with {threads} threads",
            {"mean": mean, "peak": peak, "cores": in_all, "threads": threads},
            to_do(_MAYBE_BOUND),
        )
    line = changes.fewer_cpus_line(run)
    feeds = "; it feeds the GPU" if has_gpus and gpus_worked(run) else ""
    parallel = "Check whether the program can use more cores, by threads or processes."
    return cores_finding(
        run,
        "info" if has_gpus or run.live else "warning",
        f"one of {in_all} cores is busy{feeds} (mean {mean:.2f}, peak {peak:.1f})",
        {"mean": mean, "peak": peak, "cores": in_all},
        changes.action_of(line) if line else None,
        None if has_gpus else to_write(parallel),
    )


IF_SERIAL = "If so, request one core; if not, check whether its processes are bound to one core."
_MAYBE_BOUND = (
    "Check with `taskset -cp PID` whether they are bound to one core; if they are not, the program "
    "is serial: request one core."
)
_MAYBE_PINNED = "Check with `taskset -cp PID` whether they are bound to one core, or take turns."


def _serial_by_mean(run: RunData, t: SerialManyCores) -> Checked:
    request = requested(run)
    if not request.cpus:
        return NotEvaluable(Lack.SLURM, "the job's number of cores is unknown")
    if elapsed_s(run) <= t.recorded_s:
        return NotEvaluable(Lack.TIME)
    measured = core_time(run)
    if isinstance(measured, NotEvaluable):
        return measured
    cores, mean = cores_in_all(run), measured.core_s / measured.window_s
    if cores <= 1 or not t.low <= mean <= t.high:
        return None
    is_part = measured.confidence == "low"
    return finding(
        run,
        "warning" if request.gpus == 0 and not is_part else "info",
        f"{mean:.2f} of {cores} cores used on average: is the program serial?",
        rest=f" over {age_text(measured.window_s)} ({measured.source})",
        confidence=measured.confidence,
        numbers={"mean": mean, "cores": cores},
        actions=[to_do(COUNT_ALL if is_part else IF_SERIAL)],
    )


class CoresPerGpuHigh(NamedTuple):
    recorded_s: Seconds = 900


@rule(
    "cores-per-gpu-high",
    title="more cores per GPU than a fair share, unused",
    why="Without free cores the node's other GPUs cannot be used.",
    remedy="request the fair share",
    folds=("cpu-underused",),
)
def cores_per_gpu_high(run: RunData, t: CoresPerGpuHigh) -> Checked:
    """Guards: whole nodes; what the peak reached is needed. The share is the site's. Source:
    jobstats 12 per GPU on two clusters, job_defense_shield 12 and 18.
    """
    request = requested(run)
    if not request.gpus or bound_nodes(run) or nodes_short_of_cores(run):
        return None
    measured = _peak(run, t.recorded_s)
    if isinstance(measured, NotEvaluable):
        return measured
    peak, cpus = measured
    types = node_types(run)
    shares = [each.cores / each.gpus for each in types if each.gpus]
    if not shares:
        return NotEvaluable(Lack.SITE, "the site file does not define a GPU's share of cores")
    share = int(max(shares))
    whole = [*map(cores_of, run.nodes), *(float(each.cores) for each in types)]
    if any(cores is not None and cpus >= cores for cores in whole):
        return None
    if cpus / request.gpus <= share or peak >= share * request.gpus:
        return None
    line = changes.fewer_cpus_line(run)
    gpus = f"{request.gpus} GPU{'s' if request.gpus > 1 else ''}"
    return cores_finding(
        run,
        "info",
        f"{cpus} cores{_on_a_node(run)} for {gpus} (fair share: {share} per GPU), "
        f"at most {peak:.1f} used",
        {"cores": cpus, "gpus": request.gpus, "share": share, "peak": peak},
        changes.action_of(line) if line else None,
    )
