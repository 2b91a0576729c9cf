"""What GPUs wait for: data, the host, each other's messages (findings, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import correlation, fmean

from gpumon.analysis.evidence import DeviceEvidence, Evidence, NodeEvidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.gpu_ineffective import Shown
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import action_of, cpus_line, more_cpus
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import (
    Held,
    Span,
    busy_track,
    capability,
    is_interactive,
    is_server,
    job_devices,
    job_processes,
    mean_of,
    node_of,
    power_at,
    seconds_of,
    sustained,
    warm_up_end,
    why_missing,
)
from gpumon.model.lines import EMPTY, Line
from gpumon.model.reading import number
from gpumon.model.units import clock_text

#: GB/s of a PCIe lane in one direction, after encoding, by generation (PCI-SIG)
_PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: GB/s of an NVLink in one direction, by compute capability (NVIDIA's architecture papers)
_NVLINK_GB_PER_S = ((10.0, 50.0), (7.0, 25.0), (6.0, 20.0))

#: of a live run so much is looked at for whether host and GPU work in turns
_ALTERNATES_S = 3600.0
_MORE_IN_DIPS = 1.2
_TURNS = 4

_Judge = Callable[[DeviceEvidence, NodeEvidence], "tuple[Held, str]"]


def _by_node(
    evidence: Evidence, devices: Sequence[DeviceEvidence], judge: _Judge
) -> tuple[dict[tuple[str, str], Shown], dict[str, str]]:
    """(node, variant) -> the devices that wait there; and what is unknown of others."""
    groups: dict[tuple[str, str], Shown] = {}
    unknown = {}
    for device in devices:
        node = node_of(evidence, device)
        if node is None:
            continue
        held, variant = judge(device, node)
        if held.spans:
            busy = mean_of(busy_track(device), held.spans) or 0.0
            wasted_s = (1 - busy / 100) * seconds_of(evidence, held.spans)
            groups.setdefault((node.node, variant), Shown()).add(
                device, held.spans, wasted_s, busy_percent=busy
            )
        elif not held.known:
            unknown[device.label] = variant or why_missing(device, "busy_percent")
    return groups, unknown


# -- input-bound ---------------------------------------------------------------------------------


def input_bound(evidence: Evidence) -> Outcome:
    """input-bound: 5 min with busy 10 to 70 %, and the job's cores or its loaders are the limit.

    One of: job CPU ≥ 90 % of its cores; every DataLoader-like child ≥ 90 % of a core; the job's
    cpu.pressure ≥ 20. Variant storage: io.pressure or the host's iowait ≥ 20, or busy and CPU are
    anticorrelated (≤ −0.3) while few cores work and the job is not known not to read: low
    confidence. Guards: by mean and correlation, never by a sawtooth; servers wait for requests,
    interactive jobs for people.

    Source: no peer; simulated loops (findings, 3.3); the thresholds are proposed.
    """
    devices = [each for each in job_devices(evidence) if not is_server(each)]
    if not devices:
        return [] if evidence.devices else without_devices(evidence)
    if is_interactive(evidence, devices):
        return []

    def judge(device: DeviceEvidence, node: NodeEvidence) -> tuple[Held, str]:
        return _input_held(evidence, device, node)

    groups, unknown = _by_node(evidence, devices, judge)
    return outcome([_input_bound(evidence, *key, shown) for key, shown in groups.items()], unknown)


def _input_held(evidence: Evidence, device: DeviceEvidence, node: NodeEvidence) -> tuple[Held, str]:
    """The first sign that held, and its variant; where busy fits and no sign is known, why."""
    low = evidence.site.threshold("input-bound.busy_low_percent", 10)
    high = evidence.site.threshold("input-bound.busy_high_percent", 70)
    need_s = evidence.site.threshold("input-bound.seconds", 300)
    first = warm_up_end(evidence, device)
    busy = busy_track(device)
    waiting = sustained(evidence, need_s, lambda means: low <= means[0] <= high, [busy], first)
    if not waiting.spans:
        return waiting, ""
    known = False
    for variant, tracks, limit in _signs(evidence, device, node):

        def holds(means: Sequence[float], limit: float = limit) -> bool:
            return low <= means[0] <= high and min(means[1:]) >= limit

        held = sustained(evidence, need_s, holds, [busy, *tracks], first)
        if held.spans:
            return held, variant
        known = known or (variant == "cpu" and held.known)
    if _alternates(evidence, node, device, waiting.spans) == "storage":
        return waiting, "alternating"
    return Held([], known), "" if known else "neither the job's CPU use nor its pressure is known"


def _signs(
    evidence: Evidence, device: DeviceEvidence, node: NodeEvidence
) -> list[tuple[str, list[Track], float]]:
    """What may hold the input up: variant, tracks, and what all of them must reach."""
    pressure = evidence.site.threshold("input-bound.pressure_percent", 20)
    percent_busy = evidence.site.threshold("input-bound.cpu_percent", 90)
    signs = []
    if node.cpus and "cpu_cores_used" in node.job:
        signs.append(("cpu", [node.job["cpu_cores_used"]], percent_busy / 100 * node.cpus))
    loaders = _loaders(device, node)
    if loaders:
        signs.append(("cpu", loaders, percent_busy))
    signs += [("cpu", [track], pressure) for track in _of_job(node, "cpu_pressure_percent")]
    signs += [("storage", [track], pressure) for track in _of_job(node, "io_pressure_percent")]
    if "iowait_percent" in node.host:
        signs.append(("storage", [node.host["iowait_percent"]], pressure))
    return signs


def _of_job(node: NodeEvidence, name: str) -> list[Track]:
    return [node.job[name]] if name in node.job else []


def _loaders(device: DeviceEvidence, node: NodeEvidence) -> list[Track]:
    """CPU use of children of a process on the device that are not on it themselves."""
    on_device = {each.facts.pid for each in job_processes(device)}
    return [
        track
        for pid, (facts, track) in node.processes.items()
        if facts.ppid in on_device and pid not in on_device
    ]


def _alternates(
    evidence: Evidence, node: NodeEvidence, device: DeviceEvidence, spans: Sequence[Span]
) -> str:
    """What the host does while the GPU does not: `offload`, `storage`, or "" where neither shows.

    In turns, at least two dips and the work between; anticorrelated by ≤ −0.3 over the bins; and a
    fifth more cores work in the dips than beside them, because few bins of noise correlate by
    chance. With half of the cores (at least 4) in the dips it computes there (an optimizer on the
    CPU); else it fetches or prepares data, unless the job is known to read less than 1 MB/s.
    """
    track = node.job.get("cpu_cores_used")
    if track is None:
        return ""
    recent = evidence.bins(_ALTERNATES_S) if evidence.live else evidence.count
    pairs = [
        (busy, cores)
        for first, last in (Span(max(first, last - recent), last) for first, last in spans)
        for busy, cores in zip(busy_track(device).mean[first:last], track.mean[first:last])
        if busy == busy and cores == cores
    ]
    if len(pairs) < 6:
        return ""
    busy_values, core_values = zip(*pairs)
    if len(set(busy_values)) < 2 or len(set(core_values)) < 2:  # no correlation is defined
        return ""
    if correlation(busy_values, core_values) > -0.3:
        return ""
    middle = fmean(busy_values)
    dips = fmean(cores for busy, cores in pairs if busy <= middle)
    working = [busy > middle for busy in busy_values]
    if sum(a != b for a, b in zip(working, working[1:])) < _TURNS:
        return ""
    if dips < _MORE_IN_DIPS * fmean(cores for busy, cores in pairs if busy > middle):
        return ""
    if dips >= max(4.0, 0.5 * (node.cpus or 0)):
        return "offload"
    reads = mean_of(node.job.get("read_bytes_per_s", Track()), spans)
    return "" if reads is not None and reads < 1e6 else "storage"


def _input_bound(evidence: Evidence, node_name: str, variant: str, shown: Shown) -> Finding:
    node = next(each for each in evidence.nodes if each.node == node_name)
    busy = shown.means()["busy_percent"]
    cores = mean_of(node.job.get("cpu_cores_used", Track()), shown.spans)
    pressure = mean_of(node.job.get("cpu_pressure_percent", Track()), shown.spans)
    io = mean_of(node.job.get("io_pressure_percent", Track()), shown.spans)
    iowait = mean_of(node.host.get("iowait_percent", Track()), shown.spans)
    parts = [f"GPU busy {percent(busy)}"]
    if cores is not None and node.cpus:
        parts.append(f"{cores:.1f} of {node.cpus} cores work")
    if variant == "cpu" and pressure is not None:
        parts.append(f"cpu.pressure {pressure:.0f}")
    if variant != "cpu":
        parts += [f"io.pressure {io:.0f}"] if io is not None else []
        parts += [f"iowait {percent(iowait)}"] if iowait is not None else []
    what = ", ".join(parts)
    waits = "CPU cores" if variant == "cpu" else "storage"
    actions = _more_cores(evidence) if variant == "cpu" else _STAGE
    confidence = "low" if variant == "alternating" else "high"
    return finding(
        evidence, shown.devices, shown.spans,
        id="input-bound", level="warning", confidence=confidence,
        title=f"{gpus_text(evidence, shown.devices)} wait for data ({waits}): {what}",
        text=f"{what} for {shown.time_text(evidence)}",
        numbers={"busy_percent": busy, "cpu_cores_mean": cores, "cpu_pressure_percent": pressure,
                 "io_pressure_percent": io, "iowait_percent": iowait},
        actions=actions,
        wasted_s=shown.wasted_s,
    )  # fmt: skip


_STAGE = (
    Action("shell", Line('cp -r DATA "$TMPDIR"/'),
           text="Copy the data to the node's disk first; read few large files (shards), not many "
           "small ones."),
)  # fmt: skip


def _more_cores(evidence: Evidence) -> tuple[Action, ...]:
    """ceil(cores · 0.9 / busy), at most the GPUs' fair share of a node (findings, 10.2)."""
    cores = more_cpus(evidence)
    if cores is None:
        return (Action("code", EMPTY, text="The node has no more cores for these GPUs: prepare the "
                       "data once, before the run."),)  # fmt: skip
    return (
        action_of(cpus_line(requested(evidence), cores)),
        Action("code", Line("DataLoader(..., num_workers={}, pin_memory=True, "
                            "persistent_workers=True)", cores)),
    )  # fmt: skip


# -- host-stall ----------------------------------------------------------------------------------


def host_stall(evidence: Evidence) -> Outcome:
    """host-stall: 5 min with busy < 70 % while ≤ 1.2 cores work, in one process at ≥ 95 % of one.

    Variant CPU offload: busy and CPU are anticorrelated (≤ −0.3), and at least half of the cores
    (4 and more) work in the GPU's dips. Guards: busy of at least 5 %, else it is idle; servers and
    interactive jobs wait for others. Threads are not measured one by one: a process at 95 to 120 %
    stands for one, with medium confidence.

    Source: no peer; Chameleon's DeepSpeed offload runs; the thresholds are proposed.
    """
    devices = [each for each in job_devices(evidence) if not is_server(each)]
    if not devices:
        return [] if evidence.devices else without_devices(evidence)
    if is_interactive(evidence, devices):
        return []

    def judge(device: DeviceEvidence, node: NodeEvidence) -> tuple[Held, str]:
        return _stall_held(evidence, device, node)

    groups, unknown = _by_node(evidence, devices, judge)
    return outcome([_host_stall(evidence, *key, shown) for key, shown in groups.items()], unknown)


def _stall_held(evidence: Evidence, device: DeviceEvidence, node: NodeEvidence) -> tuple[Held, str]:
    low = evidence.site.threshold("host-stall.busy_low_percent", 5)
    high = evidence.site.threshold("host-stall.busy_high_percent", 70)
    most = evidence.site.threshold("host-stall.cores", 1.2)
    need_s = evidence.site.threshold("host-stall.seconds", 300)
    first = warm_up_end(evidence, device)
    if "cpu_cores_used" not in node.job:
        return Held([], False), "the job's CPU use is not known"
    tracks = [busy_track(device), node.job["cpu_cores_used"]]
    for _, process in node.processes.values():
        held = sustained(
            evidence,
            need_s,
            lambda means: low <= means[0] < high and means[1] <= most and 95 <= means[2] <= 120,
            [*tracks, process],
            first,
        )
        if held.spans:
            return held, "thread"
    in_range = sustained(evidence, need_s, lambda means: low <= means[0] < high, tracks, first)
    if in_range.spans and _alternates(evidence, node, device, in_range.spans) == "offload":
        return in_range, "offload"
    if in_range.spans and not node.processes:
        return Held([], False), "no process's CPU use is known"
    return Held([], in_range.known), ""


def _host_stall(evidence: Evidence, node_name: str, variant: str, shown: Shown) -> Finding:
    node = next(each for each in evidence.nodes if each.node == node_name)
    busy = shown.means()["busy_percent"]
    cores = mean_of(node.job["cpu_cores_used"], shown.spans)
    if variant == "thread":
        what = f"one process at 100 % of a core, GPU busy {percent(busy)}"
        actions = (
            Action("code", EMPTY, text="Move .item() and prints out of the loop; use a larger "
                   "batch, CUDA graphs or torch.compile."),
        )  # fmt: skip
    else:
        dips = _cores_in_dips(node, shown)
        what = (
            f"GPU busy {percent(busy)}, and in its dips {dips:.1f} of {node.cpus or '?'} cores work"
            " (optimizer on the CPU?)"
        )
        actions = (
            Action("code", EMPTY, text="Keep the optimizer on the GPU, or ask for more cores."),
        )
    return finding(
        evidence, shown.devices, shown.spans,
        id="host-stall", level="warning", confidence="medium",
        title=f"{gpus_text(evidence, shown.devices)} wait for the host: {what}",
        text=f"{what} for {shown.time_text(evidence)}",
        numbers={"busy_percent": busy, "cpu_cores_mean": cores},
        actions=actions,
        wasted_s=shown.wasted_s,
    )  # fmt: skip


def _cores_in_dips(node: NodeEvidence, shown: Shown) -> float:
    device, span = shown.devices[0], shown.spans[0]
    middle = busy_track(device).average(*span) or 0.0
    pairs = zip(
        busy_track(device).mean[slice(*span)], node.job["cpu_cores_used"].mean[slice(*span)]
    )
    values = [cores for busy, cores in pairs if busy <= middle and cores == cores]
    return fmean(values) if values else 0.0


# -- comm-bound ----------------------------------------------------------------------------------


def comm_bound(evidence: Evidence) -> Outcome:
    """comm-bound: all of several GPUs busy ≥ 90 % for 10 min, power fraction < 0.5, and links full.

    Links: NVLink or PCIe at ≥ 30 % of the peak of one direction; or, where GPM is, SM activity
    < 50 %. Guards: servers with tensor parallelism are chatty by nature: info. Power not known
    (MIG) or neither links nor SM → not evaluable.

    Source: Chameleon's DDP runs (4 GPUs at 1.01 to 1.29 times one); the thresholds are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if len(devices) < 2:
        return []
    need_s = evidence.site.threshold("comm-bound.seconds", 600)
    busy_at_least = evidence.site.threshold("comm-bound.busy_percent", 90)
    first = max(warm_up_end(evidence, each) for each in devices)
    busy = [busy_track(each) for each in devices]
    together = sustained(evidence, need_s, lambda means: min(means) >= busy_at_least, busy, first)
    if not together.spans:
        unknown = {each.label: why_missing(each, "busy_percent") for each in devices}
        return [] if together.known else outcome([], unknown)
    unknown = {}
    for device in devices:
        low = _power_is_low(evidence, device, together.spans)
        talks = _is_talking(evidence, device, together.spans)
        if low is None or talks is None:
            why = "power" if low is None else "neither links nor SM activity"
            unknown[device.label] = f"{why} not known"
        elif not (low and talks):
            return []
    if unknown:
        return outcome([], unknown)
    return [_comm_bound(evidence, devices, together.spans)]


def _power_is_low(evidence: Evidence, device: DeviceEvidence, spans: Sequence[Span]) -> bool | None:
    power = mean_of(device.track("power_w"), spans)
    limit = power_at(device, evidence.site.threshold("comm-bound.power_fraction", 0.5))
    return None if power is None or limit is None else power < limit


def _is_talking(evidence: Evidence, device: DeviceEvidence, spans: Sequence[Span]) -> bool | None:
    signs = []
    link = link_share(device, spans)
    sm = mean_of(device.track("sm_active_percent"), spans)
    if link is not None:
        signs.append(link >= evidence.site.threshold("comm-bound.link_percent", 30) / 100)
    if sm is not None:
        signs.append(sm < evidence.site.threshold("comm-bound.sm_percent", 50))
    return any(signs) if signs else None


def link_share(device: DeviceEvidence, spans: Sequence[Span]) -> float | None:
    """Mean traffic of the fuller link as a part of its peak in one direction; None: not known."""
    lane = _PCIE_LANE_GB_PER_S.get(int(number(device.device.facts.get("pcie_gen_max")) or 0), 0.0)
    pcie = lane * (number(device.device.facts.get("pcie_width_max")) or 0.0)
    links = number(device.device.facts.get("nvlink_links")) or 0.0
    of_link = next((rate for cc, rate in _NVLINK_GB_PER_S if (capability(device) or 0) >= cc), 0.0)
    shares = []
    for kind, peak in (("pcie", pcie), ("nvlink", links * of_link)):
        rates = [mean_of(device.track(f"{kind}_{way}_bytes_per_s"), spans) for way in ("tx", "rx")]
        known = [rate for rate in rates if rate is not None]
        if known and peak:
            shares.append(max(known) / (peak * 1e9))
    return max(shares) if shares else None


def _comm_bound(
    evidence: Evidence, devices: Sequence[DeviceEvidence], spans: Sequence[Span]
) -> Finding:
    busy = fmean(mean_of(busy_track(each), spans) or 0.0 for each in devices)
    power = fmean(mean_of(each.track("power_w"), spans) or 0.0 for each in devices)
    shares = [share for each in devices if (share := link_share(each, spans)) is not None]
    sms = [
        sm for each in devices
        if (sm := mean_of(each.track("sm_active_percent"), spans)) is not None
    ]  # fmt: skip
    parts = [f"{len(devices)} GPUs busy {percent(busy)}"]
    parts += [f"links at {percent(max(shares) * 100)} of their peak"] if shares else []
    parts += [f"SM {percent(fmean(sms))}"] if sms else []
    what = ", ".join([*parts, f"{power:.0f} W"])
    return finding(
        evidence, devices, spans,
        id="comm-bound", level="info" if any(map(is_server, devices)) else "warning",
        confidence="medium",
        title=f"GPUs busy with communication: {what}",
        text=f"{what} for {clock_text(seconds_of(evidence, spans))}",
        numbers={"busy_percent": busy, "power_w": power,
                 "link_percent": max(shares) * 100 if shares else None,
                 "sm_active_percent": fmean(sms) if sms else None},
        actions=(Action("code", Line("gradient_accumulation_steps=4"), text="Talk less: accumulate "
                        "gradients, use fewer GPUs, or GPUs with NVLink on one node."),
                 Action("shell", Line("gpumon compare RUN_ON_1_GPU THIS_RUN"),
                        text="Compare with a run on one GPU before asking for several.")),
    )  # fmt: skip


RULES = (
    Rule("input-bound", input_bound),
    Rule("host-stall", host_stall),
    Rule("comm-bound", comm_bound),
)
