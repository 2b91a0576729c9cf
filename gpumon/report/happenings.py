"""What happened when: marks, Xids, memory errors, GPUs that were lost, hung or throttled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from math import inf

from gpumon.analysis.rules.faults import is_certain, xid_text, xids_of
from gpumon.analysis.rules.instant import SLOWING
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import Span, job_devices, window_of
from gpumon.analysis.summary import marks_of
from gpumon.model.sample import Event
from gpumon.model.units import plural
from gpumon.report.model import Happening

#: level and words of a device's state
_STATES = {
    "lost": ("critical", "dropped off the bus"),
    "hung": ("warning", "the driver did not respond"),
    "error": ("warning", "the driver reported an error"),
    "well": ("info", "the driver responds again"),
}
#: a bucket in which a reason was set in so many of the ticks is throttled
_THROTTLED_SHARE = 0.1
#: s; throttled stretches that are closer are one, and shorter ones are left to the charts
_NEAR_S, _LEAST_S = 60.0, 60.0


def happenings(run: RunData) -> tuple[Happening, ...]:
    """By time, those without one last; what one GPU did again and again is one."""
    found = [Happening(time, "", f"mark: {text}", "info", "mark") for time, text in marks_of(run)]
    for device in job_devices(run):
        own = sorted((*_of_device(device), *_throttled(run, device)), key=_time)
        for _, group in groupby(own, key=lambda each: each.text):
            found.append(_together(list(group)))
    return tuple(sorted(found, key=_time))


def _together(same: Sequence[Happening]) -> Happening:
    lasted = [each.duration_s for each in same if each.duration_s is not None]
    return replace(same[0], count=len(same), duration_s=sum(lasted) if lasted else None)


def _time(each: Happening) -> float:
    return inf if each.time is None else each.time


def _of_device(device: DeviceData) -> Iterator[Happening]:
    for event in device.xids:
        (xid,) = xids_of([event.text])
        level = "critical" if is_certain([], [xid]) else "warning"
        yield Happening(event.time, device.label, xid_text(xid), level, "xid")
    for event in device.states:
        level, text = _state(event)
        kind = "ecc" if event.kind == "ecc" else "state"
        yield Happening(event.time, device.label, text, level, kind)
    errors = device.counters.get("ecc_uncorrected")
    if errors and not any(event.kind == "ecc" for event in device.states):  # as of older recordings
        yield Happening(None, device.label, _errors_text(f"{errors:.0f}"), "critical", "ecc")


def _throttled(run: RunData, device: DeviceData) -> Iterator[Happening]:
    """Stretches in which the clocks were lowered for a reason that costs speed."""
    by_words: dict[str, list[Sequence[float]]] = {}
    for reason, words in SLOWING.items():
        by_words.setdefault(words, []).append(device.throttle.get(reason, Track()).mean)
    for words, reasons in by_words.items():
        shares = [max(0.0, *each) for each in zip_longest(*reasons, fillvalue=0.0)]
        for span in _stretches(run, shares):
            begin, end = window_of(run, span)
            if end - begin >= _LEAST_S:
                text = f"throttled ({words})"
                yield Happening(
                    begin, device.label, text, "warning", "throttle", duration_s=end - begin
                )


def _stretches(run: RunData, shares: Sequence[float]) -> list[Span]:
    found: list[Span] = []
    for at, share in enumerate(shares):
        if not share >= _THROTTLED_SHARE:
            continue
        if found and (at - found[-1].last) * run.bin_s < _NEAR_S:
            found[-1] = Span(found[-1].first, at + 1)
        else:
            found.append(Span(at, at + 1))
    return found


def _state(event: Event) -> tuple[str, str]:
    """Level and words."""
    if event.kind == "ecc":
        return "critical", _errors_text(event.text)
    level, words = _STATES.get(event.text, ("info", event.text))
    detail = event.data.get("detail")
    return level, f"{words}: {detail}" if detail else words


def _errors_text(count: str) -> str:
    number = int(count) if count.isascii() and count.isdecimal() and len(count) < 10 else 1
    return plural(number, "uncorrectable memory error")
