"""What is wrong, or worth knowing, in one line each; the worst first."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from gpumon.analysis.rules.instant import KINDS, Remark, throttled_text, use_or_return
from gpumon.model.sample import NO_DEVICE, NO_DRIVER, NO_MODULE
from gpumon.model.text import clean
from gpumon.model.units import age_text
from gpumon.report.advice import Box
from gpumon.report.sentences import capital
from gpumon.tui.lines import Row, fit_row, row_width
from gpumon.tui.moment import Moment, states
from gpumon.tui.moment.remarks import LEVELS, label, node_of
from gpumon.tui.moment.summaries import remark_words
from gpumon.tui.parts.phrasing import (
    FRAMEWORK_NAMES,
    NAMED,
    device_name,
    devices_named,
    names_text,
    signs,
)
from gpumon.tui.picture import width_of

_ACTION_SHARE = 0.62  # of the width, in which findings stand at most before what to do
_DO_THIS = "Do this"
_RANK = {"bad": 0, "attention": 1, "unknown": 2, "note": 3, "good": 4}
_WARN = {"bad", "attention"}

_NOTHING_HERE = (NO_DRIVER, NO_MODULE, NO_DEVICE)


class Note(NamedTuple):
    level: str  # bad, attention, unknown, note, good
    text: str
    action: str = ""


def notes(moment: Moment) -> list[Note]:
    """All notes about the nodes and devices shown."""
    found: list[Note] = []
    about: list[tuple[Note, str]] = []
    several = len(moment.nodes) > 1
    facts = moment.facts()
    for node in moment.nodes:
        status = moment.status(node)
        is_over = status.state in ("lost", "ended") and not moment.has_ended
        lacks = status.state == "live" and status.source == "replay"  # a part of the recording
        if status.detail and (is_over or lacks):
            level = {"lost": "bad", "live": "attention"}.get(status.state, "note")
            about.append((Note(level, clean(status.detail)), node.name))
        if node.header is not None and node.header.notes:
            devices = bool(node.devices())
            is_bare = not devices and moment.job is None
            hint = "run gpumon demo to see a job with GPUs" if is_bare else ""
            for text in node.header.notes:  # without a driver or a device, that is no trouble
                level = "note" if not devices and text in _NOTHING_HERE else "attention"
                about.append((Note(level, text, hint), node.name if several else ""))
        texts = [facts[node].left_out, *facts[node].failures]
        about += [(Note("attention", text), node.name if several else "") for text in texts if text]
    if moment.silence is not None:
        found.append(Note("attention", clean(moment.silence.why)))
    found += _recording_notes(moment)
    found += _folded(about)
    found += _state_notes(moment, several=several)
    found += _remark_notes(moment, several=several)
    found += _mark_notes(moment)
    if moment.evaluation is not None:
        found += [Note("attention", text) for text in moment.evaluation.left_out]
    found += _finding_notes(moment)
    found += _answer(moment, found)
    return sorted(found, key=lambda note: _RANK[note.level])


def _recording_notes(moment: Moment) -> list[Note]:
    """Why nothing is recorded: the reason first, which a narrow screen must not cut off."""
    if not moment.not_recorded:
        return []
    first = next(iter(moment.not_recorded.values()))
    nodes = len(moment.not_recorded)
    which = f" ({nodes} nodes)" if nodes > 1 else ""
    where = f" ({clean(first.where)})" if first.where else ""
    return [Note("bad", f"not recorded{which}: {clean(first.why)}{where}")]


def _finding_notes(moment: Moment) -> list[Note]:
    """The findings in their rank, each with what to do that does not stand first."""
    box = moment.evaluation.box if moment.evaluation is not None else Box()
    return [
        Note(LEVELS[each.level], capital(each.title), next((s.brief for s in box.beside(each)), ""))
        for each in moment.standing.findings
    ]


def _answer(moment: Moment, found: list[Note]) -> list[Note]:
    """That there is no problem, or why nobody knows, where nothing above warns."""
    evaluation = moment.evaluation
    if evaluation is None or evaluation.verdict is None or {e.level for e in found} & _WARN:
        return []
    from gpumon.report.verdict import NONE, PROBLEM, unproblematic

    so_far = "" if moment.has_ended else " so far"
    sign, text = unproblematic(evaluation.verdict, so_far=so_far)
    answer = evaluation.verdict.answer
    is_said = answer == PROBLEM or (found and answer == NONE)
    return [] if is_said else [Note(sign, text.rstrip("."))]


def _folded(about: list[tuple[Note, str]]) -> list[Note]:
    """The same note of several nodes once, with their names before it."""
    names: dict[Note, list[str]] = {}
    for note, name in about:
        names.setdefault(note, []).append(name)
    return [
        note._replace(text=f"{names_text(who)}: {note.text}" if all(who) else note.text)
        for note, who in names.items()
    ]


def _mark_notes(moment: Moment) -> list[Note]:
    """The latest mark of each node, while it is in the plots' time."""
    found = []
    for node in moment.nodes:
        since = moment.now - node.clock_offset_s - moment.span_s
        marks = [event for event in node.events(since) if event.kind == "mark"]
        if marks:
            ago = age_text(moment.now - node.clock_offset_s - marks[-1].time)
            found.append(Note("note", f"mark: {marks[-1].text}, {ago} ago"))
    return found


def _state_notes(moment: Moment, *, several: bool) -> list[Note]:
    """Devices that do not answer."""
    found = []
    for node, device in moment.devices:
        if device.state is None:
            continue
        name = device_name(node, device, several=several)
        if (said := states.note(device, name, moment.now)) is not None:
            found.append(Note(*said))
    return found


#: what makes the real need visible in the next run (findings.md section 9)
_RESERVATION_ACTIONS = {
    "tf": "export TF_FORCE_GPU_ALLOW_GROWTH=true",
    "jax": "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "vllm": "Set it with --gpu-memory-utilization",
}


def _remark_notes(moment: Moment, *, several: bool) -> list[Note]:
    """The rules' immediate remarks, where no finding covers them."""
    if not moment.standing.unsaid:
        return []
    by_label = {label(*each): each for each in moment.devices}
    groups: dict[tuple[str, str], list[Remark]] = {}
    for each in moment.standing.unsaid:
        one = each.device if each.kind in ("hot", "slowed") else ""
        groups.setdefault((each.kind, each.detail or one), []).append(each)
    found = []
    for (kind, _), remarks in groups.items():
        names = [device_name(*by_label[each.device], several=several) for each in remarks]
        said = _WORDS[kind](moment, remarks, names) if kind in _WORDS else None
        if said is not None:
            found.append(Note(LEVELS[KINDS[kind].level], *said))
    return found


def _faulty(moment: Moment, remarks: list[Remark], names: list[str]) -> tuple[str, str]:
    of_program = remarks[0].kind == "own-fault"
    action = "compute-sanitizer python train.py" if of_program else "Report the node"
    return f"{names_text(names)}: {remarks[0].detail}", action


def _slowed(moment: Moment, remarks: list[Remark], names: list[str]) -> tuple[str, str]:
    return f"{names[0]} {throttled_text(int(remarks[0].value))}", ""


def _idle(moment: Moment, remarks: list[Remark], names: list[str]) -> tuple[str, str]:
    """Devices that never worked while they were watched, others having worked or not."""
    who = f"{len(names)} of {len(moment.devices)} GPUs"
    if len(names) <= NAMED:
        who = devices_named(names)
    age = age_text(max(each.value for each in remarks))
    action = ""
    if remarks[0].kind == "never-worked":
        gpus = len(moment.devices)
        some = len(remarks) < gpus
        action = use_or_return(gpus) if some else "Check that the program uses the GPU"
    return f"{who} idle for all of the {age} observed", action


def _slow(moment: Moment, remarks: list[Remark], names: list[str]) -> tuple[str, str]:
    """Nodes that do much less than the others; the Nodes screen has them all, first."""
    nodes = list(dict.fromkeys(node_of(each.device) for each in remarks))
    what = "much less busy than the median"
    if len(nodes) == 1:
        node = next(each for each in moment.nodes if each.name == nodes[0])
        what = ", ".join(text for _, text in remark_words(node, moment.devices_on(node), remarks))
    return f"{names_text(nodes)}: {what}", "Press 4 for the nodes"


def _reserved(moment: Moment, remarks: list[Remark], names: list[str]) -> tuple[str, str] | None:
    """Memory that a framework took ahead of need, so that it is not read as a need."""
    framework = remarks[0].detail
    if framework not in _RESERVATION_ACTIONS:
        return None
    where = devices_named(names)
    text = f"{FRAMEWORK_NAMES[framework]} preallocated memory on {where}; the real need is unknown"
    return text, _RESERVATION_ACTIONS[framework]


_WORDS = {
    "faulty": _faulty,
    "own-fault": _faulty,
    "hot": _slowed,
    "slowed": _slowed,
    "never-worked": _idle,
    "unused": _idle,
    "slow": _slow,
    "reserved": _reserved,
}


def box_rows(moment: Moment, width: int, most: int) -> tuple[list[Row], list[str]]:
    """*Do this* in at most `most` rows, and the lines to copy of what is seen there. The rest
    stands on the Report screen.
    """
    box = moment.evaluation.box if moment.evaluation is not None else Box()
    changes = [(box.request, box.changed)] if box.request else []
    steps = [(each.brief, [each.commented]) for each in box.steps]
    parts = [each for shown in box.in_order(changes, steps) for each in shown]
    head = f" {_DO_THIS}  "
    for count in range(len(parts), 0, -1):
        left = len(parts) - count
        text = " · ".join(text for text, _ in parts[:count])
        more = f"   +{left} more on screen 5" if left else "   (Y copies)"
        first, *others = textwrap.wrap(text + more, max(20, width - len(head) - 1))
        if len(others) < most:
            rows: list[Row] = [[(head, "key"), (first, "")]]
            rows += [[(" " * len(head) + row, "")] for row in others]
            return rows, [line for _, lines in parts[:count] for line in lines]
    return ([[(head, "key"), ("on screen 5", "")]] if parts and most > 0 else []), []


def note_rows(moment: Moment, width: int, most: int) -> list[Row]:
    """At most `most` rows, each in the colour of its level; the last says how many more there are.

    What to do stands behind all of them in one column, where that leaves enough of each; a long one
    goes below while there are rows to spare.
    """
    found = notes(moment)
    if not found or most <= 0:
        return []
    sign = signs(moment.glyphs)
    seen = found[:most]
    column = min(max(width_of(note.text) for note in seen) + 6, int(width * _ACTION_SHARE))
    rows: list[Row] = []
    spare = most - len(found)
    for note in seen:
        role = "dim" if note.level == "note" else note.level
        row: Row = [(f" {sign[note.level]} {note.text}", role)]
        if note.action:  # never brighter than what it is for
            action = (note.action, f"{role}+plain")
            gap = max(3, column - row_width(row))
            if row_width(row) + gap + width_of(note.action) <= width:
                row += [(" " * gap, ""), action]
            elif spare > 0:
                spare -= 1
                rows.append(row)
                row = [("   ", ""), action]
        rows.append(row)
    if len(found) > most:
        more = f"  +{len(found) - most} more"
        rows[-1] = [*fit_row(rows[-1], width - len(more)), (more, "dim")]
    return rows
