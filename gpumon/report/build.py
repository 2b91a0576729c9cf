"""One report of the run of one job: findings, changes, figures, and what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from gpumon import __version__
from gpumon.analysis import accounting
from gpumon.analysis.known import highest
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.reconcile import differences
from gpumon.analysis.rightsize.cores import threads_of_job, usable_cpus
from gpumon.analysis.rightsize.proof import unrecorded_text
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rundata import Coverage, NodeData, RunData
from gpumon.analysis.signals import job_devices
from gpumon.analysis.steps import ranks_of
from gpumon.analysis.whole_run import counted_core_s, host_peak
from gpumon.model.sample import JobContext
from gpumon.model.units import bytes_text
from gpumon.report.happenings import happenings
from gpumon.report.model import DeviceRow, Report, SeffFigures, Used
from gpumon.report.rows import device_rows, segments
from gpumon.site import Site
from gpumon.slurm.job import Job, Resources
from gpumon.slurm.seff import seff

#: percentages closer than this are not worth a reason
_SAME_POINTS = 2.0
_GPUS_UNKNOWN = "Slurm's accounting has no GPU usage"
_NO_GPUS = "the job had no GPUs"


def from_accounting(
    job: Job, site: Site, *, siblings: Sequence[Job] = (), now: float | None = None
) -> RunData:
    """Run data that holds nothing but what Slurm's accounting says. `now` of a running job."""
    start = job.start if job.start is not None else job.submit or 0.0
    elapsed_s = job.elapsed_s or 0.0
    end = job.end if job.has_ended and job.end is not None else now or start + elapsed_s
    known = accounting.used(job)
    missing = {} if job.is_pending else dict(known.missing)
    if job.is_running and "usage" in job.missing:
        missing["usage"] = job.missing["usage"]
    if job.gpus and known.gpu_busy_percent is None and not job.is_pending:
        missing.setdefault("gpu", _GPUS_UNKNOWN)
    return RunData(
        job=job, start=start, end=max(start, end), live=False, bin_s=10.0, devices=[], nodes=[],
        events=[], coverage=Coverage(known.source, 0.0, None, missing=missing), site=site,
        siblings=siblings,
    )  # fmt: skip


def build(run: RunData) -> Report:
    """The report. Pure: the same run and job give the same report."""
    job = run.job or _job_of(run)
    found = evaluate(run)
    rows = device_rows(run) if run.devices else _summary_rows(job)
    elapsed_s = _elapsed_s(run, job)
    used = _measured(run, rows) if run.has_samples else _accounted(job)
    efficiency, missing = _efficiency(job, used, rows, elapsed_s, unrecorded_text(run))
    gpus = job.gpus if job.gpus is not None else len(rows) or None
    return Report(
        job=job,
        start=run.start if run.start and not job.is_pending else None,
        end=run.end if run.end and not job.is_pending else None,
        elapsed_s=elapsed_s,
        running=run.live or job.is_running,
        used=used,
        seff=_seff(run, job),
        devices=tuple(rows),
        findings=found.raised,
        suppressed=found.suppressed,
        not_evaluable=found.not_evaluable,
        recommendations=found.recommendations,
        coverage=_coverage(run),
        efficiency=efficiency,
        efficiency_missing=missing,
        gpu_hours=gpus * elapsed_s / 3600 if gpus and elapsed_s is not None else None,
        waste_gpu_hours=found.waste_gpu_hours,
        unattributed_gpu_hours=found.unattributed_gpu_hours,
        segments=segments(run),
        happenings=happenings(run),
        ranks=tuple(ranks_of(run)),
        version=__version__,
    )


def _job_of(run: RunData) -> Job:
    """What the job's own environment told the agent, where Slurm was not asked."""
    for context in (node.header.job for node in run.nodes):
        if context is not None:
            return Job(
                raw_id=context.id, id=context.array or context.id, cluster=context.cluster,
                name=context.name, user=context.user, account=context.account,
                partition=context.partition, node_list=context.nodes,
                nodes=tuple(each.node for each in run.nodes), start=context.start,
                state="RUNNING" if run.live else "",
                allocated=_allocated([node.header.job for node in run.nodes]),
                sources={"id": context.source},
            )  # fmt: skip
    return Job(nodes=tuple(node.node for node in run.nodes))


def _allocated(contexts: Sequence[JobContext | None]) -> Resources:
    """The shares of all nodes together; a figure that one of them does not know is not known."""

    def total(values: Sequence[int | None]) -> int | None:
        known = [each for each in values if each is not None]
        return sum(known) if known and len(known) == len(contexts) else None

    return Resources(
        cpus=total([each.cpus if each else None for each in contexts]),
        mem_bytes=total([each.mem_limit_bytes if each else None for each in contexts]),
        gpus=total([each.gpus if each else None for each in contexts]),
        nodes=len(contexts),
    )


def _elapsed_s(run: RunData, job: Job) -> float | None:
    if job.is_pending:
        return None
    if (job.has_ended or job.is_running) and job.elapsed_s is not None:
        return job.elapsed_s  # of a running job later than its last recorded sample
    return run.elapsed_s if run.elapsed_s else job.elapsed_s


# -- used ----------------------------------------------------------------------------------------


def _measured(run: RunData, rows: Sequence[DeviceRow]) -> Used:
    nodes, lacking = run.nodes, run.coverage.unrecorded
    memory = host_peak(run)
    active = [each for each in job_devices(run) if each.active.known()]
    most = highest(memory.nodes)
    is_split = len(nodes) > 1 and not lacking
    notes = [f"{bytes_text(most)} of it on one node"] if is_split and most else []
    notes += [memory.note] if memory.note else []
    energy_refused = any("energy_j" in device.refused for device in run.devices)
    core_s, mean, peak, note = _cores(run)
    return Used(
        cpu_core_s=core_s,
        cpu_cores_mean=mean,
        cpu_cores_peak=peak,
        mem_peak_bytes=_sum(memory.nodes),
        mem_mean_bytes=_sum([_average(node, "mem_used_bytes") for node in nodes]),
        mem_source=memory.source,
        mem_note="; ".join(notes),
        cpu_note=note,
        mem_max_node_bytes=most,
        gpus_active=sum(any(share > 0 for share in each.active.known()) for each in active)
        if active
        else None,
        gpus_worth=ledger_of(run).worth(),
        gpu_busy_percent=_mean([row.busy_mean for row in rows]),
        gpu_mem_peak_bytes=_sum([row.mem_peak_bytes for row in rows]),
        gpu_energy_j=None if energy_refused else _sum([row.energy_j for row in rows]),
    )


def _cores(run: RunData) -> tuple[float | None, float | None, float | None, str]:
    """(CPU seconds, cores in the mean, at the peak of a minute, a note). Where the recording began
    late, by the kernel's counter; a peak below that mean is not the run's. Where nodes were not
    recorded, by accounting; of the others, where that does not know.
    """
    nodes, lacking = run.nodes, unrecorded_text(run)
    if lacking and run.job is not None and run.job.has_ended:
        told = accounting.used(run.job)
        if told.cpu_core_s is not None:
            return told.cpu_core_s, told.cpu_cores_mean, None, f"{told.source}; {lacking}"
    mean = _sum([_average(node, "cpu_cores_used") for node in nodes])
    peak = _sum([node.peak60_cores for node in nodes])
    counted, elapsed_s = counted_core_s(run), run.elapsed_s
    if counted is not None and elapsed_s:
        whole = counted / elapsed_s
        note = "the recording began late; the mean is since the job's start"
        return counted, whole, None if peak is not None and peak < whole else peak, note
    refused = any(node.cpu_refused for node in nodes)
    core_s = None if refused or lacking else _sum([node.cpu_core_s for node in nodes])
    return core_s, mean, peak, lacking


def _coverage(run: RunData) -> Coverage:
    """Of the run; no sum is made of counters that grew as none can, which it names."""
    cpu = {f"CPU time of {node.node}": node.cpu_refused for node in run.nodes if node.cpu_refused}
    energy = {
        f"energy of {each.label}": each.refused["energy_j"]
        for each in job_devices(run)
        if "energy_j" in each.refused
    }
    if not cpu and not energy:
        return run.coverage
    return replace(run.coverage, missing={**run.coverage.missing, **cpu, **energy})


def _average(node: NodeData, name: str) -> float | None:
    track = node.job.get(name)
    return track.average() if track is not None else None


def _accounted(job: Job) -> Used:
    known = accounting.used(job)
    return Used(
        cpu_core_s=known.cpu_core_s,
        cpu_cores_mean=known.cpu_cores_mean,
        mem_peak_bytes=known.mem_bytes,
        mem_max_node_bytes=known.mem_bytes,
        mem_source=known.source,
        mem_note=_mem_note(job, known),
        cpu_note=_cpu_note(job, known),
        gpu_busy_percent=known.gpu_busy_percent,
        gpu_mem_peak_bytes=known.gpu_mem_bytes,
    )


def _mem_note(job: Job, known: accounting.Used) -> str:
    meaning = known.mem_meaning
    if meaning is None or known.mem_bytes is None:
        return ""
    exact = known.source != "sacct" or all(
        (step.tasks or 1) <= (step.node_count or 1) for step in job.steps
    )
    where = "of the node that used most" if exact else "at most, of one node"
    parts = [where] if len(job.nodes) > 1 else []
    parts.append(meaning.words)
    if accounting.out_of_memory(job):
        parts.append("at the end it needed more than there was")
    elif meaning.is_upper_bound:
        parts.append("the job may have needed much less")
    elif meaning.polled and known.source == "sacct":
        parts.append("a peak in between is not seen")
    return "; ".join(parts)


def _cpu_note(job: Job, known: accounting.Used) -> str:
    if known.source != "sacct" or known.cpu_core_s is None:
        return ""
    notes = []
    if threads_of_job(job):
        notes.append(f"one thread per core: {usable_cpus(job)} CPUs could be used")
    if job.state in accounting.KILLED_STATES:
        notes.append(f"up to {accounting.POLL_S} s of processes that Slurm killed are lost")
    return "; ".join(notes)


def _summary_rows(job: Job) -> list[DeviceRow]:
    """One per GPU of a summary: means and maxima, by number in gres.conf."""
    return [
        DeviceRow(
            node=name,
            index=int(index) if index.isdigit() else -1,
            label=f"{name}:{index}",
            uuid="",
            name="",
            busy_mean=gpu.busy_percent,
            mem_peak_bytes=gpu.mem_used_bytes,
            mem_total_bytes=gpu.mem_total_bytes,
            missing=gpu.missing,
        )
        for name, node in accounting.used(job).nodes.items()
        for index, gpu in node.gpus.items()
    ]


def _sum(values: Sequence[float | None]) -> float | None:
    """Of what is known; None where nothing is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return fmean(known) if known else None


# -- efficiency and seff -------------------------------------------------------------------------


def _efficiency(
    job: Job, used: Used, rows: Sequence[DeviceRow], elapsed_s: float | None, lacking: str
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Percent of what was allocated; what nobody knows is None and has its reason: `lacking`, what
    is not of all nodes.
    """
    missing: dict[str, str] = {}

    def share(name: str, part: float | None, whole: float | None, why: str) -> float | None:
        if part is None or not whole:
            missing[name] = why
            return None
        return round(100 * part / whole, 2)

    cpus = usable_cpus(job)
    if used.cpu_core_s is not None and elapsed_s and cpus and job.has_ended:
        cpu = share("cpu_percent", used.cpu_core_s, elapsed_s * cpus, "")
    else:
        why = lacking or "CPU time is not known"
        why = why if cpus else "the allocated cores are not known"
        cpu = share("cpu_percent", None if lacking else used.cpu_cores_mean, cpus, why)
    limit = job.time_limit_s
    unlimited = job.time_limit_words or "the time limit is not known"
    total = _sum([row.mem_total_bytes for row in rows])
    counted = _sum([row.mem_counted_bytes for row in rows]) or used.gpu_mem_peak_bytes
    unproven = any(row.has_unproven_need for row in rows)
    gpu_mem = None
    if job.gpus or rows:
        if lacking:
            missing["gpu_mem_percent"] = lacking
        elif unproven or not rows:
            why = (
                "preallocated, or from a summary: the real need is unknown"
                if rows
                else _GPUS_UNKNOWN
            )
            missing["gpu_mem_percent"] = why
        else:
            gpu_mem = share("gpu_mem_percent", counted, total, "not measured")
        if lacking or used.gpu_busy_percent is None:
            missing["gpu_busy_percent"] = lacking or _why_busy(rows)
    else:
        missing |= dict.fromkeys(("gpu_busy_percent", "gpu_mem_percent"), _NO_GPUS)
    return {
        "cpu_percent": cpu,
        "mem_percent": share(
            "mem_percent",
            None if lacking else used.mem_peak_bytes,
            job.allocated.mem_bytes,
            lacking or "memory is not known",
        ),
        "time_percent": share("time_percent", _clamped(elapsed_s, limit), limit, unlimited),
        "gpu_busy_percent": None if lacking else used.gpu_busy_percent,
        "gpu_mem_percent": gpu_mem,
    }, missing


def _why_busy(rows: Sequence[DeviceRow]) -> str:
    reasons = [why for row in rows for why in row.missing.values()]
    return reasons[0] if reasons else _GPUS_UNKNOWN if not rows else "not measured"


def _clamped(elapsed_s: float | None, limit_s: float | None) -> float | None:
    """Slurm lets a job run a little beyond its limit."""
    return min(elapsed_s, limit_s) if elapsed_s is not None and limit_s else elapsed_s


def _seff(run: RunData, job: Job) -> SeffFigures:
    told = seff(job)
    because = {
        each.quantity: "; ".join(each.reasons)
        for each in differences(run)
        if each.reasons and each.points >= _SAME_POINTS
    }
    return SeffFigures(
        told.cpu_percent,
        told.mem_percent,
        told.rule,
        tuple(because.values()),
        because.get("cpu", ""),
        because.get("mem", ""),
    )
