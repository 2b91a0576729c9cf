"""What findings on unused GPU time have in common: how sure they are, how they weigh, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.accounting import used
from gpumon.analysis.activity import between_polls
from gpumon.analysis.finding import LEVELS, NotEvaluable
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.rightsize.proof import is_whole
from gpumon.analysis.rules.phrasing import least, missing, unread
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import ACTIVITY, is_server, job_devices
from gpumon.analysis.thresholds import Percent, Phases, Seconds, of_site
from gpumon.model.units import plural

#: what follows from a GPU that is not used
CONSEQUENCES = (
    "gpu-allocated-no-process", "low-sm", "low-power-high-busy", "no-tensor", "gpu-mem-headroom",
    "smaller-gpu",
)  # fmt: skip


class IdleTime(NamedTuple):
    seconds: Seconds = 600  # in all
    stretch_s: Seconds = 120  # each between work
    short_s: Seconds = 40  # or each of these, where they are so much of the run:
    short_percent: Percent = 25
    percent: Percent = 5  # of the run; information below what `phases` says
    server_s: Seconds = 1800  # a server may wait so long for a request


def idle_level(run: RunData, idle_s: float, longest_s: float, wasted_s: float) -> str:
    """By its share of the run, and by what it cost; "" where it is too little to be told."""
    t, phases = of_site(run.site, "idle-time", IdleTime), of_site(run.site, "phases", Phases)
    costs = wasted_s >= phases.gpu_hours * 3600
    if idle_s < t.seconds or (idle_s < t.percent / 100 * run.elapsed_s and not costs):
        return ""
    waits = longest_s < t.server_s and any(map(is_server, job_devices(run)))
    much = costs or idle_s >= phases.least_percent / 100 * run.elapsed_s
    return "warning" if much and not waits else "info"


def level_of_part(run: RunData, level: str) -> str:
    """Of a job that has ended information where samples begin late or end early, unless accounting
    shows no use either: the GPUs may have worked before or after. While it runs, and where nobody
    knows that it ended, what was observed can still be changed, and weighs as it does live.
    """
    has_ended = run.job is not None and run.job.has_ended
    if run.live or not has_ended or (run.coverage.from_start and run.coverage.to_end):
        return level
    told = used(run.job) if run.job is not None else None
    shown = told is not None and 0 in (told.gpu_peak_percent, told.gpu_busy_percent)
    return max(level, "warning" if shown else "info", key=LEVELS.index)


def not_seen(run: RunData, device: DeviceData) -> NotEvaluable:
    """Why it is unknown whether the device worked."""
    if between_polls(run, device).unknown:
        every = run.coverage.interval_s or 0.0
        return missing(device, f"busy was only polled every {every:g} s")
    return unread(device, *ACTIVITY)


def polled_confidence(devices: Sequence[DeviceData]) -> str:
    """In idle time: on polling alone medium."""
    return "medium" if any(each.polled for each in devices) else "high"


def whole_run_confidence(run: RunData, devices: Sequence[DeviceData]) -> str:
    """Of a finding on the whole run (findings, 11): low on a part of it, medium by polling."""
    whole = is_whole(run) and (run.live or run.coverage.to_end)
    return least("high" if whole else "low", polled_confidence(devices))


def work_text(run: RunData) -> str:
    """`about 0.3 GPUs' worth of work on 4 GPUs`; "" where that is not known."""
    worth = ledger_of(run).worth()
    if worth is None:
        return ""
    about = f"about {worth:.1f}" if worth >= 0.05 else "less than 0.1"
    return f"{about} GPUs' worth of work on {plural(len(job_devices(run)), 'GPU')}"


def polling_text(run: RunData, devices: Sequence[DeviceData]) -> str:
    if not any(each.polled for each in devices):
        return ""
    period = run.coverage.interval_s
    every = f" every {period:g} s" if period else ""
    return f"busy was only polled{every}, so short work may be missed"


def joined(*parts: str) -> str:
    return "".join(f"; {part}" for part in parts if part)
