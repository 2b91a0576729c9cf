"""What happened when: marks, Xids, memory errors, GPUs that were lost or did not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import inf

from gpumon.analysis.rules.faults import is_certain, xid_text, xids_of
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import job_devices
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


def happenings(run: RunData) -> tuple[Happening, ...]:
    """By time, those without one last; what one GPU did again and again is one."""
    found = [Happening(time, "", f"mark: {text}", "info") for time, text in marks_of(run)]
    for device in job_devices(run):
        own = sorted(_of_device(device), key=_time)
        for _, group in groupby(own, key=lambda each: each.text):
            first, *more = group
            found.append(replace(first, count=1 + len(more)))
    return tuple(sorted(found, key=_time))


def _time(each: Happening) -> float:
    return inf if each.time is None else each.time


def _of_device(device: DeviceData) -> Iterator[Happening]:
    for event in device.xids:
        (xid,) = xids_of([event.text])
        level = "critical" if is_certain([], [xid]) else "warning"
        yield Happening(event.time, device.label, xid_text(xid), level)
    for event in device.states:
        level, text = _state(event)
        yield Happening(event.time, device.label, text, level)
    errors = device.counters.get("ecc_uncorrected")
    if errors and not any(event.kind == "ecc" for event in device.states):  # as of older recordings
        yield Happening(None, device.label, _errors_text(f"{errors:.0f}"), "critical")


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
