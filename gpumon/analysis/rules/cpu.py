"""CPU: cores that were not used, by the mean over the run; `cpu_peak` judges by the peak.

A mean never proves that cores are too many: a short preprocessing may need all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.finding import Action, Lack, NotEvaluable
from gpumon.analysis.programs import OF_A_COORDINATOR, coordinates
from gpumon.analysis.rightsize import changes
from gpumon.analysis.rightsize.cores import peak_cores, threads_per_core
from gpumon.analysis.rightsize.proof import is_whole, unproven
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.advice import AS_MANY, share_the_node
from gpumon.analysis.rules.core_time import (
    COUNT_ALL,
    core_time,
    cores_in_all,
    full_share,
    has_more_than_requested,
    levels_text,
    seldom_text,
    spare_node,
)
from gpumon.analysis.rules.cpu_idle import waited_s
from gpumon.analysis.rules.cpu_peak import cpu_underused, gpus_worked, is_serial, serial_many_cores
from gpumon.analysis.rules.gpu_waits import MOVES_BYTES_PER_S
from gpumon.analysis.rules.host_limit import swap_io
from gpumon.analysis.rules.phrasing import CORES_HELD, elapsed_s, finding, percent
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import io_tracks, is_interactive, is_server, job_devices
from gpumon.analysis.thresholds import Cores, Percent, Seconds, Share
from gpumon.analysis.waiting import bound_nodes, is_blocked
from gpumon.model.lines import Line, path, word
from gpumon.model.units import age_text


class CpuNeverUsed(NamedTuple):
    elapsed_s: Seconds = 300
    cores: Cores = 0.01  # in the mean


@rule(
    "cpu-never-used",
    title="neither CPU cores nor GPUs were used",
    why="An idle job still counts against your fair share.",
    remedy="read the job's output; if it hangs, cancel it",
)
def cpu_never_used(run: RunData, t: CpuNeverUsed) -> Checked:
    """Of a job on one node. Critical once the job has ended, by a measurement of the whole run: a
    job that runs may wait for data or a license. Information of one or two cores, with which jobs
    wait for others. Guards: GPUs of which nothing is known, and steps that still run in
    accounting, make it not evaluable; notebooks and servers wait for people, workflow managers for
    the jobs that they launch, and what moves data works. Source: jobstats ("did not use the CPU"),
    job_defense_shield; 1 % of a core proposed.
    """
    if requested(run).nodes > 1:
        return None
    if elapsed_s(run) <= t.elapsed_s:
        return NotEvaluable(Lack.TIME)
    measured = core_time(run)
    if not isinstance(measured, NotEvaluable) and measured.core_s / measured.window_s >= t.cores:
        return None
    if _waits_for_others(run):
        return None
    if isinstance(measured, NotEvaluable):
        return measured
    worked = gpus_worked(run)
    if worked:
        return None
    if worked is None:
        return NotEvaluable(Lack.READINGS, "it is unknown whether a GPU worked")
    job_id = word("job", run.job.id) if run.job and run.job.id else Line("JOBID")
    file = run.job.std_out if run.job else ""
    output = path(file) if file and "%" not in file else Line("slurm-{}.out", job_id)
    hours = f"{measured.core_s / 3600:.2f} core-hours used in {age_text(elapsed_s(run))}"
    end = Action("shell", Line("scancel {}", job_id), text="If it hangs, cancel it.")
    sure = measured.confidence == "high" and not run.live
    cores = requested(run).cpus
    holds_few = requested(run).gpus == 0 and cores is not None and cores <= OF_A_COORDINATOR
    return finding(
        run,
        "info" if holds_few else "critical" if sure else "warning",
        hours,
        head="the job was idle: ",
        rest=f" ({measured.source})",
        confidence=measured.confidence,
        numbers={"cpu_core_s": measured.core_s},
        actions=(
            Action("shell", Line("less {}", output), text="Read the job's output."),
            end if run.live else None,
        ),
    )


def _waits_for_others(run: RunData) -> bool:
    """For people, requests or other jobs, or for a disk or network that it moves data over."""
    devices = job_devices(run)
    moved = [io_tracks(run, node.node) for node in run.nodes]
    rates = [rate for tracks in moved for each in tracks if (rate := each.average()) is not None]
    return (
        is_interactive(run, devices)
        or coordinates(run)
        or any(map(is_server, devices))
        or any(rate >= MOVES_BYTES_PER_S for rate in rates)
    )


class CpuLow(NamedTuple):
    elapsed_s: Seconds = 300
    info_percent: Percent = 80  # of cores × time
    warning_percent: Percent = 65
    phases_percent: Percent = 40  # the same, where the run needs all cores for a part of its time


@rule(
    "cpu-low",
    title="a CPU job used under {info_percent} ({warning_percent}) of its cores' time",
    why=CORES_HELD,
    remedy="request fewer",
    when="report",
    folds=("cpu-underused",),
)
def cpu_low(run: RunData, t: CpuLow) -> Checked:
    """Guards: never for jobs with GPUs, or of which that is not known; not where `cpu-binding`,
    `serial-many-cores` or `cpu-never-used` says it better, nor of more cores than were requested
    (`cpu-mostly-idle` asks about these), nor of one or two with which a job launches others. A run
    that needs all cores for a quarter of its time warns only below 40 %. Hardware threads count as
    far as one thread per core can use them; where it is not known whether cores have two, about
    half of the CPUs is information only. Source: jobstats 65 and 80; job_defense_shield 60.
    """
    request = requested(run)
    if request.gpus or job_devices(run) or has_more_than_requested(run):
        return None
    if request.gpus is None:
        return NotEvaluable(Lack.SLURM, "it is unknown whether the job had GPUs")
    if not request.cpus:
        return NotEvaluable(Lack.SLURM, "the job's number of cores is unknown")
    if elapsed_s(run) <= t.elapsed_s:
        return NotEvaluable(Lack.TIME)
    measured = core_time(run)
    if isinstance(measured, NotEvaluable):
        return measured
    cores = (run.job.allocated.cpus if run.job else None) or request.cpus * request.nodes
    threads = threads_per_core(run)
    if coordinates(run) and cores <= OF_A_COORDINATOR:
        return None
    idle_s = waited_s(run)  # `cpu-idle-time` names it
    worked_s = max(1.0, measured.window_s - idle_s)
    used_percent = 100 * (threads or 1) * measured.core_s / (cores * worked_s)
    is_little = used_percent < t.info_percent and used_percent * cores >= 1
    if not is_little or is_serial(run) or bound_nodes(run):
        return None
    is_half = threads is None and int(used_percent) in _MAYBE_HALF
    full = full_share(run)
    has_phases = full is not None and full >= _NEEDS_SHARE
    line = changes.fewer_cpus_line(run)
    spare, levels = spare_node(run), levels_text(run)
    text = ""
    if measured.confidence == "low":
        text = COUNT_ALL
    elif request.is_alone:
        text = share_the_node(request)
    elif spare:
        text = f"Find out why {spare.node} did less; what only coordinates can share a node."
    elif has_phases or levels:
        text = "Run the part that uses few cores as a job of its own, if it can be separated."
    elif is_blocked(run):
        told = swap_io(run)
        text = _IF_IT_WAITS if isinstance(told, list) and told else _STAGE
    elif is_half:
        text = "If lscpu shows two threads per core, all cores were busy; else request fewer."
    least = t.phases_percent if has_phases else t.warning_percent
    is_warning = used_percent < least and not is_half and measured.confidence != "low"
    text = text or (AS_MANY if is_warning and not line else "")
    if not (line or text) and unproven(run):
        return None
    mean = f"CPU {percent(used_percent)} of {cores // (threads or 1)} cores"
    often = f"; all were busy for {percent(100 * full)} of the time" if full and has_phases else ""
    return finding(
        run,
        "warning" if is_warning else "info",
        levels or mean,
        rest=(f"; {mean}" if levels else "")
        + f" over {age_text(worked_s if idle_s else elapsed_s(run))}"
        + (" in which it computed" if idle_s else "")
        + f" ({measured.source}, mean)"
        + (f"; {spare.node} used {spare.cores:.1f} cores" if spare else "")
        + ("" if levels else often or seldom_text(run)),
        confidence=measured.confidence,
        numbers={"cpu_percent": used_percent, "cores": cores, "cpu_core_s": measured.core_s},
        actions=[changes.action_of(line, text) if line or text else None],
    )


#: of the time, in which a run that has phases needs all cores (proposed)
_NEEDS_SHARE = 0.25
_STAGE = "Its processes waited for I/O: copy the data to the node's own disk first."
_IF_IT_WAITS = "Its processes waited for I/O. If they have to, request fewer cores."
#: % of the CPUs that one thread per core may be, of cores with two
_MAYBE_HALF = range(45, 53)


class CpuMostlyIdle(NamedTuple):
    elapsed_s: Seconds = 900
    share: Share = 0.25  # of the cores, in the mean


@rule(
    "cpu-mostly-idle",
    title="under {share} of the cores used on average",
    why=CORES_HELD,
    remedy="request fewer; record a whole run to learn how many it needs",
)
def cpu_mostly_idle(run: RunData, t: CpuMostlyIdle) -> Checked:
    """Of more than 2 cores, by the mean: by Slurm's accounting, or by the kernel's counter where a
    recording began late. A mean proves no need, only how much longer the run can take with fewer
    cores. Guards: not where a recording of the whole run shows the peak; not where `cpu-binding`,
    `cpu-low`, `serial-many-cores` or `cpu-never-used` says it better. Source: jobstats; 0.25
    proposed.
    """
    request = requested(run)
    if not request.cpus:
        return NotEvaluable(Lack.SLURM, "the job's number of cores is unknown")
    if elapsed_s(run) <= t.elapsed_s:
        return NotEvaluable(Lack.TIME)
    if run.has_samples and is_whole(run) and peak_cores(run) is not None:
        return None
    measured = core_time(run)
    if isinstance(measured, NotEvaluable):
        return measured
    cores, mean = cores_in_all(run), measured.core_s / measured.window_s
    if cores <= 2 or mean >= t.share * cores or _said_better(run):
        return None
    line = changes.fewer_cpus_line(run)
    text = "Record a whole run, which shows whether any part of it needs more cores."
    if measured.confidence == "low":
        text = COUNT_ALL
    elif request.is_alone:
        text = share_the_node(request)
    return finding(
        run,
        "info",
        f"{mean:.{1 if mean >= 0.1 else 2}f} of {cores} cores used on average",
        rest=f", over {age_text(measured.window_s)} ({measured.source})",
        confidence=measured.confidence,
        numbers={"mean": mean, "cores": cores, "cpu_core_s": measured.core_s},
        actions=[changes.action_of(line, text)],
    )


def _said_better(run: RunData) -> bool:
    rules = (cpu_never_used, cpu_low, serial_many_cores, cpu_underused)
    answers = (each(run) for each in rules)
    return bool(bound_nodes(run)) or any(isinstance(answer, list) and answer for answer in answers)
