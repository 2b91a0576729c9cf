"""What is wrong, or worth knowing, in one line each; the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.fields import throttle_words
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.model.view import DeviceView
from gpumon.tui.lines import Row, row_width
from gpumon.tui.state import ViewState
from gpumon.tui.summaries import STRAGGLER_NODES
from gpumon.tui.values import lost_detail
from gpumon.tui.views.request import (
    ASCII_SIGNS,
    FRAMEWORK_NAMES,
    SIGNS,
    device_name,
    names_text,
)

if TYPE_CHECKING:
    from gpumon.analysis.finding import Action
    from gpumon.tui.judging import Verdict

_RANK = {"bad": 0, "attention": 1, "unknown": 2, "note": 3}

#: clock event reasons that cost speed, in words for people; idle and full power are normal
_SLOWED = {
    "hw_slowdown": "hardware slowdown",
    "sw_thermal": "too hot (software)",
    "hw_thermal": "too hot (hardware)",
    "hw_power_brake": "power brake",
    "low_reliability": "voltage limit",
}


_IDLE_AFTER_S = 300.0  # findings.md, gpu-never-used

#: what makes the real need visible in the next run (findings.md section 9)
_RESERVATION_ACTIONS = {
    "tf": "export TF_FORCE_GPU_ALLOW_GROWTH=true",
    "jax": "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "vllm": "--gpu-memory-utilization sets it",
}


_LEVELS = {"critical": "bad", "warning": "attention", "info": "note"}
#: findings in whose place, before they are sure, a note says what was idle so far
_IDLE = frozenset((
    "gpu-never-used", "gpu-allocated-no-process", "gpus-partly-idle", "gpu-idle-now",
))  # fmt: skip
#: findings that a note says sooner, in the words of this moment
_SEEN_AT_ONCE = frozenset((
    "gpu-health", "gpu-unreadable", "data-stale", "straggler", "throttle-thermal",
))  # fmt: skip


_WELL: dict[str, float] = {}


class Note(NamedTuple):
    level: str  # bad, attention, unknown, note
    text: str
    action: str = ""


def notes(state: ViewState) -> list[Note]:
    """Everything to say about the nodes and devices shown."""
    found: list[Note] = []
    about: list[tuple[Note, str]] = []
    several = len(state.nodes) > 1
    facts = state.facts()
    for node in state.nodes:
        status = node.status(state.now)
        is_over = status.state in ("lost", "ended") and not state.has_ended
        lacks = status.state == "live" and status.source == "replay"  # a part of the recording
        if status.detail and (is_over or lacks):
            level = {"lost": "bad", "live": "attention"}.get(status.state, "note")
            about.append((Note(level, clean(status.detail)), node.name))
        if node.header is not None and node.header.notes:
            devices = bool(node.devices())
            hint = "" if devices else "gpumon demo shows how it looks with GPUs"
            for text in node.header.notes:  # without a driver or a device, that is no trouble
                level = "note" if not devices and text.startswith("No ") else "attention"
                about.append((Note(level, text, hint), node.name if several else ""))
        if left_out := node.left_out():
            about.append((Note("attention", left_out), node.name if several else ""))
        failures = facts[node].failures
        about += [(Note("attention", text), node.name if several else "") for text in failures]
    found += _recording_notes(state)
    found += _folded(about)
    found += _straggler_notes(state)
    for node, device in state.devices:
        troubles = facts[node].troubles.get(device.key, _WELL)
        if troubles or device.state is not None or device.xid is not None:
            name = device_name(node, device, several=several)
            found += _device_notes(device, name, troubles, state.now)
    found += _mark_notes(state)
    verdict = state.verdict
    if verdict is not None:
        found += [Note("attention", text) for text in verdict.left_out]
        found += _finding_notes(verdict)
    else:  # until the first verdict, what can be seen at once
        found += _reservation_notes(state, several=several)
    if verdict is None or not any(each.id in _IDLE for each in verdict.findings):
        found += _idle_notes(state, several=several)
    return sorted(found, key=lambda note: _RANK[note.level])


def _recording_notes(state: ViewState) -> list[Note]:
    """Why nothing is recorded: the reason first, which a narrow screen must not cut off."""
    if not state.not_recorded:
        return []
    where, _, why = next(iter(state.not_recorded.values())).rpartition(": ")
    nodes = len(state.not_recorded)
    which = f" ({nodes} nodes)" if nodes > 1 else ""
    return [Note("bad", f"not recorded{which}: {clean(why)} ({clean(where)})")]


def _finding_notes(verdict: Verdict) -> list[Note]:
    """The findings in their rank, each with the first line to change."""
    found = []
    for each in verdict.findings:
        if each.id in _SEEN_AT_ONCE:
            continue
        action = _line(each.actions[0]) if each.actions else ""
        found.append(Note(_LEVELS[each.level], each.title.rstrip("."), action))
    return found


def _line(action: Action) -> str:
    """What to do, in the few words that fit behind a title."""
    if action.kind == "staff":
        return "tell the staff"
    if action.before:
        return f"{action.before} → {action.after}" if action.after else f"without {action.before}"
    return action.after or action.text.partition(",")[0].rstrip(".:")


def _folded(about: list[tuple[Note, str]]) -> list[Note]:
    """The same note of several nodes once, with their names before it."""
    names: dict[Note, list[str]] = {}
    for note, name in about:
        names.setdefault(note, []).append(name)
    return [
        note._replace(text=f"{names_text(who)}: {note.text}" if all(who) else note.text)
        for note, who in names.items()
    ]


def _straggler_notes(state: ViewState) -> list[Note]:
    """Nodes that do much less than the others; the Nodes screen has them all, first."""
    if len(state.nodes) < STRAGGLER_NODES:
        return []
    slow = [summary for summary in state.summaries() if "below the median" in summary.remark]
    if not slow:
        return []
    names = names_text([summary.node.name for summary in slow])
    what = slow[0].remark if len(slow) == 1 else "much less busy than the median"
    return [Note("attention", f"{names}: {what}", "4 shows the nodes")]


def _mark_notes(state: ViewState) -> list[Note]:
    """The latest mark of each node, while it is in the plots' time."""
    found = []
    for node in state.nodes:
        since = state.now - node.clock_offset_s - state.span_s
        marks = [event for event in node.events(since) if event.kind == "mark"]
        if marks:
            ago = age_text(state.now - node.clock_offset_s - marks[-1].time)
            found.append(Note("note", f"mark: {marks[-1].text}, {ago} ago"))
    return found


def _idle_notes(state: ViewState, *, several: bool) -> list[Note]:
    """Devices that never worked while they were watched, others having worked or not.

    After 300 s, as `gpu-never-used` of the findings. Never without a reading: MIG and a lost device
    say nothing here.
    """
    idle = []
    watched_s = 0.0
    facts = state.facts()
    for node, device in state.devices:
        since = facts[node].idle_since.get(device.key)
        watched = state.now - node.clock_offset_s - since if since is not None else 0.0
        if watched >= _IDLE_AFTER_S and device.state is None:
            idle.append(device_name(node, device, several=several))
            watched_s = max(watched_s, watched)
    if not idle:
        return []
    names = ", ".join(idle) if len(idle) <= 4 else f"{len(idle)} of {len(state.devices)} GPUs"
    level = "attention" if state.nodes and state.job_of(state.nodes[0]) else "note"
    action = "ask for fewer GPUs" if level == "attention" else ""
    return [Note(level, f"{names} did nothing in the {age_text(watched_s)} watched", action)]


def _reservation_notes(state: ViewState, *, several: bool) -> list[Note]:
    """Memory that a framework took ahead of need, so that it is not read as a need."""
    by_framework: dict[str, list[str]] = {}
    facts = state.facts()
    for node, device in state.devices:
        framework = facts[node].frameworks.get(device.key, "")
        if framework in _RESERVATION_ACTIONS:
            name = device_name(node, device, several=several)
            by_framework.setdefault(framework, []).append(name)
    found = []
    for framework, names in by_framework.items():
        where = ", ".join(names) if len(names) <= 3 else f"{len(names)} GPUs"
        text = f"{FRAMEWORK_NAMES[framework]} reserves memory on {where}: what it needs is unknown"
        found.append(Note("unknown", text, _RESERVATION_ACTIONS[framework]))
    return found


def _device_notes(
    device: DeviceView, name: str, troubles: dict[str, float], now: float
) -> list[Note]:
    found = []
    state = device.state
    if state is not None:
        ago = age_text(now - state.since)
        if state.state == "lost":
            why = f" ({lost_detail(state)})" if lost_detail(state) else ""
            found.append(
                Note("bad", f"{name} is lost since {ago}{why}", "tell the staff; other GPUs go on")
            )
            return found
        if state.state == "hung":
            call = f" in {state.detail}" if state.detail else ""
            found.append(Note("bad", f"{name}: the driver has not answered for {ago}{call}"))
            return found
        found.append(Note("attention", f"{name}: {state.detail or state.state}"))
    mask = int(troubles.get("throttle_mask", 0))
    slowed = [_SLOWED[word] for word in throttle_words(mask) if word in _SLOWED]
    if slowed:
        found.append(Note("attention", f"{name} runs slower: {', '.join(slowed)}"))
    if "ecc_uncorrected" in troubles:
        found.append(
            Note("bad", f"{name}: {troubles['ecc_uncorrected']:.0f} uncorrectable memory errors",
                 "results may be wrong; tell the staff")
        )  # fmt: skip
    if "remap_failed" in troubles:
        found.append(Note("bad", f"{name}: memory row remapping failed", "tell the staff"))
    if "remap_pending" in troubles or "retired_pending" in troubles:
        found.append(Note("attention", f"{name}: memory repair waits for a reset of the GPU"))
    if "recovery_action" in troubles:
        found.append(Note("bad", f"{name}: the driver asks for a reset", "tell the staff"))
    if device.xid is not None:
        ago = age_text(now - device.xid.time)
        found.append(
            Note("attention", f"{name}: the driver reported Xid {device.xid.text} {ago} ago")
        )
    return found


def note_rows(state: ViewState, width: int, most: int) -> list[Row]:
    """At most `most` rows; the last says how many more there are."""
    found = notes(state)
    if not found or most <= 0:
        return []
    signs = ASCII_SIGNS if state.glyphs == "ascii" else SIGNS
    rows: list[Row] = []
    spare = most - len(found)
    for note in found[:most]:
        role = "dim" if note.level == "note" else note.level
        row: Row = [
            (f" {signs[note.level]} ", role),
            (note.text, "" if note.level == "bad" else role),
        ]
        if note.action:
            row.append((f"  {note.action}", "key"))
        if note.action and spare > 0 and row_width(row) > width:  # the action goes below
            spare -= 1
            rows += [row[:-1], [(" ", ""), row[-1]]]
        else:
            rows.append(row)
    if len(found) > most:
        text, role = rows[-1][-1]
        rows[-1][-1] = (f"{text}   +{len(found) - most} more", role)
    return rows
