"""One report of the run of one job: findings, changes, figures, and what they rest on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpumon import __version__
from gpumon.analysis import accounting, known
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.reconcile import differences
from gpumon.analysis.rightsize.cores import threads_of_job, usable_cpus
from gpumon.analysis.rightsize.proof import unrecorded_text
from gpumon.analysis.rightsize.requested import cores_of
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.weight import preliminary
from gpumon.analysis.rundata import Coverage, DeviceData, NodeData, RunData
from gpumon.analysis.signals import job_devices
from gpumon.analysis.steps import ranks_of
from gpumon.analysis.summary import DeviceRow
from gpumon.analysis.whole_run import counted_core_s, host_peak
from gpumon.model.reading import number
from gpumon.model.sample import Device, JobContext
from gpumon.model.units import age_text, bytes_text
from gpumon.report.happenings import happenings
from gpumon.report.model import Attempt, Report, SeffFigures
from gpumon.report.rows import device_rows, segments
from gpumon.report.usage import NOT_MEASURED, Figures, Use, cores_text, mean, reason, total
from gpumon.site import Site
from gpumon.slurm.job import Job, Resources
from gpumon.slurm.seff import seff

#: percentages closer than this are not worth a reason
_SAME_POINTS = 2.0
_NO_GPUS = "the job had no GPUs"


def from_accounting(
    job: Job, site: Site, *, siblings: Sequence[Job] = (), now: float | None = None
) -> RunData:
    """Run data that holds nothing but what Slurm's accounting says. `now` of a running job."""
    start = job.start if job.start is not None else job.submit or 0.0
    elapsed_s = job.elapsed_s or 0.0
    end = job.end if job.has_ended and job.end is not None else now or start + elapsed_s
    told = accounting.used(job)
    missing = {} if job.is_pending else dict(told.missing)
    if job.is_running and "usage" in job.missing:
        missing["usage"] = job.missing["usage"]
    if job.gpus and told.gpu_busy_percent is None and not job.is_pending:
        missing.setdefault("gpu", accounting.gpus_unknown(job))
    return RunData(
        job=job, start=start, end=max(start, end), live=False, bin_s=10.0, devices=[], nodes=[],
        events=[], coverage=Coverage(told.source, 0.0, None, missing=missing), site=site,
        siblings=siblings,
    )  # fmt: skip


def build(run: RunData) -> Report:
    """The report. Pure: the same run and job give the same report."""
    job = run.job or _job_of(run)
    found = evaluate(run)
    rows = device_rows(run) if run.devices else _summary_rows(job)
    elapsed_s = _elapsed_s(run, job)
    used = _measured(run, job, rows) if run.has_samples else accounted(job, rows)
    efficiency, missing = _efficiency(job, used, rows, elapsed_s)
    gpus = job.gpus if job.gpus is not None else len(rows) or None
    has_end = run.end > (run.start if job.is_running else 0) and not job.is_pending
    return Report(
        job=job,
        start=run.start if run.start and not job.is_pending else None,
        end=run.end if has_end else None,
        elapsed_s=elapsed_s, running=run.live or job.is_running, used=used, seff=_seff(run, job),
        devices=tuple(rows), findings=found.raised, suppressed=found.suppressed,
        preliminary=preliminary(run) if any(e.confidence != "high" for e in found.raised) else "",
        not_evaluable=found.not_evaluable, recommendations=found.recommendations,
        coverage=_coverage(run), efficiency=efficiency, efficiency_missing=missing,
        gpu_hours=gpus * elapsed_s / 3600 if gpus and elapsed_s is not None else None,
        waste_gpu_hours=found.waste_gpu_hours, unattributed_gpu_hours=found.unattributed_gpu_hours,
        known_gpu_hours=found.known_gpu_hours,
        others_gpu_hours=ledger_of(run).shared_s() / 3600, segments=segments(run),
        happenings=happenings(run), ranks=tuple(ranks_of(run)), version=__version__,
    )  # fmt: skip


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

    def whole(name: str) -> int | None:
        found = known.total(getattr(each, name, None) for each in contexts)
        return None if found is None else int(found)

    return Resources(whole("cpus"), whole("mem_limit_bytes"), whole("gpus"), nodes=len(contexts))


def _elapsed_s(run: RunData, job: Job) -> float | None:
    if job.is_pending:
        return None
    if (job.has_ended or job.is_running) and job.elapsed_s is not None:
        return job.elapsed_s  # of a running job later than its last recorded sample
    return run.elapsed_s if run.elapsed_s else job.elapsed_s


# -- used ----------------------------------------------------------------------------------------


def _measured(run: RunData, job: Job, rows: Sequence[DeviceRow]) -> Figures:
    nodes, lacking = run.nodes, unrecorded_text(run)
    memory = host_peak(run)
    size = known.total(number(node.header.facts.get("mem_total_bytes")) for node in nodes)
    parts = [
        _of_node(node, "mem_used_bytes", peak, node.mem_limit_bytes)
        for node, peak in zip(nodes, memory.nodes)
    ]
    given = job.allocated.mem_bytes
    mem = total(parts).within(size or given, bytes_text)._replace(given=given)
    most = None if mem.peak is None or lacking else known.highest(memory.nodes)
    notes = [f"at most {bytes_text(most)} on one node"] if len(nodes) > 1 and most else []
    cores, core_s, cpu_note = _cores(run, job, lacking)
    energy_refused = any("energy_j" in device.refused for device in run.devices)
    figures = _of_gpus(rows)
    worked = [_worked(device, row) for device, row in zip(job_devices(run), rows)]
    gpus = total(worked)._replace(given=float(len(rows)), used=ledger_of(run).worth())
    if lacking:
        mem = Use(given=given, why=lacking)
        figures = replace(figures, busy=Use(why=lacking), gpu_mem=Use(why=lacking))
        is_fewer = len(rows) < (job.gpus or 0)
        gpus = Use(why=f"{len(rows)} of {job.gpus} were recorded" if is_fewer else lacking)
    return replace(
        figures,
        cores=cores,
        mem=mem,
        gpus=gpus if rows else Use(),
        cpu_core_s=core_s,
        mem_max_node_bytes=most,
        gpu_energy_j=None if energy_refused or lacking else known.total(r.energy_j for r in rows),
        mem_source=memory.source,
        mem_note="; ".join([*notes, memory.note] if memory.note else notes),
        cpu_note=cpu_note,
    )


def _of_node(node: NodeData, name: str, peak: float | None, given: float | None) -> Use:
    track = node.job.get(name)
    used = track.average() if track is not None else None
    why = "" if used is not None else reason(node.last.get(name))
    return Use(used, given, peak, why, node.node)


def _worked(device: DeviceData, row: DeviceRow) -> Use:
    """Peak: 1 where it did any work."""
    shares = device.active.known()
    peak = float(any(share > 0 for share in shares)) if shares else None
    return Use(peak=peak, why="" if shares else _why(row), of=row.label)


def _why(row: DeviceRow) -> str:
    """Why a figure of it is not known."""
    return row.note or next(iter(row.missing.values()), "")


def _of_gpus(rows: Sequence[DeviceRow]) -> Figures:
    """What they did, of which the rows tell."""
    busy, gpu_mem = [], []
    for row in rows:
        held, peak = row.mem_counted_bytes, row.mem_peak_bytes
        why, no_size = (_why(row) if each is None else "" for each in (row.busy_mean, held))
        busy.append(Use(row.busy_mean, 100.0, None, why, row.label))
        gpu_mem.append(Use(held, row.mem_total_bytes, peak, no_size, row.label))
    is_need = not any(row.has_unproven_need for row in rows)
    return Figures(busy=mean(busy), gpu_mem=total(gpu_mem), is_need=is_need)


def _cores(run: RunData, job: Job, lacking: str) -> tuple[Use, float | None, str]:
    """(cores, CPU seconds, a note). Where the recording began late, by the kernel's counter; a peak
    below that mean is not the run's. Where nodes were not recorded, by accounting.
    """
    cpus, elapsed_s = job.allocated.cpus, run.elapsed_s
    most = known.total(map(cores_of, run.nodes)) or cpus
    if lacking:
        told = accounting.used(job) if job.has_ended else None
        if told is None or told.cpu_core_s is None:
            return Use(given=cpus, why=lacking), None, ""
        use = Use(told.cpu_cores_mean, cpus).within(cpus, cores_text)
        return use, None if use.why else told.cpu_core_s, f"{told.source}; {lacking}"
    use = total(_of_node(node, "cpu_cores_used", node.peak60_cores, None) for node in run.nodes)
    refused = any(node.cpu_refused for node in run.nodes)
    core_s = None if refused else known.total(node.cpu_core_s for node in run.nodes)
    counted, note = counted_core_s(run), ""
    if counted is not None and elapsed_s:
        core_s, whole = counted, counted / elapsed_s
        note = "the recording began late; the mean is since the job's start"
        peak = None if use.peak is not None and use.peak < whole else use.peak
        use = Use(whole, peak=peak)
    checked = use.within(most, cores_text)._replace(given=cpus)
    return checked, core_s if checked.is_known or not use.is_known else None, note


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


def accounted(job: Job, rows: Sequence[DeviceRow] | None = None) -> Figures:
    """By Slurm, or a summary of the job's samples."""
    rows = _summary_rows(job) if rows is None else rows
    told, given = accounting.used(job), job.allocated
    cores = Use(told.cpu_cores_mean, given.cpus, why=told.missing.get("cpu", ""))
    cores = cores.within(given.cpus, cores_text)
    mem = Use(None, given.mem_bytes, told.mem_in_all_bytes, told.missing.get("mem", ""))
    mem = mem.within(given.mem_bytes, bytes_text)
    figures = _of_gpus(rows)
    if not rows:
        is_one = job.gpus == 1  # else it is of one task's
        figures = replace(figures, gpu_mem=Use(peak=told.gpu_mem_bytes if is_one else None))
    return replace(
        figures,
        cores=cores,
        mem=mem,
        cpu_core_s=None if cores.why else told.cpu_core_s,
        mem_max_node_bytes=Use(peak=told.mem_bytes).within(given.mem_bytes, bytes_text).peak,
        mem_source=told.source,
        mem_note=_mem_note(job, told),
        cpu_note=_cpu_note(job, told),
    )


def _mem_note(job: Job, told: accounting.Used) -> str:
    meaning = told.mem_meaning
    if meaning is None or told.mem_bytes is None:
        return ""
    exact = told.source != "sacct" or all(
        (step.tasks or 1) <= (step.node_count or 1) for step in job.steps
    )
    where = "of the node that used most" if exact else "at most, of one node"
    parts = [where] if len(job.nodes) > 1 else []
    parts.append(meaning.words)
    if accounting.out_of_memory(job):
        parts.append("at the end it needed more than there was")
    elif meaning.is_upper_bound:
        parts.append("the job may have needed much less")
    elif meaning.polled and told.source == "sacct":
        parts.append("a peak in between is not seen")
    return "; ".join(parts)


def _cpu_note(job: Job, told: accounting.Used) -> str:
    if told.source != "sacct" or told.cpu_core_s is None:
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
            name,
            Device(0, int(index), "", "") if index.isdigit() else Device(0, -1, index, ""),
            busy_mean=gpu.busy_percent,
            mem_peak_bytes=gpu.mem_used_bytes,
            mem_total_bytes=gpu.mem_total_bytes,
            missing=gpu.missing,
        )
        for name, node in accounting.used(job).nodes.items()
        for index, gpu in node.gpus.items()
    ]


# -- efficiency and seff -------------------------------------------------------------------------


def _efficiency(
    job: Job, used: Figures, rows: Sequence[DeviceRow], elapsed_s: float | None
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Percent of what was allocated; what nobody knows is None and has its reason."""
    cpus, limit = usable_cpus(job), job.time_limit_s
    cores = used.cores._replace(given=cpus)
    if used.cpu_core_s is not None and elapsed_s and job.has_ended:
        cores = Use(used.cpu_core_s / elapsed_s, cpus)
    gpu_mem = used.gpu_mem._replace(peak=None)
    if not used.is_need and not gpu_mem.why:
        gpu_mem = Use(why="preallocated, or from a summary: the real need is unknown")
    # Slurm lets a job run a little beyond its limit
    lasted = min(elapsed_s, limit) if elapsed_s is not None and limit else elapsed_s
    time = Use(lasted, limit, why="the elapsed time is not known")
    uses = {
        "cpu": (cores, cores_text, "the allocated cores are not known"),
        "mem": (used.mem._replace(used=used.mem.peak), bytes_text, "the memory limit is not known"),
        "time": (time, age_text, job.time_limit_words or "the time limit is not known"),
        "gpu_busy": (used.busy._replace(given=100.0), cores_text, ""),
        "gpu_mem": (gpu_mem, bytes_text, "the GPU's memory is not known"),
    }
    percents: dict[str, float | None] = {}
    missing = {}
    for name, (use, text, no_request) in uses.items():
        percents[f"{name}_percent"] = None if use.share is None else round(100 * use.share, 2)
        if use.share is None:
            missing[f"{name}_percent"] = _why_no_share(use, text, no_request)
    percents["gpu_busy_percent"] = used.busy.used
    if not rows:
        why = accounting.gpus_unknown(job) if job.gpus else _NO_GPUS
        missing |= dict.fromkeys(("gpu_busy_percent", "gpu_mem_percent"), why)
    return percents, missing


def _why_no_share(use: Use, text: Callable[[float], str], no_request: str) -> str:
    if not use.given:
        return no_request or use.why or NOT_MEASURED
    if use.used is None:
        return use.why or NOT_MEASURED
    return f"{text(use.used)} of {text(use.given)}: more than was allocated"


def _seff(run: RunData, job: Job) -> SeffFigures:
    told = seff(job)
    because = {
        each.quantity: "; ".join(each.reasons)
        for each in differences(run)
        if each.reasons and each.points >= _SAME_POINTS
    }
    of = because.get("cpu", ""), because.get("mem", "")
    reasons = tuple(because.values())
    return SeffFigures(told.cpu_percent, told.mem_percent, told.rule, reasons, *of)


# -- attempts -------------------------------------------------------------------------------------


def with_attempts(jobs: Iterable[Job]) -> Iterator[tuple[Job, Sequence[Job]]]:
    """Each job once, its last attempt, with all of them where there are several."""
    runs: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        runs[(job.cluster, job.raw_id or job.id)].append(job)
    for tries in runs.values():
        tries.sort(key=lambda job: job.submit or job.start or 0.0)
        yield tries[-1], tries if len(tries) > 1 else ()


def numbered(runs: Sequence[Job]) -> dict[int, Job]:
    """The attempts by the number of restarts before each; older releases of Slurm count none."""
    told = {run.restarts: run for run in runs if run.restarts is not None}
    return told if len(told) == len(runs) else dict(enumerate(runs))


def attempts(runs: Mapping[int, Job], recorded: Mapping[int, Report]) -> tuple[Attempt, ...]:
    """All attempts, by what Slurm has of them and by reports of their recordings; none of a job
    that had one.
    """
    numbers = sorted({*runs, *recorded})
    if len(numbers) < 2:
        return ()
    return tuple(_attempt(number, runs.get(number), recorded.get(number)) for number in numbers)


def _attempt(number: int, run: Job | None, report: Report | None) -> Attempt:
    told = accounted(run) if run is not None else Figures()
    figures = report.used if report is not None else told
    start, end = (report.start, report.end) if report is not None else (None, None)
    if run is not None:
        start = start if run.start is None else run.start
        is_over = run.has_ended or run.state == "REQUEUED"
        end = (end if run.end is None else run.end) if is_over else None
    return Attempt(
        str(number + 1),
        start,
        end,
        run.state if run is not None else "",
        note=_failed(run) if run is not None else "Slurm has no record of it",
        cpu_cores_peak=figures.cores.peak,
        mem_peak_bytes=told.mem.peak if figures.mem.peak is None else figures.mem.peak,
        gpu_mem_peak_bytes=figures.gpu_mem.peak,
        gpu_busy_percent=told.busy.used if figures.busy.used is None else figures.busy.used,
    )


def _failed(run: Job) -> str:
    return f"failed node {run.failed_node}" if run.failed_node else ""
