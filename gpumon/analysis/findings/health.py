"""Hardware that is hot, capped, faulty or badly linked (findings, 3.8)."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.evidence import DeviceEvidence, Evidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    outcome,
    percent,
    staff_actions,
    without_devices,
)
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import (
    MOST,
    Held,
    Span,
    job_devices,
    known_s,
    mean_of,
    observed,
    power_at,
    power_limit_w,
    seconds_of,
    sustained,
    under_load,
    why_missing,
)
from gpumon.model.lines import Line
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import clock_text

_WINDOW_S = 300.0
#: Xids that are usually the program's (NVIDIA's Xid catalogue; not verified on hardware)
_OF_PROGRAM = frozenset((13, 31, 43, 45))
#: and those of hardware or driver
_OF_HARDWARE = {
    48: "double-bit ECC error", 63: "row remapped", 64: "row remap failed",
    74: "NVLink error", 79: "fell off the bus", 94: "contained ECC error",
    95: "uncontained ECC error", 119: "GSP does not answer", 120: "GSP error",
}  # fmt: skip


def _share_held(
    evidence: Evidence, device: DeviceEvidence, reason: str, least_share: float
) -> Held:
    """Where a throttle reason was set in at least this part of the ticks of five minutes."""
    track = device.throttle.get(reason, Track())
    if not evidence.live and track.share() >= MOST and max(track.known()) < least_share:
        return Held([], True)
    return sustained(evidence, _WINDOW_S, lambda means: means[0] >= least_share, [track])


def _unknown(evidence: Evidence, device: DeviceEvidence) -> dict[str, str]:
    # reasons that never were given have no track
    known = number(device.last.get("throttle_mask")) is not None or any(
        track.known() for track in device.throttle.values()
    )
    if known or evidence.count < evidence.bins(_WINDOW_S):
        return {}
    return {device.label: why_missing(device, "throttle_mask")}


# -- throttle-thermal ----------------------------------------------------------------------------


def throttle_thermal(evidence: Evidence) -> Outcome:
    """throttle-thermal: software or hardware thermal slowdown in ≥ 10 % of the ticks of 5 min.

    Or, in a report, the device's own counter of thermal violation grew by ≥ 10 % of the measured
    time. Guard: shares of ticks, never a single one.

    Source: NVML's clock event reasons 0x20 and 0x40, field 75; 10 % are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    least_share = evidence.site.threshold("throttle-thermal.percent", 10) / 100
    found, unknown = [], {}
    for device in devices:
        held = [
            (reason, _share_held(evidence, device, reason, least_share).spans)
            for reason in ("hw_thermal", "sw_thermal")
        ]
        shown = next(((reason, spans) for reason, spans in held if spans), None)
        if shown is not None:
            found.append(_thermal(evidence, device, *shown))
        elif not evidence.live and _thermal_counter(evidence, device) >= least_share:
            found.append(_thermal(evidence, device, "", [observed(evidence)]))
        else:
            unknown.update(_unknown(evidence, device))
    return outcome(found, unknown)


def _thermal_counter(evidence: Evidence, device: DeviceEvidence) -> float:
    """Thermal slowdown by the counter, as a part of the time measured; 0 where not known."""
    grown_s = device.counters.get("throttle_thermal_s")
    measured_s = known_s(evidence, device.track("busy_percent")) or known_s(
        evidence, device.track("power_w")
    )
    enough = measured_s >= _WINDOW_S
    return min(1.0, grown_s / measured_s) if enough and grown_s is not None else 0.0


def _thermal(
    evidence: Evidence, device: DeviceEvidence, reason: str, spans: Sequence[Span]
) -> Finding:
    share = mean_of(device.throttle[reason], spans) if reason else None
    if share is None:
        share = _thermal_counter(evidence, device)
    kind = {"hw_thermal": "HW", "sw_thermal": "SW"}.get(reason, "")
    peaks = [device.track("temperature_c").peak(*span) for span in spans]
    peak = max((each for each in peaks if each is not None), default=None)
    hot = f", {peak:.0f} °C" if peak is not None else ""
    seconds = seconds_of(evidence, spans)
    what = f"{kind} thermal slowdown {percent(share * 100)} of {clock_text(seconds)}{hot}".strip()
    name = gpus_text(evidence, [device])
    return finding(
        evidence, [device], spans,
        id="throttle-thermal", level="warning",
        title=f"{name} too hot: {what}",
        text=what,
        numbers={"share_percent": share * 100, "temperature_c": peak, "seconds": seconds},
        actions=staff_actions(device.node, f"{name} {what}"),
    )  # fmt: skip


# -- throttle-power ------------------------------------------------------------------------------


def throttle_power(evidence: Evidence) -> Outcome:
    """throttle-power: power brake, or hardware slowdown that is not thermal, in ≥ 1 % of ticks.

    Or the software power cap (≥ 10 % of ticks) at a power, while it holds, below 80 % of the
    enforced limit: warning. The cap at a power fraction ≥ 0.9 is normal at full load: information.
    Guard: a GPU at its cap is well used, not sick.

    Source: open_clip#703; NVML's reasons 0x80, 0x8, 0x4; 1 % and 80 % of the catalogue.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    found, unknown = [], {}
    for device in devices:
        made = _brake(evidence, device) or _cap(evidence, device)
        if made is not None:
            found.append(made)
        else:
            unknown.update(_unknown(evidence, device))
    return outcome(found, unknown)


def _brake(evidence: Evidence, device: DeviceEvidence) -> Finding | None:
    least_share = evidence.site.threshold("throttle-power.brake_percent", 1) / 100
    for reason, word in (("hw_power_brake", "power brake"), ("hw_slowdown", "hardware slowdown")):
        spans = _share_held(evidence, device, reason, least_share).spans
        share = mean_of(device.throttle[reason], spans) if spans else None
        if share is None:
            continue
        thermal = mean_of(device.throttle.get("hw_thermal", Track()), spans) or 0.0
        if reason == "hw_slowdown" and share - thermal < least_share:
            continue  # `throttle-thermal` says so
        power = mean_of(device.track("power_w"), spans)
        return _power_finding(evidence, device, spans, "warning", word, share, power)
    return None


def _cap(evidence: Evidence, device: DeviceEvidence) -> Finding | None:
    least_share = evidence.site.threshold("throttle-power.cap_percent", 10) / 100
    full_w = power_at(device, evidence.site.threshold("throttle-power.full_fraction", 0.9))
    limit_w = number(device.last.get("power_limit_w")) or power_limit_w(device)
    track = device.throttle.get("sw_power_cap", Track())
    if limit_w is None or device.device.mig:
        return None
    spans = sustained(
        evidence, _WINDOW_S, lambda means: means[0] >= least_share, [track, device.track("power_w")]
    ).spans
    share, power = mean_of(track, spans), _power_when(device.track("power_w"), track, spans)
    if share is None or power is None:
        return None
    if power < evidence.site.threshold("throttle-power.below_percent", 80) / 100 * limit_w:
        return _power_finding(evidence, device, spans, "warning", "power cap", share, power)
    if full_w is not None and power >= full_w:
        return _power_finding(evidence, device, spans, "info", "power cap", share, power)
    return None


def _power_when(power: Track, capped: Track, spans: Sequence[Span]) -> float | None:
    """Mean power of the bins in which the cap held half of the time: without the load's dips."""
    values = [
        watts
        for first, last in spans
        for watts, share in zip(power.mean[first:last], capped.mean[first:last])
        if share >= 0.5 and watts == watts
    ]
    return sum(values) / len(values) if values else None


def _power_finding(
    evidence: Evidence,
    device: DeviceEvidence,
    spans: Sequence[Span],
    level: str,
    word: str,
    share: float,
    power: float | None,
) -> Finding:
    limit = number(device.last.get("power_limit_w")) or power_limit_w(device)
    watts = f" at {power:.0f} W" if power is not None else ""
    watts += f" of {limit:.0f} W" if watts and limit else ""
    normal = "; normal at full load" if level == "info" else ""
    seconds = seconds_of(evidence, spans)
    what = f"{word} {percent(share * 100)} of {clock_text(seconds)}{watts}"
    name = gpus_text(evidence, [device])
    return finding(
        evidence, [device], spans,
        id="throttle-power", level=level,
        title=f"{name} {what}{normal}",
        text=what + normal,
        numbers={"share_percent": share * 100, "power_w": power, "power_limit_w": limit},
        actions=() if level == "info" else staff_actions(device.node, f"{name} {what}"),
    )  # fmt: skip


# -- gpu-health ----------------------------------------------------------------------------------

#: fields that must be 0, and what they say when they are not
_FAULTS = (
    ("ecc_uncorrected", "uncorrectable memory errors since the driver was loaded"),
    ("remap_pending", "row remapping waits for a reset"),
    ("remap_failed", "row remapping failed"),
    ("retired_pending", "page retirement waits for a reset"),
    ("recovery_action", "the driver asks for recovery"),
)
_RECOVERY = {1: "a reset", 2: "a reboot", 3: "a drain", 4: "a drain and a reset"}


def gpu_health(evidence: Evidence) -> Outcome:
    """gpu-health: an Xid, uncorrectable ECC errors, a pending or failed row remap, a recovery
    action, or a lost GPU.

    Guards: Xids 13, 31, 43 and 45 are usually the program's own and get its advice; Xids are seen
    only after the samples began. Without any of these readings it is not evaluable.

    Source: NVIDIA's Xid catalogue (classification not verified on hardware).
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    found, unknown = [], {}
    for device in devices:
        faults = _faults(device)
        xids = dict.fromkeys(clean(event.text, 16) for event in device.xids)
        if faults or xids:
            found.append(_health(evidence, device, faults, list(xids)))
        elif not any(number(device.last.get(name)) is not None for name, _ in _FAULTS):
            unknown[device.label] = why_missing(device, "ecc_uncorrected", "recovery_action")
    return outcome(found, unknown)


def _faults(device: DeviceEvidence) -> list[str]:
    lost = next((event for event in device.states if event.text == "lost"), None)
    faults = ["lost"] if lost is not None else []
    for name, words in _FAULTS:
        value = number(device.last.get(name))
        if not value:
            continue
        if name == "ecc_uncorrected":
            words = f"{value:.0f} {words}"
        elif name == "recovery_action":
            words = f"the driver asks for {_RECOVERY.get(int(value), 'recovery')}"
        faults.append(words)
    return faults


def _health(
    evidence: Evidence, device: DeviceEvidence, faults: list[str], xids: Sequence[str]
) -> Finding:
    codes = [int(each) for each in xids if each.isascii() and each.isdigit()]
    of_program = bool(xids) and not faults and len(codes) == len(xids) and set(codes) <= _OF_PROGRAM
    parts = [*faults, *(_xid_text(each) for each in xids[:5])]
    when = [event.time for event in (*device.xids, *device.states) if event.time]
    name = gpus_text(evidence, [device])
    what = "; ".join(parts)
    if of_program:
        actions: tuple[Action, ...] = (
            Action("shell", Line("compute-sanitizer python train.py"),
                   text="Usually the program's own error: find where."),
            Action("export", Line("export CUDA_LAUNCH_BLOCKING=1")),
        )  # fmt: skip
    else:
        actions = staff_actions(device.node, f"{name} {what}")
    span = observed(evidence)
    begin = evidence.bin_at(min(when)) if when else span.first
    return finding(
        evidence, [device], [Span(min(begin, span.last), span.last)],
        id="gpu-health", level="critical",
        confidence="medium" if of_program else "high",
        title=f"{name}: {what}",
        text=what + ("; usually the program's own error" if of_program else ""),
        numbers={"xids": len(device.xids),
                 "ecc_uncorrected": number(device.last.get("ecc_uncorrected"))},
        actions=actions,
    )  # fmt: skip


def _xid_text(xid: str) -> str:
    words = _OF_HARDWARE.get(int(xid)) if xid.isascii() and xid.isdigit() else None
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"


# -- pcie-degraded -------------------------------------------------------------------------------


def pcie_degraded(evidence: Evidence) -> Outcome:
    """pcie-degraded: link width or generation below its maximum while busy ≥ 20 %, for 1 min.

    Or the replay counter rises. Guards: the generation drops at idle by design; some boards are
    wired x8, so the text asks to compare; a MIG instance has the parent's link.

    Source: NVML's link readings; 20 % and 1 min of the catalogue, proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    found, unknown = [], {}
    for device in devices:
        held, known = _narrow(evidence, device)
        replays = device.counters.get("pcie_replays", 0.0)
        if held or replays >= evidence.site.threshold("pcie-degraded.replays", 1):
            found.append(_pcie(evidence, device, held, replays))
        elif not known and "pcie_replays" not in device.counters:
            unknown[device.label] = why_missing(device, "pcie_width", "pcie_gen")
    return outcome(found, unknown)


def _narrow(evidence: Evidence, device: DeviceEvidence) -> tuple[list[Span], bool]:
    """Where the link was below its maximum under load; and whether it is known at all."""
    load = evidence.site.threshold("pcie-degraded.busy_percent", 20)
    need_s = evidence.site.threshold("pcie-degraded.seconds", 60)
    known = False
    for name in ("pcie_width", "pcie_gen"):
        most = number(device.device.facts.get(f"{name}_max"))
        track = device.track(name)
        if not most or not track.known():
            continue
        if min(track.known()) > most - 0.9:  # never below: whatever it did
            known = True
            continue
        held = sustained(
            evidence,
            need_s,
            lambda means, most=most: means[0] <= most - 0.9,  # type: ignore[misc]
            [under_load(device, track, load)],
        )
        known = known or held.known or bool(device.track("busy_percent").known())
        if held.spans:
            return held.spans, True
    return [], known


def _pcie(
    evidence: Evidence, device: DeviceEvidence, spans: Sequence[Span], replays: float
) -> Finding:
    facts = device.device.facts
    width, gen = (mean_of(device.track(name), spans) for name in ("pcie_width", "pcie_gen"))
    most_width, most_gen = (number(facts.get(f"{n}_max")) for n in ("pcie_width", "pcie_gen"))
    parts = []
    if spans and width is not None and most_width:
        parts.append(f"x{width:.0f} of x{most_width:.0f}")
    if spans and gen is not None and most_gen:
        parts.append(f"Gen{gen:.0f} of Gen{most_gen:.0f}")
    what = " at ".join(parts) + " under load" if parts else ""
    if replays:
        what += f"{'; ' if what else ''}{replays:.0f} PCIe replays"
    name = gpus_text(evidence, [device])
    return finding(
        evidence, [device], spans or [observed(evidence)],
        id="pcie-degraded", level="warning", confidence="medium",
        title=f"{name} PCIe link degraded: {what}",
        text=f"{what} for {clock_text(seconds_of(evidence, spans))}" if spans else what,
        numbers={"pcie_width": width, "pcie_gen": gen, "replays": replays},
        actions=staff_actions(device.node, f"{name} PCIe {what}"),
    )  # fmt: skip


RULES = (
    Rule("throttle-thermal", throttle_thermal),
    Rule("throttle-power", throttle_power),
    Rule("gpu-health", gpu_health),
    Rule("pcie-degraded", pcie_degraded),
)
