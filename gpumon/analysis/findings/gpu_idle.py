"""GPUs that the job holds and does not use (findings, 3.1): over the run, and over its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.evidence import DeviceEvidence, Evidence, NodeEvidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings import jobstats
from gpumon.analysis.findings.words import (
    fewer_gpus,
    finding,
    gpus_text,
    least,
    model_text,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.requested import requested
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import (
    Span,
    active_share,
    busy_track,
    is_allocated,
    is_mostly_known,
    job_devices,
    job_processes,
    known_s,
    observed,
    seconds_of,
    sustained,
    why_missing,
)
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text

_MIB = 1 << 20
NO_JOB = NotEvaluable("no job holds the devices")
_ACTIVITY = ("busy_percent", "sm_active_percent")

#: whether the frameworks see a GPU at all
_SOFTWARE_CHECKS = (
    Action("shell", Line('python -c "import torch; print(torch.cuda.is_available())"'),
           text="Or check the software; in Apptainer a GPU needs --nv."),
    Action("shell", Line("python -c \"import tensorflow as tf; "
                    "print(tf.config.list_physical_devices('GPU'))\"")),
    Action("shell", Line('python -c "import jax; print(jax.devices())"')),
)  # fmt: skip


# -- gpu-never-used ------------------------------------------------------------------------------


def never_used(evidence: Evidence) -> Outcome:
    """gpu-never-used: no GPU of the job was ever active, for 300 s and longer.

    Two variants: no process of the job was on them (critical), or one holds memory and never
    computed (warning, critical from 30 min). Guards: activity of one device unknown (MIG without
    GPM, gaps) → not evaluable; on polling alone confidence is at most medium and the period is
    named; samples that do not begin with the job say "since attach", with low confidence; a CPU
    core that works 80 % asks "still preparing?" until 30 min.

    Source: jobstats (utilization 0, run time above 10 × 30 s = 300 s); the 30 min are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence, jobstats.never_used(evidence))
    if not is_allocated(evidence):
        return NO_JOB
    if any((active_share(each) or 0.0) > 0 for each in devices):
        return []
    whole = observed(evidence)
    unknown = {
        each.label: why_missing(each, *_ACTIVITY)
        for each in devices
        if not is_mostly_known(each.active, whole)
    }
    idle_s = min([evidence.elapsed_s, *(known_s(evidence, each.active) for each in devices)])
    if unknown or idle_s < evidence.site.threshold("gpu-never-used.seconds", 300):
        return outcome([], unknown)
    return [_never_used(evidence, devices, idle_s)]


def _never_used(evidence: Evidence, devices: Sequence[DeviceEvidence], idle_s: float) -> Finding:
    long_s = evidence.site.threshold("gpu-never-used.critical_held_s", 1800)
    listed = all(each.process_list_known for each in devices)
    holders = [each for device in devices for each in job_processes(device)]
    means = [node.job.get("cpu_cores_used", Track()).average() for node in evidence.nodes]
    known = [mean for mean in means if mean is not None]
    cores = sum(known) if known else None
    level = "warning" if holders and idle_s < long_s else "critical"
    if holders:
        pids = dict.fromkeys(each.facts.pid for each in holders)
        how = f"process {', '.join(map(str, list(pids)[:4]))} on them never computed"
    else:
        how = "no GPU process" if listed else "processes cannot be listed"
    if cores is not None and cores >= 0.8 and idle_s < long_s:
        how += f"; {cores:.1f} CPU cores work: still preparing?"
    names = f"{gpus_text(evidence, devices)} ({model_text(devices)})"
    polled = any(each.polled for each in devices)
    remark = _polling_text(evidence) if polled else ""
    since = "" if evidence.coverage.from_start else " since attach"
    return finding(
        evidence, devices, [observed(evidence)],
        id="gpu-never-used", level=level,
        confidence=whole_run_confidence(evidence, devices),
        title=f"{gpus_text(evidence, devices)} never worked in {clock_text(idle_s)}{since}: {how}",
        text=f"{names} idle for {clock_text(idle_s)} of {clock_text(evidence.elapsed_s)}"
             f"{since}; {how}{remark}",
        numbers={"idle_s": idle_s, "gpus": len(devices), "processes": len(holders),
                 "cpu_cores_mean": cores},
        actions=(fewer_gpus(evidence, [], "Ask for no GPU, and use a partition without."),
                 *_SOFTWARE_CHECKS),
        wasted_s=sum(known_s(evidence, each.active) for each in devices),
    )  # fmt: skip


def whole_run_confidence(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> str:
    """Of a verdict on the whole run (findings, 11): low on a part of it, medium by polling."""
    polled = any(each.polled for each in devices)
    whole = evidence.coverage.from_start and (evidence.live or evidence.coverage.to_end)
    return least("high" if whole else "low", "medium" if polled else "high")


def _polling_text(evidence: Evidence) -> str:
    period = evidence.coverage.interval_s
    every = f" every {period:g} s" if period else ""
    return f"; busy was only polled{every}, so short work may be missed"


# -- gpu-allocated-no-process --------------------------------------------------------------------


def no_process(evidence: Evidence) -> Outcome:
    """gpu-allocated-no-process: for 10 min since its start the job had no process on a GPU.

    And its used memory stayed at most 50 MiB above what it was before the job. It needs no
    utilization, so it holds on MIG too. Guards: where processes cannot be listed only the memory
    counts, with low confidence; a device whose memory is not known either is not evaluable; one
    that worked had a process, which a container may hide.

    Source: asked for in slurm-job-exporter#65; both thresholds are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if not is_allocated(evidence):
        return NO_JOB
    need_s = evidence.site.threshold("gpu-allocated-no-process.seconds", 600)
    found: dict[bool, list[DeviceEvidence]] = {}
    unknown = {}
    for device in devices:
        memory = device.track("mem_used_bytes")
        peak = memory.peak()
        if (device.process_list_known and job_processes(device)) or active_share(device):
            continue
        if peak is None or not is_mostly_known(memory, observed(evidence)):
            unknown[device.label] = why_missing(device, "mem_used_bytes")
        elif known_s(evidence, memory) >= need_s and _stayed_empty(evidence, device, peak):
            found.setdefault(device.process_list_known, []).append(device)
    return outcome([_no_process(evidence, *each, devices) for each in found.items()], unknown)


def _stayed_empty(evidence: Evidence, device: DeviceEvidence, peak_bytes: float) -> bool:
    before = device.mem_before_bytes
    if before is None:
        before = min(device.track("mem_used_bytes").known())
    margin = evidence.site.threshold("gpu-allocated-no-process.margin_mib", 50) * _MIB
    return peak_bytes <= before + margin


def _no_process(
    evidence: Evidence,
    listed: bool,
    idle: Sequence[DeviceEvidence],
    devices: Sequence[DeviceEvidence],
) -> Finding:
    held = [known_s(evidence, each.track("mem_used_bytes")) for each in idle]
    seconds = min([*held, evidence.elapsed_s])  # the grid's last bin may not be full
    peak = max(each.track("mem_used_bytes").peak() or 0.0 for each in idle)
    labels = {each.label for each in idle}
    rest = [each for each in devices if each.label not in labels]
    names = gpus_text(evidence, idle)
    since = "since start" if evidence.coverage.from_start else "since attach"
    what = "no process of this job" if listed else "memory unused (processes cannot be listed)"
    advice = f"Ask for {len(rest)} GPUs, or start work on all of them."
    return finding(
        evidence, idle, [observed(evidence)],
        id="gpu-allocated-no-process", level="critical",
        confidence=least("high" if listed else "low",
                         "high" if evidence.coverage.from_start else "medium"),
        title=f"{names} of {len(devices)}: {what} {since} ({clock_text(seconds)})",
        text=f"{names} of {len(devices)}: {what} {since} ({clock_text(seconds)}); "
             f"memory {bytes_text(peak)}",
        numbers={"seconds": seconds, "mem_peak_bytes": peak, "gpus": len(devices),
                 "gpus_idle": len(idle)},
        actions=(fewer_gpus(evidence, rest, advice),),
        wasted_s=sum(known_s(evidence, each.track("mem_used_bytes")) for each in idle),
    )  # fmt: skip


# -- gpus-partly-idle ----------------------------------------------------------------------------


def partly_idle(evidence: Evidence) -> Outcome:
    """gpus-partly-idle: k of N GPUs active in less than 1 % of bins while another is 20 % busy.

    Over 300 s of an ended run, over 15 min of a live one (pipelines start up, the last epoch may
    be evaluated on one GPU). Guards: memory use is no use, TensorFlow reserves it on every visible
    GPU; a device whose activity is not known counts neither as idle nor as working.

    Source: jobstats "did not use k of N"; percentages and times are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence, jobstats.partly_idle(evidence))
    need_s = evidence.site.threshold(
        *(("gpus-partly-idle.live_s", 900) if evidence.live else ("gpus-partly-idle.seconds", 300))
    )
    whole = observed(evidence)
    least_share = evidence.site.threshold("gpus-partly-idle.active_percent", 1) / 100
    least_busy = evidence.site.threshold("gpus-partly-idle.busy_percent", 20)
    idle, works, unknown = [], False, {}
    for device in devices:
        share = active_share(device)
        if (busy_track(device).average() or 0.0) >= least_busy:
            works = True
        elif share is None or not is_mostly_known(device.active, whole):
            unknown[device.label] = why_missing(device, *_ACTIVITY)
        elif share < least_share and known_s(evidence, device.active) >= need_s:
            idle.append(device)
    if not idle or not works:
        return outcome([], unknown)
    return [_partly_idle(evidence, idle, len(unknown), devices)]


def _partly_idle(
    evidence: Evidence,
    idle: Sequence[DeviceEvidence],
    unknown: int,
    devices: Sequence[DeviceEvidence],
) -> Finding:
    labels = {each.label for each in idle}
    used = [each for each in devices if each.label not in labels]  # or not known to be idle
    busy = [(each, value) for each in used if (value := busy_track(each).average()) is not None]
    idle_s = sum(known_s(evidence, each.active) for each in idle)
    shown = [f"{gpus_text(evidence, [each])} {percent(value)}" for each, value in busy]
    if len(shown) > 4:
        shown = [f"busy {percent(sum(value for _, value in busy) / len(busy))} mean"]
    shown += [f"{unknown} unknown"] if unknown else []
    worked = f"{len(used) - unknown} of {len(devices)} GPUs worked"
    advice = _fewer_text(evidence, used, devices)
    most = _most_on_a_node(devices)
    remark = _polling_text(evidence) if any(each.polled for each in idle) else ""
    return finding(
        evidence, idle, [observed(evidence)],
        id="gpus-partly-idle", level="critical" if is_allocated(evidence) else "warning",
        confidence=whole_run_confidence(evidence, idle),
        title=f"{len(idle)} of {len(devices)} GPUs idle: {gpus_text(evidence, idle)}",
        text=f"{worked} ({', '.join(shown)}, others 0 %) in {clock_text(idle_s / len(idle))}"
             f"{remark}",
        numbers={"gpus": len(devices), "gpus_idle": len(idle), "gpus_unknown": unknown,
                 "idle_s": idle_s / len(idle)},
        actions=(fewer_gpus(evidence, used, advice),
                 Action("code", Line("torchrun --nproc_per_node={} train.py", most)),
                 Action("code", Line("devices={}, strategy=DDPStrategy()", most),
                        text="In Lightning.")),
        wasted_s=idle_s,
    )  # fmt: skip


def _fewer_text(
    evidence: Evidence, used: Sequence[DeviceEvidence], devices: Sequence[DeviceEvidence]
) -> str:
    """What to ask for; a request per node has one number for all nodes."""
    if len(evidence.nodes) < 2 or requested(evidence).gpu_form == "job":
        return f"Ask for {len(used)} instead of {len(devices)} GPUs, or use them all:"
    need, held = _most_on_a_node(used), _most_on_a_node(devices)
    if need < held:
        return f"Ask for {need} instead of {held} GPUs on each node, or use them all:"
    return f"Use them all, or fewer nodes; one node worked with all its {held}:"


def _most_on_a_node(devices: Sequence[DeviceEvidence]) -> int:
    nodes = [each.node for each in devices]
    return max(map(nodes.count, nodes))


# -- nodes-idle ----------------------------------------------------------------------------------


def nodes_idle(evidence: Evidence) -> Outcome:
    """nodes-idle: for 10 min one node of several uses < 1 % of its cores, and its GPUs do nothing.

    Of an ended run the idle time must also be a tenth of it. Guards: the first 120 s, in which
    launchers work on the head node alone; a node that was not reached is not idle; where every
    node is idle, `gpu-never-used` says so.

    Source: jobstats "did not use k of N nodes"; the thresholds are proposed.
    """
    if len(evidence.nodes) < 2:
        several = evidence.job is not None and len(evidence.job.nodes) > 1
        return NotEvaluable("samples of one node only") if several else []
    found: list[tuple[NodeEvidence, list[Span]]] = []
    unknown = {}
    for node in evidence.nodes:
        devices = [each for each in job_devices(evidence) if each.node == node.node]
        if "cpu_cores_used" not in node.job or not node.cpus:
            unknown[f"{node.node}:cpu"] = "the job's CPU use is not known"
            continue
        spans, known = _node_idle(evidence, node, devices)
        if spans:
            found.append((node, spans))
        elif not known:
            unknown[f"{node.node}:cpu"] = "too few readings"
    if len(found) == len(evidence.nodes):
        return []
    return outcome([_nodes_idle(evidence, *each, len(found)) for each in found], unknown)


def _node_idle(
    evidence: Evidence, node: NodeEvidence, devices: Sequence[DeviceEvidence]
) -> tuple[list[Span], bool]:
    need_s = evidence.site.threshold("nodes-idle.seconds", 600)
    if not evidence.live:
        need_s = max(need_s, evidence.elapsed_s / 10)
    limit = evidence.site.threshold("nodes-idle.cpu_percent", 1) / 100 * (node.cpus or 0)
    starting = evidence.bin_at(evidence.start + 120.0)
    return sustained(
        evidence,
        need_s,
        lambda means: means[0] < limit and not any(means[1:]),
        [node.job["cpu_cores_used"], *(each.active for each in devices)],
        first=starting,
    )


def _nodes_idle(
    evidence: Evidence, node: NodeEvidence, spans: list[Span], idle_count: int
) -> Finding:
    devices = [each for each in job_devices(evidence) if each.node == node.node]
    cores = sum(sum(node.job["cpu_cores_used"].known(*span)) for span in spans)
    bins = sum(len(node.job["cpu_cores_used"].known(*span)) for span in spans)
    cpu_percent = cores / bins / (node.cpus or 1) * 100
    seconds = seconds_of(evidence, spans)
    name = clean(node.node)
    count = len(evidence.nodes)
    fewer, asked = (Line("#SBATCH --nodes={}", each) for each in (count - idle_count, count))
    gpus = f", {len(devices)} GPUs idle" if devices else ""
    return finding(
        evidence, devices, spans,
        id="nodes-idle", subject=name, level="critical",
        confidence="medium" if any(each.polled for each in devices) else "high",
        title=f"node {name} of {count} does nothing: {percent(cpu_percent)} CPU{gpus}",
        text=f"node {name} of {count}: {percent(cpu_percent)} CPU{gpus} for {clock_text(seconds)}",
        numbers={"cpu_percent": cpu_percent, "gpus": len(devices), "seconds": seconds},
        actions=(Action("sbatch", fewer, asked,
                        "Or launch with srun, so that tasks start on every node."),),
        wasted_s=sum(known_s(evidence, each.active, *span) for each in devices for span in spans),
    )  # fmt: skip


RULES = (
    Rule("gpu-never-used", never_used),
    Rule("gpu-allocated-no-process", no_process),
    Rule("gpus-partly-idle", partly_idle),
    Rule("nodes-idle", nodes_idle),
)
