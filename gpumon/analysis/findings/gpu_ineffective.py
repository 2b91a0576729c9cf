"""GPUs that are busy little, or busy and yet do little (findings, 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from gpumon.analysis.evidence import DeviceEvidence, Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings import jobstats
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import (
    Held,
    Span,
    active_share,
    busy_track,
    capability,
    first_active,
    idle_since,
    io_tracks,
    is_interactive,
    is_mostly_known,
    is_server,
    job_devices,
    job_processes,
    known_s,
    link_tracks,
    mean_of,
    observed,
    power_at,
    power_fraction,
    power_limit_w,
    seconds_of,
    sustained,
    warm_up_end,
    why_missing,
)
from gpumon.model.lines import EMPTY, Line
from gpumon.model.units import clock_text

_MIB = 1 << 20
_ML_FRAMEWORKS = {"torch", "tf", "jax"}

_LARGER_WORK = (
    Action("code", Line("model = torch.compile(model)"),
           text="Give it more work at a time: a larger batch, mixed precision, fused kernels."),
    Action("sbatch", EMPTY, text="Or ask for a smaller GPU, or a MIG slice."),
)  # fmt: skip


@dataclass
class Shown:
    """The devices that show the same thing, each with its spans and its numbers."""

    devices: list[DeviceEvidence] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    numbers: list[dict[str, float]] = field(default_factory=list)
    wasted_s: float = 0.0

    def add(
        self, device: DeviceEvidence, spans: Sequence[Span], wasted_s: float, **numbers: float
    ) -> None:
        self.devices.append(device)
        self.spans += spans
        self.wasted_s += wasted_s
        self.numbers.append(numbers)

    def means(self) -> dict[str, float]:
        """Each number's mean over the devices."""
        return {name: fmean(each[name] for each in self.numbers) for name in self.numbers[0]}

    def time_text(self, evidence: Evidence) -> str:
        """How long it shows, mean over the devices."""
        return clock_text(seconds_of(evidence, self.spans) / len(self.devices))


# -- low-busy ------------------------------------------------------------------------------------


def low_busy(evidence: Evidence) -> Outcome:
    """low-busy: mean busy over all bins after warm-up < 15 % (warning), < 25 % (info), ≥ 15 min.

    Guards: 10 idle minutes and more of all GPUs at the end are a finding of their own, and not in
    the mean; interactive jobs only when longer than 8 h, or idle for more than 80 % of at least an
    hour; servers of inference wait for requests: info. A MIG instance is judged by its SM
    activity, else not evaluable. Devices that never worked come as a finding of their own, so
    that an idle finding can fold them in.

    Source: jobstats GPU_UTIL_RED 15 and BLACK 25, interactive > 8 h; 15 min are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence, jobstats.low_busy(evidence))
    need_s = evidence.site.threshold("low-busy.seconds", 900)
    red = evidence.site.threshold("low-busy.warning_percent", 15)
    black = evidence.site.threshold("low-busy.info_percent", 25)
    interactive = is_interactive(evidence, devices)
    last = observed(evidence).last if interactive else _before_idle(evidence, devices)
    groups: dict[tuple[str, bool, bool], Shown] = {}
    unknown = {}
    for device in devices:
        busy = busy_track(device)
        span = Span(warm_up_end(evidence, device), last)
        mean = busy.average(*span)
        if mean is None or not is_mostly_known(busy, span):
            if seconds_of(evidence, [span]) >= need_s:  # shorter is clear
                unknown[device.label] = why_missing(device, "busy_percent", "sm_active_percent")
        elif (
            mean < black
            and known_s(evidence, busy, *span) >= need_s
            and not (interactive and _is_interactive_pause(evidence, device, span))
        ):
            serves = is_server(device)
            level = "warning" if mean < red and not serves else "info"
            key = (level, serves, (active_share(device) or 0.0) >= 0.01)
            middle = median(busy.known(*span))
            wasted_s = (1 - mean / 100) * known_s(evidence, busy, *span)
            groups.setdefault(key, Shown()).add(
                device, [span], wasted_s, busy_mean_percent=mean, busy_median_percent=middle
            )
    return outcome(
        [_low_busy(evidence, level, serves, shown) for (level, serves, _), shown in groups.items()],
        unknown,
    )


def _before_idle(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> int:
    """The bin after which nothing worked any more, where that is 10 min ago; else the end."""
    last = observed(evidence).last
    idle = idle_since(evidence, devices)
    worked = any(first_active(each) is not None for each in devices)
    is_long = idle is not None and seconds_of(evidence, [idle]) >= evidence.site.threshold(
        "low-busy.idle_s", 600
    )
    return min(last, idle.first) if idle is not None and worked and is_long else last


def _is_interactive_pause(evidence: Evidence, device: DeviceEvidence, span: Span) -> bool:
    """An interactive job may pause: not long enough, and not idle enough, to be called low."""
    idle = 1 - (active_share(device, *span) or 0.0)
    long = evidence.elapsed_s > evidence.site.threshold("low-busy.interactive_s", 8 * 3600)
    return not long and not (idle > 0.8 and known_s(evidence, device.active, *span) >= 3600)


def _low_busy(evidence: Evidence, level: str, serves: bool, shown: Shown) -> Finding:
    numbers = shown.means()
    seconds = max(seconds_of(evidence, [span]) for span in shown.spans)
    mean, middle = numbers["busy_mean_percent"], numbers["busy_median_percent"]
    what = f"busy {percent(mean)} mean, {percent(middle)} median over {clock_text(seconds)}"
    waits = "; it serves requests, and waits for them" if serves else ""
    partial = not evidence.coverage.from_start
    return finding(
        evidence, shown.devices, shown.spans,
        id="low-busy", level=level, confidence="medium" if partial else "high",
        title=f"{gpus_text(evidence, shown.devices)} {what}",
        text=what + waits,
        numbers=numbers,
        actions=(Action("code", EMPTY, text="Find out what it waits for: data, the host, or too "
                        "little work at a time (a larger batch)."),),
        wasted_s=shown.wasted_s,
    )  # fmt: skip


# -- low-sm, low-power-high-busy, no-tensor: held over windows -------------------------------------


def _each_device(
    evidence: Evidence,
    seconds: float,
    names: Sequence[str],
    holds: Callable[[DeviceEvidence, Sequence[float]], bool],
) -> tuple[list[tuple[DeviceEvidence, list[Span]]], dict[str, str]]:
    """Devices on which `holds` was true of the means of these fields; what is unknown of others."""
    found, unknown = [], {}
    for device in job_devices(evidence):
        first = warm_up_end(evidence, device)
        held = _held(evidence, seconds, device, names, holds, first)
        if held.spans:
            found.append((device, held.spans))
        elif not held.known:
            unknown[device.label] = why_missing(device, *names)
    return found, unknown


def _held(
    evidence: Evidence,
    seconds: float,
    device: DeviceEvidence,
    names: Sequence[str],
    holds: Callable[[DeviceEvidence, Sequence[float]], bool],
    first: int,
) -> Held:
    tracks = [device.track(name) for name in names]
    return sustained(evidence, seconds, lambda means: holds(device, means), tracks, first)


def low_sm(evidence: Evidence) -> Outcome:
    """low-sm: busy ≥ 80 % and SM activity < 50 % (warning) or < 80 % (info) for 5 min.

    Guard: where DRAM activity is high (≥ 50 %) the code is bound by memory, as the decode of a
    language model: info, and said so. Needs GPM (Hopper and later), else not evaluable.

    Source: DCGM's guide (SM activity ≥ 0.8 is necessary, < 0.5 likely ineffective).
    """
    busy_at_least = evidence.site.threshold("low-sm.busy_percent", 80)
    low = evidence.site.threshold("low-sm.warning_percent", 50)
    high = evidence.site.threshold("low-sm.info_percent", 80)
    need_s = evidence.site.threshold("low-sm.seconds", 300)
    names = ("busy_percent", "sm_active_percent")
    if not job_devices(evidence):
        return without_devices(evidence)

    def below(limit: float) -> Callable[[DeviceEvidence, Sequence[float]], bool]:
        return lambda _, means: means[0] >= busy_at_least and means[1] < limit

    worse, unknown = _each_device(evidence, need_s, names, below(low))
    milder, _ = _each_device(evidence, need_s, names, below(high))
    groups: dict[tuple[str, bool], Shown] = {}
    taken = {device.label for device, _ in worse}
    for level, found in (("warning", worse), ("info", milder)):
        for device, spans in found:
            if level == "info" and device.label in taken:
                continue
            dram = mean_of(device.track("dram_active_percent"), spans)
            bound = dram is not None and dram >= evidence.site.threshold("low-sm.dram_percent", 50)
            busy = mean_of(device.track("busy_percent"), spans) or 0.0
            sm = mean_of(device.track("sm_active_percent"), spans) or 0.0
            wasteful = level == "warning" and not bound
            wasted_s = (1 - sm / 100) * seconds_of(evidence, spans) if wasteful else 0.0
            key = ("info" if bound else level, bound)
            groups.setdefault(key, Shown()).add(
                device, spans, wasted_s, busy_percent=busy, sm_active_percent=sm,
                **({"dram_active_percent": dram} if bound and dram is not None else {}),
            )  # fmt: skip
    return outcome([_low_sm(evidence, *key, shown) for key, shown in groups.items()], unknown)


def _low_sm(evidence: Evidence, level: str, bound: bool, shown: Shown) -> Finding:
    numbers = shown.means()
    what = f"busy {percent(numbers['busy_percent'])} but SM {percent(numbers['sm_active_percent'])}"
    dram = f"; DRAM {percent(numbers['dram_active_percent'])}: bound by memory" if bound else ""
    return finding(
        evidence, shown.devices, shown.spans,
        id="low-sm", level=level,
        title=f"{gpus_text(evidence, shown.devices)} {what}{dram}",
        text=f"{what}{dram} for {shown.time_text(evidence)}",
        numbers=numbers,
        actions=() if bound else _LARGER_WORK,
        wasted_s=shown.wasted_s,
    )  # fmt: skip


def low_power(evidence: Evidence) -> Outcome:
    """low-power-high-busy: busy ≥ 90 % and power fraction < 0.25 for 5 min, counters moving.

    Only where GPM cannot say more (`low-sm`). Counters: device memory, PCIe, NVLink, the job's
    I/O; where all known ones stand still it may hang (`suspected-hang`), where none is known it is
    not evaluable. Guards: the default limit counts on a capped GPU; means over the whole window,
    since an A100 reports instantaneous power.

    Source: published readings of hangs (nccl#968, horovod#3611); the thresholds are proposed.
    """
    busy_at_least = evidence.site.threshold("low-power-high-busy.busy_percent", 90)
    fraction = evidence.site.threshold("low-power-high-busy.power_fraction", 0.25)
    need_s = evidence.site.threshold("low-power-high-busy.seconds", 300)
    if not job_devices(evidence):
        return without_devices(evidence)

    low_w = {
        each.label: None if each.track("sm_active_percent").known() else power_at(each, fraction)
        for each in job_devices(evidence)
    }

    def holds(device: DeviceEvidence, means: Sequence[float]) -> bool:
        limit_w = low_w[device.label]
        return limit_w is not None and means[0] >= busy_at_least and means[1] < limit_w

    found, unknown = _each_device(evidence, need_s, ("busy_percent", "power_w"), holds)
    for device in job_devices(evidence):
        if power_at(device, fraction) is None and device.track("power_w").known():
            shared = "power is of the whole GPU" if device.device.mig else "power limit not known"
            unknown[device.label] = shared
    shown = Shown()
    for device, spans in found:
        moving = is_moving(evidence, device, spans[-1])
        if moving is None:
            unknown[device.label] = "no counter tells whether it moves"
        elif moving:
            power = mean_of(device.track("power_w"), spans) or 0.0
            shown.add(
                device, spans, 0.0,
                busy_percent=mean_of(device.track("busy_percent"), spans) or 0.0,
                power_w=power, power_limit_w=power_limit_w(device) or 0.0,
                power_fraction=power_fraction(device, power) or 0.0,
            )  # fmt: skip
    return outcome([_low_power(evidence, shown)] if shown.devices else [], unknown)


def is_moving(evidence: Evidence, device: DeviceEvidence, span: Span) -> bool | None:
    """Whether device memory, links or the job's I/O changed; None where none of them is known."""
    memory = device.track("mem_used_bytes").known(*span)
    signs = [max(memory) - min(memory) > _MIB] if memory else []
    tracks = [*link_tracks(device), *io_tracks(evidence, device.node)]
    means = [track.average(*span) for track in tracks]
    signs += [mean > _MIB for mean in means if mean is not None]
    return any(signs) if signs else None


def _low_power(evidence: Evidence, shown: Shown) -> Finding:
    numbers = shown.means()
    what = (
        f"busy {percent(numbers['busy_percent'])} but {numbers['power_w']:.0f} W of "
        f"{numbers['power_limit_w']:.0f} W"
    )
    return finding(
        evidence, shown.devices, shown.spans,
        id="low-power-high-busy", level="warning", confidence="medium",
        title=f"{gpus_text(evidence, shown.devices)} {what}",
        text=f"{what} for {shown.time_text(evidence)}",
        numbers=numbers,
        actions=_LARGER_WORK,
    )  # fmt: skip


def no_tensor(evidence: Evidence) -> Outcome:
    """no-tensor: tensor activity < 2 % and FP32 ≥ 20 % for 10 min in torch, TensorFlow or JAX.

    Guards: not for other programs, and not where FP64 is used (≥ 5 %): that is no candidate for
    mixed precision. Needs GPM, else not evaluable.

    Source: courses that teach mixed precision (UMD, ECE459); the thresholds are proposed.
    """
    tensor = evidence.site.threshold("no-tensor.tensor_percent", 2)
    fp32 = evidence.site.threshold("no-tensor.fp32_percent", 20)
    fp64 = evidence.site.threshold("no-tensor.fp64_percent", 5)
    names = ("tensor_active_percent", "fp32_active_percent", "fp64_active_percent")
    if not job_devices(evidence):
        return without_devices(evidence)

    def holds(device: DeviceEvidence, means: Sequence[float]) -> bool:
        learns = _ML_FRAMEWORKS & {
            tag
            for each in job_processes(device)
            for tag in (*each.frameworks, each.facts.framework)
        }
        return bool(learns) and means[0] < tensor and means[1] >= fp32 and means[2] < fp64

    need_s = evidence.site.threshold("no-tensor.seconds", 600)
    found, unknown = _each_device(evidence, need_s, names, holds)
    shown = Shown()
    for device, spans in found:
        values = {name: mean_of(device.track(name), spans) or 0.0 for name in names[:2]}
        shown.add(device, spans, 0.0, **values)
    return outcome([_no_tensor(evidence, shown)] if shown.devices else [], unknown)


def _no_tensor(evidence: Evidence, shown: Shown) -> Finding:
    numbers = shown.means()
    has_bf16 = all((capability(each) or 0.0) >= 8 for each in shown.devices)
    dtype = Line("torch.bfloat16") if has_bf16 else Line("torch.float16")
    what = f"tensor {percent(numbers['tensor_active_percent'])}, " \
           f"FP32 {percent(numbers['fp32_active_percent'])}"  # fmt: skip
    return finding(
        evidence, shown.devices, shown.spans,
        id="no-tensor", level="info",
        title=f"{gpus_text(evidence, shown.devices)} tensor cores unused: {what}",
        text=f"{what} for {shown.time_text(evidence)}",
        numbers=numbers,
        actions=(Action("code", Line('with torch.autocast("cuda", dtype={}):', dtype),
                        text="Use mixed precision."),
                 Action("code", Line('torch.set_float32_matmul_precision("high")'))),
    )  # fmt: skip


RULES = (
    Rule("low-busy", low_busy),
    Rule("low-sm", low_sm),
    Rule("low-power-high-busy", low_power),
    Rule("no-tensor", no_tensor, live=False),
)
