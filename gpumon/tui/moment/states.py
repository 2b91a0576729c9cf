"""States of devices and streams, in words: what is so now, whatever rules find."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.model.view import LEFT, DeviceView, Status


class _Words(NamedTuple):
    """One state of a device. {ago}: for how long; {why}, {in_call}: what is known, or nothing."""

    level: str  # bad, attention, dim
    title: str  # in the place of its numbers; "": it has some
    note: str  # behind its name; "": no line about it
    action: str
    brief: str  # behind its name in the line of its node


_DEVICE = {
    "left": _Words("dim", "no longer part of the job", "", "", ""),
    "gone": _Words("bad", "lost: the driver no longer lists it", "", "", " lost{why}"),
    "lost": _Words(
        "bad", "lost{detail} · {ago} ago", " dropped off the bus {ago} ago{why}",
        "Report the node; other GPUs are unaffected", " lost{why}",
    ),
    "hung": _Words(
        "bad", "hung for {ago}", " hung: the driver has not responded for {ago}{in_call}", "",
        " hung",
    ),
    "error": _Words("attention", "", ": {text}", "", ""),
}  # fmt: skip
_STREAM = {"connecting": "unknown", "stale": "bad", "lost": "bad"}  # else all is well


def kind_of(device: DeviceView) -> str:
    """`left`, `gone`, `lost`, `hung`, `error`; "" for one that is well."""
    if device.left:
        return "left"
    if device.gone:
        return "gone"
    return device.state.state if device.state is not None else ""


def is_well(device: DeviceView) -> bool:
    return kind_of(device) == ""


def is_silent(device: DeviceView) -> bool:
    """It has no numbers: lost, hung, or the job's no more."""
    return kind_of(device) in ("left", "gone", "lost", "hung")


def lost_detail(device: DeviceView) -> str:
    """Why it is lost (`Xid 79`); "" if the driver only repeats it ("GPU is lost")."""
    detail = device.state.detail if device.state is not None else ""
    return "" if "lost" in detail.lower() else detail


def title(device: DeviceView, now: float) -> tuple[str, str] | None:
    """(words, level) in the place of a device's numbers; None where it has some."""
    words = _DEVICE.get(kind_of(device))
    return (_filled(words.title, device, now), words.level) if words and words.title else None


def note(device: DeviceView, name: str, now: float) -> tuple[str, str, str] | None:
    """(level, words, what to do) of a device called `name`; None where there is nothing to say."""
    words = _DEVICE.get(device.state.state) if device.state is not None else None
    if words is None or not words.note:
        return None
    return words.level, name + _filled(words.note, device, now), words.action


def brief(kind: str, devices: list[DeviceView], who: str) -> str:
    """Of devices of one node in the same state: `GPU 7 lost (Xid 79)`."""
    whys = ", ".join(sorted({why for device in devices if (why := lost_detail(device))}))
    return who + _DEVICE[kind].brief.format(why=f" ({whys})" if whys else "")


def _filled(words: str, device: DeviceView, now: float) -> str:
    state = device.state
    detail = lost_detail(device)
    text = state.detail if state is not None else ""
    return words.format(
        ago=age_text(now - state.since) if state is not None else "",
        detail=f" {detail}" if detail else "",
        why=f" ({detail})" if detail else "",
        in_call=f" in {text}" if text else "",
        text=text or kind_of(device),
    )


def stream(status: Status, now: float) -> tuple[str, str]:
    """(level, words) of a node's stream, by its transport: `lost by ssh: connection refused`."""
    level = _STREAM.get(status.state, "")
    detail = clean(status.detail)
    if status.state == "stale":
        return level, detail or "stale"
    if status.state == LEFT:
        return level, f"{detail} ({age_text(now - status.since)} ago)"
    words = f"{status.state} by {status.source}" if status.source else status.state
    if status.state == "lost" and status.since > 0:
        words += f" {age_text(now - status.since)} ago"
    return level, f"{words}: {detail}" if detail else words
