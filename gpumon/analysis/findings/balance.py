"""GPUs of one job that do unequal work: by the program, or by the hardware (findings, 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from gpumon.analysis.evidence import DeviceEvidence, Evidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    outcome,
    percent,
    staff_actions,
    without_devices,
)
from gpumon.analysis.once import once
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import (
    MOST,
    Span,
    active_share,
    busy_track,
    job_devices,
    mean_of,
    observed,
    seconds_of,
    sustained,
    sustained_each,
    under_load,
    warm_up_end,
    why_missing,
)
from gpumon.model.lines import EMPTY, Line
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text

_GIB = 1 << 30
_SLOWED = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake", "low_reliability")


@once
def _comparable(evidence: Evidence) -> tuple[list[DeviceEvidence], dict[str, str]]:
    """The working devices of the most frequent model; and what is unknown of others."""
    devices, unknown = [], {}
    span = observed(evidence)
    for device in job_devices(evidence):
        if busy_track(device).share(*span) < MOST:
            unknown[device.label] = why_missing(device, "busy_percent")
        elif (active_share(device) or 0.0) >= 0.01:
            devices.append(device)
    names = [each.device.name for each in devices]
    most = max(names, key=names.count, default="")
    return [each for each in devices if each.device.name == most], unknown


def _begin(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> int:
    return max(warm_up_end(evidence, each) for each in devices)


# -- straggler -----------------------------------------------------------------------------------


class Slow(NamedTuple):
    """A device that the hardware holds back."""

    device: DeviceEvidence
    spans: list[Span]
    busy_percent: float
    clock_mhz: float | None
    others_mhz: float | None
    causes: list[str]


def straggler(evidence: Evidence) -> Outcome:
    """straggler: one of ≥ 3 GPUs is > 20 % off the median busy or clock for 10 min, by hardware.

    Hardware: its SM clock is ≥ 5 % below the median, it shows a throttle reason, or its PCIe link
    is narrower. Guards: without such a cause it is `gpu-imbalance`; while a device does little
    (busy < 30 %) its clock is low by design. Only devices of one model are compared, over all
    nodes.

    Source: no peer; the thresholds are proposed.
    """
    devices, unknown = _comparable(evidence)
    if not job_devices(evidence):
        return without_devices(evidence)
    if len(devices) < 3:
        return outcome([], unknown if len(devices) + len(unknown) >= 3 else {})
    return outcome(
        [_straggler(evidence, each, len(devices)) for each in slow_devices(evidence)],
        unknown,
    )


@once
def slow_devices(evidence: Evidence) -> list[Slow]:
    """The stragglers; none where fewer than three can be compared."""
    devices, _ = _comparable(evidence)
    if len(devices) < 3:
        return []
    need_s = evidence.site.threshold("straggler.seconds", 600)
    off = evidence.site.threshold("straggler.off_percent", 20) / 100
    first = _begin(evidence, devices)
    least_busy = evidence.site.threshold("straggler.busy_percent", 30)
    by_busy = [busy_track(each) for each in devices]
    by_clock = [under_load(each, each.track("sm_clock_mhz"), least_busy) for each in devices]

    def is_off(means: Sequence[float]) -> list[bool]:
        middle = median(means)
        return [middle > 0 and abs(mean - middle) > off * middle for mean in means]

    def is_slow(means: Sequence[float]) -> list[bool]:
        middle = median(means)
        return [mean < (1 - off) * middle for mean in means]

    count = len(devices)
    off_busy = sustained_each(evidence, need_s, is_off, by_busy, count, first)
    off_clock = sustained_each(evidence, need_s, is_slow, by_clock, count, first)
    found = []
    for n, device in enumerate(devices):
        held = off_busy[n] if off_busy[n].spans else off_clock[n]
        if not held.spans:
            continue
        busy = mean_of(by_busy[n], held.spans) or 0.0
        if busy < least_busy:
            continue
        clocks = [mean_of(track, held.spans) for track in by_clock]
        causes = _causes(evidence, device, devices, held.spans, clocks[n], clocks)
        if causes:
            known = [each for each in clocks if each is not None]
            found.append(
                Slow(device, held.spans, busy, clocks[n],
                     median(known) if known else None, causes)
            )  # fmt: skip
    return found


def _causes(
    evidence: Evidence,
    device: DeviceEvidence,
    devices: Sequence[DeviceEvidence],
    spans: Sequence[Span],
    clock: float | None,
    clocks: Sequence[float | None],
) -> list[str]:
    causes = []
    known = [each for each in clocks if each is not None]
    slower = 1 - evidence.site.threshold("straggler.clock_percent", 5) / 100
    if clock is not None and clock <= slower * median(known):
        causes.append(f"{clock:.0f} MHz (others {median(known):.0f})")
    for reason in _SLOWED:
        share = mean_of(device.throttle[reason], spans) if reason in device.throttle else None
        if share is not None and share >= 0.01:
            causes.append(f"{reason.replace('_', ' ')} {percent(share * 100)} of the time")
    width, others = _narrower(device, devices, spans)
    if width < others:
        causes.append(f"PCIe x{width:.0f} (others x{others:.0f})")
    return causes


def _narrower(
    device: DeviceEvidence, devices: Sequence[DeviceEvidence], spans: Sequence[Span]
) -> tuple[float, float]:
    """The width of its PCIe link, and the median of all where that can be more; else zeros."""
    tracks = [each.track("pcie_width") for each in devices]
    width = mean_of(device.track("pcie_width"), spans)
    if width is None or width >= max(track.peak() or 0.0 for track in tracks):
        return 0.0, 0.0  # which spares hundreds of devices a look at hundreds of others
    widths = [mean_of(track, spans) for track in tracks]
    return width, median(each for each in widths if each is not None)


def _straggler(evidence: Evidence, slow: Slow, count: int) -> Finding:
    name = gpus_text(evidence, [slow.device])
    causes = ", ".join(slow.causes)
    what = f"{name} on {clean(slow.device.node)}: {causes}"
    waiting = f"the other {count - 1} GPUs wait for it"
    return finding(
        evidence, [slow.device], slow.spans,
        id="straggler", level="warning", confidence="medium",
        title=f"{what}; {waiting}",
        text=f"{what}; busy {percent(slow.busy_percent)} for "
             f"{clock_text(seconds_of(evidence, slow.spans))}; {waiting}",
        numbers={"busy_percent": slow.busy_percent, "sm_clock_mhz": slow.clock_mhz,
                 "others_sm_clock_mhz": slow.others_mhz},
        actions=staff_actions(slow.device.node, f"{name}: {causes}"),
    )  # fmt: skip


# -- gpu-imbalance -------------------------------------------------------------------------------


def imbalance(evidence: Evidence) -> Outcome:
    """gpu-imbalance: all of several GPUs work, (max − min) / mean of busy or power ≥ 30 %, 10 min.

    The same device must be the lowest throughout (in 80 % of the bins). Memory that differs by
    ≥ 20 % and more than 1 GiB, everything else alike, is information. Guards: what hardware holds
    back is `straggler`; rank 0 has 1 GiB more by nature; pipelines are uneven by design.

    Source: no peer; the thresholds are proposed.
    """
    devices, unknown = _comparable(evidence)
    if not job_devices(evidence):
        return without_devices(evidence)
    slow = {each.device.label for each in slow_devices(evidence)}
    devices = [each for each in devices if each.label not in slow]
    if len(devices) < 2:
        return outcome([], unknown if len(devices) + len(unknown) >= 2 else {})
    first = _begin(evidence, devices)
    spread = evidence.site.threshold("gpu-imbalance.spread_percent", 30) / 100
    need_s = evidence.site.threshold("gpu-imbalance.seconds", 600)

    def uneven(means: Sequence[float]) -> bool:
        middle = fmean(means)
        return middle > 0 and (max(means) - min(means)) / middle >= spread

    known = False
    for name, unit in (("busy_percent", " %"), ("power_w", " W")):
        if name == "power_w" and any(each.device.mig for each in devices):
            continue
        tracks = [
            busy_track(each) if name == "busy_percent" else each.track(name) for each in devices
        ]
        held = sustained(evidence, need_s, uneven, tracks, first)
        known = known or held.known
        if held.spans and _is_persistent(devices, name, held.spans, spread):
            return [_imbalance(evidence, devices, held.spans, name, unit)]
    by_memory = _memory_imbalance(evidence, devices, need_s, first)
    if by_memory is not None:
        return [by_memory]
    if not known:
        return NotEvaluable("too few readings of busy and power at the same time")
    return outcome([], unknown)


def _is_persistent(
    devices: Sequence[DeviceEvidence], name: str, spans: Sequence[Span], spread: float
) -> bool:
    """One device is below the mean of all in 80 % of the bins, by a quarter of the spread: by
    noise alone the lowest would be in half of them.
    """
    tracks = [busy_track(each) if name == "busy_percent" else each.track(name) for each in devices]
    means = [mean_of(track, spans) or 0.0 for track in tracks]
    lowest = tracks[means.index(min(means))]
    below = total = 0
    for first, last in spans:
        for n in range(first, last):
            values = [track.mean[n] for track in tracks if track.mean[n] == track.mean[n]]
            if lowest.mean[n] == lowest.mean[n]:
                total += 1
                below += lowest.mean[n] < (1 - spread / 4) * fmean(values)
    return total > 0 and below >= MOST * total


def _imbalance(
    evidence: Evidence,
    devices: Sequence[DeviceEvidence],
    spans: Sequence[Span],
    name: str,
    unit: str,
) -> Finding:
    tracks = [busy_track(each) if name == "busy_percent" else each.track(name) for each in devices]
    means = [mean_of(track, spans) or 0.0 for track in tracks]
    what = "busy" if name == "busy_percent" else "power"
    values = "/".join(f"{value:.0f}" for value in means[:8]) + ("/…" if len(means) > 8 else "")
    low, high = devices[means.index(min(means))], devices[means.index(max(means))]
    text = f"GPU {what} {values}{unit} for {clock_text(seconds_of(evidence, spans))}"
    return finding(
        evidence, devices, spans,
        id="gpu-imbalance", level="warning", confidence="medium",
        title=f"Unequal load: {text}",
        text=f"{text}; least {gpus_text(evidence, [low])}, most {gpus_text(evidence, [high])}",
        numbers={f"{name}_low": min(means), f"{name}_high": max(means),
                 f"{name}_mean": fmean(means)},
        actions=(Action("shell", Line("nsys profile python train.py"),
                        text="Check sharding and batch size of each rank; profile a slow and a "
                             "fast one."),),
    )  # fmt: skip


def _memory_imbalance(
    evidence: Evidence, devices: Sequence[DeviceEvidence], need_s: float, first: int
) -> Finding | None:
    spread = evidence.site.threshold("gpu-imbalance.memory_percent", 20) / 100
    held = sustained(
        evidence,
        need_s,
        lambda means: max(means) - min(means) > max(_GIB, spread * fmean(means)),
        [each.track("mem_used_bytes") for each in devices],
        first,
    )
    if not held.spans:
        return None
    means = [mean_of(each.track("mem_used_bytes"), held.spans) or 0.0 for each in devices]
    what = f"GPU memory {bytes_text(min(means))} to {bytes_text(max(means))}"
    return finding(
        evidence, devices, held.spans,
        id="gpu-imbalance", level="info", confidence="low",
        title=f"Unequal memory: {what}",
        text=f"{what} for {clock_text(seconds_of(evidence, held.spans))}; busy is alike",
        numbers={"mem_used_bytes_low": min(means), "mem_used_bytes_high": max(means)},
        actions=(Action("code", EMPTY, text="Check how the model is split over the ranks."),),
    )  # fmt: skip


RULES = (
    Rule("gpu-imbalance", imbalance),
    Rule("straggler", straggler),
)
