"""Hardware that is hot, capped, faulty or badly linked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.analysis.accounting import KILLED_STATES
from gpumon.analysis.finding import Action, Finding, NotEvaluable
from gpumon.analysis.known import highest, total
from gpumon.analysis.ledger import State
from gpumon.analysis.rules.faults import (
    FAULTS,
    fault_text,
    faults,
    is_certain,
    is_of_program,
    xids_of,
)
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import (
    alike,
    finding,
    gpus_text,
    percent,
    range_text,
    staff_actions,
    unread,
)
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import DeviceData, RunData, Track
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
)
from gpumon.analysis.thresholds import Count, Percent, Seconds, Share
from gpumon.model.lines import Line
from gpumon.model.reading import Missing, number
from gpumon.model.units import age_text

_HARDWARE = "The fault is in the node and will affect the next job on it, too."
_TELL_STAFF = "send the printed line to the site's staff"
_WINDOW_S = 300.0
_THERMAL, _HEAT = ("hw_thermal", "sw_thermal"), "throttled (heat)"
#: °C at which a GPU is slowed down, where it does not say, and so close to it that it was the heat
_SLOWDOWN_C, _NEAR_SLOWDOWN_C = 90.0, 15.0


def _share_held(run: RunData, device: DeviceData, reason: str, least_share: float) -> Held:
    """Where a throttle reason was set in at least this part of the ticks of five minutes."""
    track = device.throttle.get(reason, Track())
    if not run.live and track.share() >= MOST and max(track.known()) < least_share:
        return Held([], True)
    return sustained(run, _WINDOW_S, lambda means: means[0] >= least_share, [track])


def _unknown(run: RunData, device: DeviceData) -> Iterator[NotEvaluable]:
    # reasons that never were given have no track
    known = number(device.last.get("throttle_mask")) is not None or any(
        track.known() for track in device.throttle.values()
    )
    if not known and run.count >= run.bins(_WINDOW_S):
        yield unread(device, "throttle_mask")


class ThrottleThermal(NamedTuple):
    percent: Percent = 10  # of the ticks


@rule(
    "throttle-thermal",
    title="throttled by heat for {percent} of 5 min",
    why="Throttling lowers a GPU's clocks, so the run takes longer.",
    remedy=_TELL_STAFF,
    needs=(gpus,),
)
def throttle_thermal(run: RunData, t: ThrottleThermal) -> Answers:
    """Software or hardware thermal slowdown; in a report also where the device's own counter of
    thermal violation grew by as large a part of the measured time. Guard: shares of ticks, never a
    single one; in a report information where it held in a smaller part of the run.

    Source: NVML's clock event reasons 0x20 and 0x40, field 75; 10 % are proposed.
    """
    least_share = t.percent / 100
    found: list[_Slowed] = []
    for device in job_devices(run):
        for reason in _THERMAL:
            spans = _share_held(run, device, reason, least_share).spans
            share = mean_of(device.throttle[reason], spans) if spans else None
            if share is not None:
                known = device.throttle[reason].known()
                hot = sum(each >= least_share for each in known)
                if run.live or hot >= least_share * len(known):
                    found.append(_Slowed(device, _HEAT, spans, share))
                else:
                    whole, mean = [observed(run)], sum(known) / len(known)
                    found.append(_Slowed(device, _HEAT, whole, mean, level="info"))
                break
        else:
            share = _thermal_counter(run, device)
            if not run.live and share >= least_share:
                found.append(_Slowed(device, _HEAT, [observed(run)], share))
            else:
                yield from _unknown(run, device)
    for same in alike(found, lambda each: (each.device.node, each.level, each.word, _is_hot(each))):
        yield _thermal(run, same)


def _thermal_counter(run: RunData, device: DeviceData) -> float:
    """Thermal slowdown by the counter, as a part of the time measured; 0 where not known."""
    grown_s = device.counters.get("throttle_thermal_s")
    measured_s = known_s(run, device.track("busy_percent")) or known_s(run, device.track("power_w"))
    enough = measured_s >= _WINDOW_S
    return min(1.0, grown_s / measured_s) if enough and grown_s is not None else 0.0


class _Slowed(NamedTuple):
    """A device that a reason slowed down in this part of the ticks of some spans."""

    device: DeviceData
    word: str
    spans: list[Span]
    share: float
    power_w: float | None = None
    level: str = "warning"


def _peak_c(each: _Slowed) -> float | None:
    return highest(each.device.track("temperature_c").peak(*span) for span in each.spans)


def _is_hot(each: _Slowed) -> bool:
    """Near the temperature at which the driver slows it down; or its temperature is not known."""
    peak = _peak_c(each)
    limit = number(each.device.device.facts.get("temperature_slowdown_c")) or _SLOWDOWN_C
    return peak is None or peak >= limit - _NEAR_SLOWDOWN_C


def _thermal(run: RunData, found: Sequence[_Slowed]) -> Finding:
    """Of devices of a node, all of them hot, or all of them not."""
    peaks = [peak for each in found if (peak := _peak_c(each)) is not None]
    hot = f", up to {range_text(peaks, '{:.0f} °C'.format)}" if peaks else ""
    elsewhere = "" if _is_hot(found[0]) else "; the GPU itself was not hot: perhaps its memory was"
    return _slowed(run, found, hot, elsewhere, {"temperature_c": highest(peaks)})


def _slowed(
    run: RunData, found: Sequence[_Slowed], at: str, rest: str, numbers: dict[str, float | None]
) -> Finding:
    """Of devices of a node that differ in nothing but their figures."""
    first, devices = found[0], [each.device for each in found]
    share = range_text((100 * each.share for each in found), percent)
    seconds = max(seconds_of(run, each.spans) for each in found)
    what = f"{first.word} in {share} of {age_text(seconds)}{at}"
    name = gpus_text(run, devices)
    is_fault = first.level == "warning"
    return finding(
        run,
        first.level,
        what + rest,
        head=f"{name} ",
        devices=devices,
        spans=[span for each in found for span in each.spans],
        numbers={
            "share_percent": 100 * max(each.share for each in found), "seconds": seconds, **numbers,
        },
        actions=staff_actions(run, first.device.node, f"{name}: {what}") if is_fault else (),
    )  # fmt: skip


class ThrottlePower(NamedTuple):
    brake_percent: Percent = 1  # of the ticks
    cap_percent: Percent = 10
    below_percent: Percent = 80  # of the enforced limit
    full_fraction: Share = 0.9  # power fraction of a GPU that is well used


@rule(
    "throttle-power",
    title="throttled by the power supply, or capped below its limit",
    why="A GPU that may draw no more power lowers its clocks, so the run takes longer.",
    remedy=_TELL_STAFF,
    needs=(gpus,),
)
def throttle_power(run: RunData, t: ThrottlePower) -> Answers:
    """Power brake, or hardware slowdown that is not thermal. Or the software power cap where the
    power never comes near the enforced limit: warning; at full power it is normal: information.
    Guard: a GPU at its cap is well used, not sick.

    Source: open_clip#703; NVML's reasons 0x80, 0x8, 0x4; 1 % and 80 % of the catalogue.
    """
    found: list[_Slowed] = []
    for device in job_devices(run):
        slowed = _brake(run, device, t) or _cap(run, device, t)
        if slowed is not None:
            found.append(slowed)
        else:
            yield from _unknown(run, device)
    for same in alike(found, lambda e: (e.device.node, e.level, e.word, _limit_w(e.device))):
        yield _by_power(run, same)


def _brake(run: RunData, device: DeviceData, t: ThrottlePower) -> _Slowed | None:
    least_share = t.brake_percent / 100
    for reason, word in (("hw_power_brake", "power brake"), ("hw_slowdown", "hardware")):
        spans = _share_held(run, device, reason, least_share).spans
        share = mean_of(device.throttle[reason], spans) if spans else None
        if share is None:
            continue
        thermal = mean_of(device.throttle.get("hw_thermal", Track()), spans) or 0.0
        if reason == "hw_slowdown" and share - thermal < least_share:
            continue  # `throttle-thermal` says so
        power = mean_of(device.track("power_w"), spans)
        return _Slowed(device, f"throttled ({word})", spans, share, power)
    return None


def _limit_w(device: DeviceData) -> float | None:
    return number(device.last.get("power_limit_w")) or power_limit_w(device)


def _cap(run: RunData, device: DeviceData, t: ThrottlePower) -> _Slowed | None:
    limit_w = _limit_w(device)
    if limit_w is None or device.device.mig:
        return None
    track, watts = device.throttle.get("sw_power_cap", Track()), device.track("power_w")
    least_share = t.cap_percent / 100
    spans = sustained(run, _WINDOW_S, lambda means: means[0] >= least_share, [track, watts]).spans
    share, power = mean_of(track, spans), _power_when(watts, track, spans)
    if share is None or power is None:
        return None
    full_w = power_at(device, t.full_fraction)
    highest = max((watts.peak(*span) or 0.0 for span in spans), default=0.0)
    if highest < t.below_percent / 100 * limit_w:
        return _Slowed(device, "power cap", spans, share, power)
    if full_w is not None and power >= full_w:
        return _Slowed(device, "power cap", spans, share, power, "info")
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


def _by_power(run: RunData, found: Sequence[_Slowed]) -> Finding:
    powers = [each.power_w for each in found if each.power_w is not None]
    limit = _limit_w(found[0].device)
    watts = f" at {range_text(powers, '{:.0f} W'.format)}" if powers else ""
    watts += f" of {limit:.0f} W" if watts and limit else ""
    normal = "; normal at full load" if found[0].level == "info" else ""
    numbers = {"power_w": min(powers, default=None), "power_limit_w": limit}
    return _slowed(run, found, watts, normal, numbers)


@rule(
    "gpu-health",
    title="an Xid, memory errors during the job, a lost GPU",
    why="Such errors may end the program or corrupt its results.",
    remedy="by the kind: your program's, or the node's",
    needs=(gpus,),
    is_event=True,
    wastes=(State.LOST,),
)
def gpu_health(run: RunData) -> Answers:
    """An Xid, uncorrectable ECC errors that were counted during the job, a pending or failed row
    remap, a recovery action, or a lost GPU.

    Critical only for what is the node's for certain. A warning: a pending remap, which an earlier
    job may have left; Xids that are not classified; Xids 13, 31, 43, 45 and 68, which are usually
    the program's own, with advice and no line that slows every later run. Xid 45 alone is
    information where Slurm ended the job: the driver cleans up behind any process that is killed.
    Xids are seen only after the samples began. Without any of these readings it is not evaluable.

    Source: NVIDIA's Xid catalogue (classification not verified on hardware).
    """
    faulty: list[_Faulty] = []
    for device in job_devices(run):
        found = ["lost"] if is_lost(device) else []
        errors = device.counters.get("ecc_uncorrected")
        if errors:
            plural = "s" if errors > 1 else ""
            found.append(f"{errors:.0f} uncorrectable memory error{plural} during the job")
        found += faults(device.last.get)
        xids = xids_of(event.text for event in device.xids)
        if found or xids:
            faulty.append(_Faulty(device, found, xids))
        elif errors is None and all(number(device.last.get(name)) is None for name in FAULTS):
            yield unread(device, "ecc_uncorrected", "recovery_action")
    for same in alike(faulty, lambda each: (each.device.node, fault_text(each.faults, each.xids))):
        yield _health(run, same)


def is_lost(device: DeviceData) -> bool:
    last = device.last.get("busy_percent")
    is_gone = isinstance(last, Missing) and last.reason == "lost"
    return is_gone or any(event.text == "lost" for event in device.states)


class _Faulty(NamedTuple):
    """A device with its faults, and its Xids."""

    device: DeviceData
    faults: list[str]
    xids: list[str]


def _health(run: RunData, found: Sequence[_Faulty]) -> Finding:
    """Of devices of a node with the same faults."""
    (_, faults, xids), devices = found[0], [each.device for each in found]
    of_program = is_of_program(faults, xids)
    killed = run.job is not None and run.job.state in KILLED_STATES
    level = "critical" if is_certain(faults, xids) else "warning"
    if xids == ["45"] and killed and not faults:
        level = "info"
    events = [event for each in devices for event in (*each.xids, *each.states)]
    when = [event.time for event in events if event.time]
    name = gpus_text(run, devices)
    what = fault_text(faults, xids)
    actions = staff_actions(run, devices[0].node, f"{name}: {what}")
    if of_program:
        sanitize = Line("compute-sanitizer python train.py")
        find = "Usually an error in the program itself: locate it in a short run."
        actions = (Action("shell", sanitize, text=find),)
    span = observed(run)
    begin = run.bin_at(min(when)) if when else span.first
    return finding(
        run,
        level,
        what,
        head=f"{name}: ",
        rest="; usually an error in the program itself" if of_program else "",
        devices=devices,
        spans=[Span(min(begin, span.last), span.last)],
        confidence="high" if level == "critical" else "medium",
        numbers={
            "xids": sum(len(each.xids) for each in devices),
            "ecc_uncorrected": total(each.counters.get("ecc_uncorrected") for each in devices),
        },
        actions=actions,
    )


class PcieDegraded(NamedTuple):
    seconds: Seconds = 60
    busy_percent: Percent = 20
    replays: Count = 1


@rule(
    "pcie-degraded",
    title="PCIe link narrow or slow under load",
    why=_HARDWARE,
    remedy=_TELL_STAFF,
    needs=(gpus,),
)
def pcie_degraded(run: RunData, t: PcieDegraded) -> Answers:
    """Link width or generation below its maximum, or the replay counter rises. Guards: the
    generation drops at idle by design, also between bursts of work, so a link that reaches its
    maximum meanwhile is sound; some boards are wired x8, so the text asks to compare; a MIG
    instance has the parent's link.

    Source: NVML's link readings; 20 % and 1 min of the catalogue, proposed.
    """
    found: list[_Link] = []
    for device in job_devices(run):
        held, known = _narrow(run, device, t)
        replays = device.counters.get("pcie_replays", 0.0)
        if held or replays >= t.replays:
            found.append(_link(device, held, replays))
        elif not known and "pcie_replays" not in device.counters:
            yield unread(device, "pcie_width", "pcie_gen")
    for same in alike(found, lambda each: (each.device.node, each.text, each.replays > 0)):
        yield _pcie(run, same)


def _narrow(run: RunData, device: DeviceData, t: PcieDegraded) -> tuple[list[Span], bool]:
    """Where the link was below its maximum under load; and whether it is known at all."""
    known = False
    for name in ("pcie_width", "pcie_gen"):
        most = number(device.device.facts.get(f"{name}_max"))
        track = device.track(name)
        if not most or not track.known():
            continue
        below = most - 0.9
        if min(track.known()) > below:  # never below: whatever it did
            known = True
            continue
        loaded = under_load(device, track, t.busy_percent)
        held = sustained(run, t.seconds, lambda means: means[0] <= below, [loaded])  # noqa: B023
        known = known or held.known or bool(device.track("busy_percent").known())
        spans = [each for each in held.spans if (track.peak(*each) or 0.0) <= below]
        if spans:
            return spans, True
    return [], known


class _Link(NamedTuple):
    """A device's link, where it was degraded."""

    device: DeviceData
    spans: list[Span]  # in which it was narrow or slow
    width: float | None
    gen: float | None
    replays: float

    @property
    def text(self) -> str:
        """`x8 of x16 at Gen4 of Gen4`; empty where the link only repeated packets."""
        if not self.spans:
            return ""
        facts, parts = self.device.device.facts, []
        for letters, value, name in (("x", self.width, "width"), ("Gen", self.gen, "gen")):
            most = number(facts.get(f"pcie_{name}_max"))
            if value is not None and most:
                parts.append(f"{letters}{value:.0f} of {letters}{most:.0f}")
        return " at ".join(parts)


def _link(device: DeviceData, spans: list[Span], replays: float) -> _Link:
    width, gen = (mean_of(device.track(name), spans) for name in ("pcie_width", "pcie_gen"))
    return _Link(device, spans, width, gen, replays)


def _pcie(run: RunData, found: Sequence[_Link]) -> Finding:
    """Of devices of a node whose links fare alike."""
    first, devices = found[0], [each.device for each in found]
    seconds = max(seconds_of(run, each.spans) for each in found)
    replays = range_text((each.replays for each in found), "{:.0f} PCIe replays".format)
    parts = [f"{first.text} under load for {age_text(seconds)}"] if first.text else []
    parts += [replays] if first.replays else []
    what, name = "; ".join(parts), gpus_text(run, devices)
    link = what if first.replays else f"PCIe {what}"
    return finding(
        run,
        "warning",
        what,
        head=f"{name}: PCIe link degraded: ",
        devices=devices,
        spans=[span for each in found for span in each.spans] or [observed(run)],
        confidence="medium",
        numbers={
            "pcie_width": first.width,
            "pcie_gen": first.gen,
            "replays": max(each.replays for each in found),
        },
        actions=staff_actions(run, first.device.node, f"{name}: {link}"),
    )
