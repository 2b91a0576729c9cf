"""GPUs that wait for each other's messages."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, to_write
from gpumon.analysis.kinds import learns
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import finding, missing, percent, unread
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    Span,
    busy_track,
    capability,
    is_server,
    job_devices,
    mean_of,
    power_at,
    seconds_of,
    sustained,
    warm_up_end,
)
from gpumon.analysis.thresholds import Percent, Seconds, Share
from gpumon.model.lines import Line
from gpumon.model.reading import number
from gpumon.model.units import age_text

#: GB/s of a PCIe lane in one direction, after encoding, by generation (PCI-SIG)
_PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: GB/s of an NVLink in one direction, by compute capability (NVIDIA's architecture papers)
_NVLINK_GB_PER_S = ((10.0, 50.0), (7.0, 25.0), (6.0, 20.0))


class CommBound(NamedTuple):
    seconds: Seconds = 600
    busy_percent: Percent = 90
    power_fraction: Share = 0.5
    link_percent: Percent = 30  # of the peak of one direction


@rule(
    "comm-bound",
    title="all GPUs busy at under {power_fraction} of the power limit, with high link traffic",
    why="The GPUs spend their time exchanging data, so each further GPU adds less.",
    remedy="use fewer GPUs, or GPUs with NVLink on one node; accumulate gradients",
    needs=(gpus,),
    folds=("low-power-high-busy", "low-sm"),
)
def comm_bound(run: RunData, t: CommBound) -> Checked:
    """Of several GPUs. Links: NVLink; or PCIe in both directions, since loading goes in one.

    Guards: low SM activity alone proves no communication (GPUs with small kernels of their own look
    the same); servers with tensor parallelism are chatty by nature: info. Power (MIG) or links not
    known → not evaluable.

    Source: Chameleon's DDP runs (4 GPUs at 1.01 to 1.29 times one); the thresholds are proposed.
    """
    devices = job_devices(run)
    if len(devices) < 2:
        return None
    first = max(warm_up_end(run, each) for each in devices)
    busy = [busy_track(each) for each in devices]
    together = sustained(run, t.seconds, lambda means: min(means) >= t.busy_percent, busy, first)
    if not together.spans:
        return None if together.known else [unread(each, "busy_percent") for each in devices]
    unknown = []
    for device in devices:
        low = _power_is_low(device, together.spans, t)
        link = link_share(device, together.spans)
        talks = None if link is None else link >= t.link_percent / 100
        if low is None or talks is None:
            why = "power" if low is None else "the traffic of its links is"
            unknown.append(missing(device, f"{why} not known"))
        elif not (low and talks):
            return None
    return unknown or _comm_bound(run, devices, together.spans)


def _power_is_low(device: DeviceData, spans: Sequence[Span], t: CommBound) -> bool | None:
    power = mean_of(device.track("power_w"), spans)
    limit = power_at(device, t.power_fraction)
    return None if power is None or limit is None else power < limit


def link_share(device: DeviceData, spans: Sequence[Span]) -> float | None:
    """Mean traffic of the fuller link as a part of its peak in one direction; None: not known.

    Of PCIe the lesser direction: messages go both ways, loading only to the device.
    """
    facts = device.device.facts
    lane = _PCIE_LANE_GB_PER_S.get(int(number(facts.get("pcie_gen_max")) or 0), 0.0)
    pcie = lane * (number(facts.get("pcie_width_max")) or 0.0)
    links = number(facts.get("nvlink_links")) or 0.0
    of_link = next((rate for cc, rate in _NVLINK_GB_PER_S if (capability(device) or 0) >= cc), 0.0)
    shares = []
    for kind, peak, of in (("pcie", pcie, min), ("nvlink", links * of_link, max)):
        rates = [mean_of(device.track(f"{kind}_{way}_bytes_per_s"), spans) for way in ("tx", "rx")]
        known = [rate for rate in rates if rate is not None]
        if known and peak:
            shares.append(of(known) / (peak * 1e9))
    return max(shares) if shares else None


def _comm_bound(run: RunData, devices: Sequence[DeviceData], spans: Sequence[Span]) -> Finding:
    busy = fmean(mean_of(busy_track(each), spans) or 0.0 for each in devices)
    power = fmean(mean_of(each.track("power_w"), spans) or 0.0 for each in devices)
    shares = [share for each in devices if (share := link_share(each, spans)) is not None]
    tracks = [each.track("sm_active_percent") for each in devices]
    sms = [sm for each in tracks if (sm := mean_of(each, spans)) is not None]
    parts = [f"busy {percent(busy)}"]
    parts += [f"links at {percent(max(shares) * 100)} of their peak"] if shares else []
    parts += [f"SM {percent(fmean(sms))}"] if sms else []
    what = ", ".join([*parts, f"{power:.0f} W each"])
    has_nvlink = any(number(each.device.facts.get("nvlink_links")) for each in devices)
    fewer = "Use fewer GPUs." if has_nvlink else "Use fewer GPUs, or GPUs with NVLink on one node."
    accumulate = Action(
        "code",
        Line("gradient_accumulation_steps=4"),
        text="Exchange gradients less often: accumulate them over several steps (a larger batch).",
    )
    compare = Line("gpumon compare RUN_ON_1_GPU THIS_RUN")
    return finding(
        run,
        "info" if any(map(is_server, devices)) else "warning",
        what,
        head=f"{len(devices)} GPUs mostly exchange data: ",
        rest=f" for {age_text(seconds_of(run, spans))}",
        devices=devices,
        spans=spans,
        confidence="medium",
        numbers={
            "busy_percent": busy,
            "power_w": power,
            "link_percent": max(shares) * 100 if shares else None,
            "sm_active_percent": fmean(sms) if sms else None,
        },
        actions=(
            accumulate if learns(run, devices) else None,
            to_write(fewer),
            Action(
                "shell", compare, text="Compare with a run on one GPU before requesting several."
            ),
        ),
    )
