"""Single GPUs that worked, and then idle for long while others work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.idle import idle_alone
from gpumon.analysis.rules.gpu_idle_stretch import IdleTime, idle_level
from gpumon.analysis.rules.phrasing import ages_text, alike, finding, gpus_text
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import Span, job_devices, job_processes, seconds_of, window_of
from gpumon.analysis.thresholds import of_site
from gpumon.model.lines import EMPTY
from gpumon.model.units import age_text

#: s between the end of a process and that of its GPU's work
_TOGETHER_S = 180.0
#: GPUs of which each is told when it was idle
_MOST_TOLD = 4
_TEXT = (
    "Find out from the job's output why there was no work there. Run what uses fewer GPUs, and "
    "each of independent runs, as a job of its own."
)


class _Alone(NamedTuple):
    """A device that was idle while others worked."""

    device: DeviceData
    spans: list[Span]
    idle_s: float
    ended: bool  # with the last process of the job there


def alone(run: RunData, devices: Iterable[DeviceData], least_s: float) -> Finding | None:
    """Of these devices, which all worked at some time; live those that are idle now.

    One finding: their work ended, or paused, at different times perhaps.
    """
    found = [one for each in devices if (one := _alone(run, each, least_s)) is not None]
    if not found:
        return None
    t = of_site(run.site, "idle-time", IdleTime)
    wasted_s = sum(each.idle_s for each in found)
    most_s = max(each.idle_s for each in found)
    longest_s = max(seconds_of(run, [span]) for each in found for span in each.spans)
    level = idle_level(run, t, most_s, longest_s, wasted_s)
    if not level or most_s < t.seconds:
        return None
    them = [each.device for each in found]
    idle = ages_text(each.idle_s for each in found)
    ended = ""
    if all(each.ended for each in found):
        ended = "; their processes ended then" if len(found) > 1 else "; its process ended then"
    return finding(
        run,
        level,
        f"{gpus_text(run, them)} idle for {idle} of {age_text(run.elapsed_s)} while others "
        + ("work" if run.live else "worked"),
        rest=f" ({wasted_s / 3600:.1f} GPU-h){_when(run, found)}{ended}",
        devices=them,
        spans=[span for each in found for span in each.spans],
        confidence="medium" if any(each.polled for each in them) else "high",
        numbers={"gpus": len(job_devices(run)), "gpus_idle": len(them), "idle_s": most_s},
        actions=[Action("shell", EMPTY, text=_TEXT)],
        wasted_s=wasted_s,
    )


def _alone(run: RunData, device: DeviceData, least_s: float) -> _Alone | None:
    spans = idle_alone(run, device, least_s)
    if run.live:
        spans = [each for each in spans if each.last >= run.count - 1]
    if not spans:
        return None
    active = device.active.mean
    bins = sum(active[first:last].count(0.0) for first, last in spans)
    return _Alone(device, spans, bins * run.bin_s, _ended(run, device, spans[-1]))


def _ended(run: RunData, device: DeviceData, span: Span) -> bool:
    """The last process of the job there ended as its work did."""
    since, _ = window_of(run, span)
    known = job_processes(device)
    return bool(known) and all(each.ended and each.last <= since + _TOGETHER_S for each in known)


def _when(run: RunData, found: Sequence[_Alone]) -> str:
    """From when to when each was idle; "" where that would be a list."""
    groups = alike(found, lambda each: _times(run, each))
    if len(groups) > _MOST_TOLD:
        return ""
    names = [f"{gpus_text(run, [each.device for each in group])} " for group in groups]
    if len(groups) == 1:
        names = [""]
    return "; " + ", ".join(name + _times(run, group[0]) for name, group in zip(names, groups))


def _times(run: RunData, one: _Alone) -> str:
    """`since 2 h 00 min after the start`."""
    if len(one.spans) > 1:
        return "several times"
    start, end = (at - run.start for at in window_of(run, one.spans[0]))
    if start < _TOGETHER_S:
        return f"for the first {age_text(end)}"
    if run.elapsed_s - end < _TOGETHER_S:
        return f"since {age_text(start)} after the start"
    return f"from {age_text(start)} to {age_text(end)} after the start"
