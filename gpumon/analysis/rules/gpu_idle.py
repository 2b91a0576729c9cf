"""GPUs that the job holds and does not use: over the run, and over its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.activity import traces_text
from gpumon.analysis.finding import Action, Finding, to_do
from gpumon.analysis.ledger import IDLE, ledger_of
from gpumon.analysis.reservation import LEAST_CONTEXT_BYTES
from gpumon.analysis.rightsize.proof import is_whole, unproven
from gpumon.analysis.rules import jobstats
from gpumon.analysis.rules.advice import no_gpu, software_check
from gpumon.analysis.rules.host_phase import WORKING_CORES, total_cores
from gpumon.analysis.rules.needs import allocation, gpus, gpus_or_means
from gpumon.analysis.rules.phrasing import (
    GPU_HELD,
    fewer_gpus,
    finding,
    gpus_text,
    least,
    missing,
    model_text,
    unread,
    use_or_request_fewer,
)
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.unused import (
    CONSEQUENCES,
    joined,
    level_of_part,
    not_seen,
    polling_text,
    whole_run_confidence,
)
from gpumon.analysis.rundata import DeviceData, ProcessData, RunData
from gpumon.analysis.signals import (
    active_share,
    is_mostly_known,
    job_devices,
    job_processes,
    known_s,
    observed,
)
from gpumon.analysis.thresholds import MiB, NeverUsed, Seconds, of_site
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, plural


@rule(
    "gpu-never-used",
    title="no GPU of the job was ever active, for {seconds} and longer",
    why=GPU_HELD,
    remedy="check that the program sees a GPU (a line to try is printed); only then request none",
    needs=(gpus_or_means, allocation),
    folds=CONSEQUENCES,
    wastes=IDLE,
)
def never_used(run: RunData, t: NeverUsed) -> Checked:
    """Critical where every reading that exists shows no activity at all, over the whole run, with
    high confidence; and at first only without a process, in a job that completed.

    Guards: activity of one device unknown (MIG without GPM, gaps, polls with which a program may be
    in step) → not evaluable. Copies count as use. Filled memory or power above rest: a warning.
    Where busy was only polled, or samples are missing, a warning, and said so; of an ended run that
    they show in part, information, unless accounting shows no use of any GPU. While the job runs
    and its host works, a warning. A CPU fallback looks the same as a program without GPU code, so
    the check of the software stands before the request for none.

    Source: jobstats (utilization 0, run time above 10 × 30 s); the second time is proposed.
    """
    devices = job_devices(run)
    if not devices:
        return jobstats.never_used(run, t.seconds)
    rows = ledger_of(run).rows
    unknown = [not_seen(run, row.device) for row in rows if not row.is_known]
    if not all(row.never_worked for row in rows):
        return None
    idle_s = min(ledger_of(run).in_bins(row.bins(*IDLE)) for row in rows)
    if unknown or min(idle_s, run.elapsed_s) < t.seconds:
        return unknown
    return _never_used(run, devices, idle_s, settled=idle_s >= t.critical_held_s)


def _never_used(
    run: RunData, devices: Sequence[DeviceData], idle_s: float, *, settled: bool
) -> Finding:
    holders = [each for device in devices for each in job_processes(device)]
    cores = total_cores(run, observed(run))
    names, since = gpus_text(run, devices), _since(run)
    confidence, traces = whole_run_confidence(run, devices), traces_text(devices)
    seen, whole = age_text(idle_s), age_text(run.elapsed_s)
    part = f"{seen} of {whole}" if run.coverage.from_start and seen != whole else seen
    proven = is_settled(run, settled=settled) or not (holders or unproven(run))
    how = _who(devices, holders)
    if cores is not None and cores >= WORKING_CORES and unproven(run):
        may = "are busy: it may still be" if run.live else "were busy: it may have been"
        how += f"; {cores:.1f} CPU cores {may} preparing"
    rest = joined(traces, polling_text(run, devices))
    return finding(
        run,
        level_of_part(
            run, "critical" if confidence == "high" and proven and not traces else "warning"
        ),
        f"{names} did no work in {part}{since}: {how}",
        f"{names} ({model_text(devices)}) idle for {seen} of {whole}{since}; {how}{rest}",
        adds=rest.removeprefix("; "),
        devices=devices,
        spans=[observed(run)],
        confidence=confidence,
        numbers={
            "idle_s": idle_s,
            "gpus": len(devices),
            "processes": len(holders),
            "cpu_cores_mean": cores,
        },
        actions=_actions(run, devices),
    )


def _actions(run: RunData, devices: Sequence[DeviceData]) -> list[Action]:
    check = software_check(run, devices)
    if not run.coverage.unrecorded:
        return [check, no_gpu(run)]
    first, rest = check.text[:1].lower(), check.text[1:]
    return [replace(check, text=f"If this node should do more than coordinate, {first}{rest}")]


def _since(run: RunData) -> str:
    if run.coverage.from_start:
        return ""
    return f" since {'gpumon attached' if run.live else 'the recording began'}"


def is_settled(run: RunData, *, settled: bool) -> bool:
    """Idle for so long that it shows; not where the job still runs and its host is at work: it
    may prepare what the GPUs then do.
    """
    if not run.live:
        return settled
    cores = total_cores(run, observed(run))
    return settled and cores is not None and cores < WORKING_CORES


def _who(devices: Sequence[DeviceData], holders: Sequence[ProcessData]) -> str:
    if holders:
        pids = list(dict.fromkeys(each.facts.pid for each in holders))[:4]
        several, it = ("es", "them") if len(pids) > 1 else ("", "it")
        return f"process{several} {', '.join(map(str, pids))} held {it} without computing"
    if not all(each.process_list_known for each in devices):
        return "its processes cannot be listed"
    others = sorted({clean(p.facts.name) for each in devices for p in each.processes})
    return f"only {', '.join(others[:4])} ran there" if others else "no process ran there"


class NoProcess(NamedTuple):
    seconds: Seconds = 600
    margin_mib: MiB = 50  # that used memory may grow by


@rule(
    "gpu-allocated-no-process",
    title="for {seconds} from the start no process of the job was on a GPU",
    why=GPU_HELD,
    remedy="start the program there, or request fewer",
    needs=(gpus, allocation),
    wastes=IDLE,
)
def no_process(run: RunData, t: NoProcess) -> Answers:
    """And its used memory stayed what it was before the job. It holds on MIG too. Critical as
    `gpu-never-used` is; while the job runs, not where its other GPUs have processes.

    Guards: where processes cannot be listed only the memory counts, with low confidence; a device
    whose memory is not known either is not evaluable, nor one that held a context's worth from the
    start without a process that we see: a container hides them. One that worked had a process.

    Source: asked for in slurm-job-exporter#65; both thresholds are proposed.
    """
    found: dict[bool, list[DeviceData]] = {}
    for device in job_devices(run):
        memory = device.track("mem_used_bytes")
        peak = memory.peak()
        if (device.process_list_known and job_processes(device)) or active_share(device):
            continue
        if peak is None or not is_mostly_known(memory, observed(run)):
            yield unread(device, "mem_used_bytes")
            continue
        before = device.mem_before_bytes
        base = min(memory.known()) if before is None else before
        if base >= LEAST_CONTEXT_BYTES:  # of the job, where its processes are hidden from us
            yield missing(device, "whose memory is in use from the start is not known")
            continue
        most = base + t.margin_mib * (1 << 20)
        if known_s(run, memory) >= t.seconds and peak <= most:
            found.setdefault(device.process_list_known, []).append(device)
    for listed, idle in found.items():
        yield _no_process(run, idle, listed=listed)


def _no_process(run: RunData, idle: Sequence[DeviceData], *, listed: bool) -> Finding:
    devices = job_devices(run)
    held = [known_s(run, each.track("mem_used_bytes")) for each in idle]
    seconds = min([*held, run.elapsed_s])  # the grid's last bin may not be full
    peak = max(each.track("mem_used_bytes").peak() or 0.0 for each in idle)
    labels = {each.label for each in idle}
    rest = [each for each in devices if each.label not in labels]
    since = _since(run) or " since the job's start"
    what = "no process of this job" if listed else "memory unused (processes cannot be listed)"
    title = f"{gpus_text(run, idle)} of {len(devices)}: {what}{since} ({age_text(seconds)})"
    confidence = least("high" if listed else "low", "high" if is_whole(run) else "medium")
    held_s = of_site(run.site, "gpu-never-used", NeverUsed).critical_held_s
    proven = is_settled(run, settled=seconds >= held_s) or not unproven(run)
    sure = confidence == "high" and proven and not (run.live and rest)
    return finding(
        run,
        level_of_part(run, "critical" if sure else "warning"),
        title,
        rest=f"; memory {bytes_text(peak)}",
        devices=idle,
        spans=[observed(run)],
        confidence=confidence,
        numbers={
            "seconds": seconds,
            "mem_peak_bytes": peak,
            "gpus": len(devices),
            "gpus_idle": len(idle),
        },
        actions=_start_there(run, devices, rest),
    )


def _start_there(
    run: RunData, devices: Sequence[DeviceData], rest: Sequence[DeviceData]
) -> list[Action]:
    """`rest`: the devices that had a process."""
    if not rest:
        return _actions(run, devices)
    if unproven(run):
        return [use_or_request_fewer(devices)]
    check = to_do("Check that the program starts a process on each GPU.")
    less = f"Or request {plural(len(rest), 'GPU')}, if the program can use no more."
    return [check, fewer_gpus(run, rest, less)]
