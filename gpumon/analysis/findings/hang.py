"""Busy GPUs that stand still (findings, 3.2, `suspected-hang`)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from gpumon.analysis.evidence import DeviceEvidence, Evidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    least,
    outcome,
    without_devices,
)
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import (
    Span,
    io_tracks,
    is_mostly_known,
    job_devices,
    job_processes,
    link_tracks,
    power_at,
    seconds_of,
    why_missing,
    window_of,
)
from gpumon.model.lines import Line, word
from gpumon.model.units import clock_text

_MIB = 1 << 20
_EARLIER_S = 600.0
_HEALTHY_S = 300.0


class _Still(NamedTuple):
    """A device that stands still while it says to be busy."""

    device: DeviceEvidence
    span: Span
    power_w: float
    power_before_w: float | None  # of its own earlier work; None where there was none
    links_known: bool


def suspected_hang(evidence: Evidence) -> Outcome:
    """suspected-hang: for 5 min all busy GPUs are at 99 % and stand still. Live, several GPUs.

    Busy ≥ 99 with a deviation below 1; power's deviation below 3 W, and a power fraction < 0.35 or
    less than 60 % of the 10 min before; PCIe and NVLink below 1 % of before; job I/O about 0;
    device memory constant. Other ranks at 0 % fit the pattern (nccl#1033).

    Guards: power, memory and busy must be known, and all that is known must agree; one long kernel
    looks alike, so without a healthy window of 5 min before confidence is low, without link
    counters medium; a MIG instance's power is not its own → not evaluable.

    Source: nccl#968 (70 W), horovod#3611 (40 to 47 W of 250 W); the numbers are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if len(devices) < 2:
        return []
    recent = Span(
        evidence.count - evidence.bins(evidence.site.threshold("suspected-hang.seconds", 300)),
        evidence.count,
    )
    if recent.first < 0:
        return []
    unknown = {}
    still: list[_Still] = []
    for device in devices:
        missing = [
            name
            for name in ("busy_percent", "power_w", "mem_used_bytes")
            if not is_mostly_known(device.track(name), recent)
        ]
        if missing or power_at(device, 0.35) is None:
            unknown[device.label] = why_missing(device, *missing) if missing else "no power limit"
        elif (device.track("busy_percent").average(*recent) or 0.0) >= 1:  # others wait at 0 %
            one = _still(evidence, device, recent)
            if one is None:
                return []
            still.append(one)
    if unknown or not still:
        return outcome([], unknown)
    return [_finding(evidence, still, len(devices))]


def _still(evidence: Evidence, device: DeviceEvidence, recent: Span) -> _Still | None:
    busy, power = device.track("busy_percent"), device.track("power_w")
    memory = device.track("mem_used_bytes").known(*recent)
    load, watts = busy.known(*recent), power.known(*recent)
    if fmean(load) < 99 or pstdev(load) >= 1 or pstdev(watts) >= 3:
        return None
    if max(memory) - min(memory) > _MIB:
        return None
    mean_w = fmean(watts)
    span = Span(_still_since(device, recent.first, mean_w), recent.last)
    before = Span(max(0, span.first - evidence.bins(_EARLIER_S)), span.first)
    before_w = _healthy(evidence, device, before)
    links = link_tracks(device)
    if not all(_is_quiet(track, recent, before) for track in links):
        return None
    if any(
        (track.average(*recent) or 0.0) > _MIB / 10 for track in io_tracks(evidence, device.node)
    ):
        return None
    dropped = before_w is not None and mean_w < 0.6 * before_w
    if not dropped and mean_w >= (power_at(device, 0.35) or 0.0):
        return None
    return _Still(device, span, mean_w, before_w, bool(links))


def _still_since(device: DeviceEvidence, first: int, power_w: float) -> int:
    """Back from `first` as long as it was as busy, at the same power."""
    busy, power = device.track("busy_percent").mean, device.track("power_w").mean
    while first > 0 and busy[first - 1] >= 99 and abs(power[first - 1] - power_w) < 9:
        first -= 1
    return first


def _healthy(evidence: Evidence, device: DeviceEvidence, before: Span) -> float | None:
    """Mean power before, where at least 5 min of work are known."""
    active = [share for share in device.active.known(*before) if share > 0]
    if len(active) * evidence.bin_s < _HEALTHY_S:
        return None
    return device.track("power_w").average(*before)


def _is_quiet(track: Track, recent: Span, before: Span) -> bool:
    """Below 1 % of before; without a before, below 1 MiB/s."""
    now, earlier = track.average(*recent), track.average(*before)
    if now is None:
        return True
    return now <= (0.01 * earlier if earlier else _MIB)


def _finding(evidence: Evidence, still: Sequence[_Still], count: int) -> Finding:
    devices = [each.device for each in still]
    watts = fmean(each.power_w for each in still)
    befores = [each.power_before_w for each in still if each.power_before_w is not None]
    before_w = fmean(befores) if befores else None
    spans = [each.span for each in still]
    seconds = seconds_of(evidence, [max(spans, key=lambda span: span.first)])
    was = f" (was {before_w:.0f} W)" if before_w is not None else ""
    links = ", no PCIe/NVLink traffic" if all(each.links_known for each in still) else ""
    pids = dict.fromkeys(p.facts.pid for each in devices for p in job_processes(each))
    others = f"; the other {count - len(devices)} at 0 %" if len(devices) < count else ""
    what = f"{gpus_text(evidence, devices)} at 100 % but {watts:.0f} W{was}{links}"
    return finding(
        evidence, devices, spans,
        id="suspected-hang", level="critical",
        confidence=least("high" if befores else "low", "high" if links else "medium"),
        title=f"{what}: it may hang",
        text=f"{what} for {clock_text(seconds)}{others}",
        numbers={"power_w": watts, "power_before_w": before_w, "seconds": seconds},
        actions=(*(Action("shell", Line("py-spy dump --pid {}", word("pid", str(pid))))
                   for pid in list(pids)[:4]),
                 Action("export", Line("export NCCL_DEBUG=INFO TORCH_NCCL_ASYNC_ERROR_HANDLING=1"),
                        text="In the next run; and lower the process group's timeout.")),
        wasted_s=sum(
            window_of(evidence, each.span)[1] - window_of(evidence, each.span)[0] for each in still
        ),
    )  # fmt: skip


RULES = (Rule("suspected-hang", suspected_hang, report=False),)
