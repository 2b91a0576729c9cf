"""The report as if the job ended now, and one finding of it in full."""

from __future__ import annotations

import time
from math import isnan
from typing import TYPE_CHECKING

from gpumon.chart import Line, dot_columns, draw
from gpumon.model.units import clock_text
from gpumon.report.page import ROLES, finding_rows, page
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.state import View, ViewState, Zone

if TYPE_CHECKING:
    from gpumon.analysis.evidence import DeviceEvidence, Evidence
    from gpumon.analysis.finding import Finding

_LABELS = ("  0", " 50", "100")
_MARGIN = 0.25  # of the finding's window, shown on either side of it


def report_view(state: ViewState, width: int, height: int) -> View:
    """The page, scrolled; the finding under the cursor opens with Enter."""
    verdict = state.verdict
    if verdict is None or verdict.report is None:
        text = state.verdict_trouble or "gathering what the report rests on …"
        return View([[(f" {text}", "dim")]])
    report = verdict.report
    rows = page(report, min(width - 2, 100), state.glyphs if state.glyphs == "ascii" else "braille")
    places = _places(rows, report.findings)
    state.report_count = len(report.findings)
    state.report_cursor = min(state.report_cursor, max(0, len(places) - 1))
    top = _top(state, len(rows), places, height - 1)
    head: Row = [(" the report as if the job ended now ", "dim"), ("  Enter", "key")]
    head += [(" why  ", "dim"), ("y", "key"), (" copy the lines  ", "dim"), ("e", "key")]
    head += [(" save  ", "dim"), ("↑↓", "key"), (" finding, then scroll", "dim")]
    shown = [head]
    zones = []
    for place, row in enumerate(rows[top : top + height - 1], top):
        here = places and place == places[state.report_cursor]
        marked = [(text, f"{role}+selected") for text, role in row] if here else row
        if place in places:
            zones.append(Zone(0, len(shown), width, 1, f"pick_finding({places.index(place)})"))
        shown.append([(" ", ""), *marked])
    return View(shown, zones)


def _places(rows: list[Row], findings: tuple[Finding, ...]) -> list[int]:
    """The row on which each finding begins: those with a sign at their start, in order."""
    found: list[int] = []
    for place, row in enumerate(rows):
        if row and len(found) < len(findings):
            role = ROLES[findings[len(found)].level]
            text, has = row[0]
            if has == role and len(text) == 2 and text.endswith(" ") and text.strip():
                found.append(place)
    return found


def _top(state: ViewState, count: int, places: list[int], room: int) -> int:
    """The first row shown: the cursor in sight, then wherever it was scrolled to."""
    most = max(0, count - room)
    if places and state.report_scroll == 0:
        return min(max(0, places[state.report_cursor] - room // 2), most)
    start = min(max(0, places[-1] - room // 2), most) if places else 0
    state.report_scroll = min(state.report_scroll, max(0, most - start))
    return start + state.report_scroll


def finding_view(state: ViewState, width: int, height: int) -> View:
    """One finding: its sentences, its numbers, the lines to copy, and the time that shows it."""
    finding = state.opened_finding
    if finding is None or state.verdict is None:
        return View([[(" No finding is open.", "dim")]])
    rows: list[Row] = [[(" ", ""), *row] for row in finding_rows(finding, min(width - 2, 100))]
    facts = [f"{finding.id}", f"level {finding.level}", f"confidence {finding.confidence}"]
    facts += [f"about {finding.subject}"]
    if finding.waste_gpu_hours:
        facts.append(f"{finding.waste_gpu_hours:.2g} GPU-hours lost")
    if finding.mem_truth:
        facts.append(f"memory is {finding.mem_truth}")
    rows.append([(" " + " · ".join(facts), "dim")])
    lines = [each.after for each in finding.actions if each.after]
    if lines:
        rows += [[], [(" to copy (y):", "dim")]]
        rows += [[("   ", ""), (line, "key")] for line in lines]
    if finding.numbers:
        words = [f"{name} {value:.6g}" for name, value in finding.numbers.items()]
        rows += [[], fit_row([(" " + "  ".join(words), "dim")], width)]
    rows += [[], *_window(state.verdict.evidence, finding, width, height - len(rows) - 1, state)]
    return View(rows[:height])


def _window(
    evidence: Evidence, finding: Finding, width: int, height: int, state: ViewState
) -> list[Row]:
    """Busy and memory of the first device it is about, over the window that shows it."""
    device = next((each for each in evidence.devices if each.label in finding.devices), None)
    if device is None and evidence.devices:
        device = evidence.devices[0]
    start = finding.start if finding.start is not None else evidence.start
    end = finding.end if finding.end is not None else evidence.end
    if device is None or height < 5 or end <= start or not evidence.count:
        return []
    margin = (end - start) * _MARGIN
    first = evidence.bin_at(start - margin)
    last = min(evidence.count, evidence.bin_at(end + margin) + 1)
    lines = [_line(device, name, first, last, width) for name in ("mem", "busy")]
    labels = [_clock(evidence.grid_start + at * evidence.bin_s) for at in (first, last)]
    canvas = draw(lines, width, min(height - 1, 16), 0, 100, _LABELS, labels, state.glyphs)
    if canvas is None:
        return []
    lasted = clock_text(end - start)
    caption = f" {device.label}  busy and mem %, the {lasted} from {_clock(start)} with margins"
    roles = {0: "mem", 1: "busy", None: "dim"}
    return [
        [(caption, "dim")],
        *([(text, roles[line]) for text, line in row] for row in canvas.rows),
    ]


def _line(device: DeviceEvidence, name: str, first: int, last: int, width: int) -> Line:
    total = device.mem_total_bytes or 0.0
    track = device.track("mem_used_bytes" if name == "mem" else "busy_percent")
    factor = (100 / total if total else 0.0) if name == "mem" else 1.0
    known = [None if isnan(value) else value * factor for value in track.mean[first:last]]
    columns = dot_columns(width, _LABELS)
    count = max(1, len(known))
    return Line([known[n * count // columns] if known else None for n in range(columns)])


def _clock(epoch_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(epoch_s))
