"""The report as if the job ended now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.tui.keys import Key, grouped
from gpumon.tui.lines import Row, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.selection import Selection

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.report.model import Report

_HERE = ("report", "finding")
_TWO_COLUMNS, _WIDEST = 170, 100  # cells: of a screen with the page in two columns, and of each
#: cells of width from which the line above the report names the arrows, too
_WITH_ALL_KEYS = 100


class ReportPane(Pane):
    """The page, scrolled; the finding under the cursor opens with Enter."""

    name = "report"
    wheel = 3
    keys = grouped(
        "Report",
        Key("y", "copy", "y", "Copy", "copy the lines of the finding under the cursor", _HERE),
        Key("Y", "copy_all", "Y", "", "copy all lines that the report recommends"),
        Key("e", "save", "e", "Save", "save the report as Markdown in this folder", _HERE),
    )

    def __init__(self, shell: Shell, selection: Selection, pipeline: Pipeline) -> None:
        super().__init__(shell, selection)
        self._pipeline = pipeline
        self._cursor = 0  # the selected finding
        self._scroll = 0  # rows below where the cursor alone would put the page
        self.opened: Finding | None = None

    def draw(self, moment: Moment, width: int, height: int) -> View:
        report = _report(moment)
        if report is None:
            text = self._pipeline.trouble or "collecting data for the report …"
            return View([[(f" {text}", "dim")]])
        # with all rules, which the first screen does without
        from gpumon.report.render.page import finding_places, page

        columns = 2 if width >= _TWO_COLUMNS else 1
        each = min(width // columns - 2, _WIDEST)
        how = (each, "ascii" if moment.glyphs == "ascii" else "braille")
        rows, places = page(report, *how), finding_places(report, *how)
        self._cursor = min(self._cursor, max(0, len(places) - 1))
        room = height - 1
        top = self._top(len(rows), places, columns * room)
        head: Row = [(" the report as if the job ended now ", "dim"), ("  Enter", "key")]
        head += [(" why  ", "dim"), ("y", "key"), (" copy its lines  ", "dim"), ("e", "key")]
        head.append((" save", "dim"))
        if width >= _WITH_ALL_KEYS:
            head += [("  ↑↓", "key"), (" finding, then scroll", "dim")]
        shown: list[Row] = []
        zones = []
        second = top + _second_column(rows[top:], places, room) if columns == 2 else len(rows)
        for place, row in enumerate(rows[top : top + columns * room], top):
            here = places and place == places[self._cursor]
            marked = [(text, f"{role}+selected") for text, role in row] if here else row
            x, y = (0, place - top) if place < second else (each + 2, place - second)
            if place in places:
                zones.append(Zone(x, 1 + y, each, 1, f"pick_finding({places.index(place)})"))
            if y < len(shown):
                shown[y] = [*fit_row(shown[y], x), (" ", ""), *marked]
            else:
                shown.append([*fit_row([], x), (" ", ""), *marked])
        return View([head, *shown[:room]], zones)

    def _top(self, count: int, places: list[int], room: int) -> int:
        """The first row shown: the cursor in sight, then wherever it was scrolled to."""
        most = max(0, count - room)
        if places and self._scroll == 0:
            return min(max(0, places[self._cursor] - room // 2), most)
        start = min(max(0, places[-1] - room // 2), most) if places else 0
        self._scroll = min(self._scroll, max(0, most - start))
        return start + self._scroll

    def action_report(self) -> None:
        self._pipeline.want_report()
        self.shell.show(self.name)

    def action_move(self, step: int) -> None:
        """Up and down go from finding to finding, and below the last one through the page."""
        report = _report(self.shell.moment)
        last = max(0, len(report.findings) - 1 if report is not None else 0)
        if abs(step) > 1 or self._scroll or (step > 0 and self._cursor >= last):
            self._scroll = max(0, self._scroll + step)
        else:
            self._cursor = min(max(self._cursor + step, 0), last)

    def action_pick_finding(self, place: int) -> None:
        self._cursor = place

    def _selected(self, report: Report) -> Finding | None:
        """The finding under the cursor."""
        found = report.findings
        return found[min(self._cursor, len(found) - 1)] if found else None

    def action_open(self) -> None:
        """Enter: the finding under the cursor."""
        report = _report(self.shell.moment)
        if report is not None and (finding := self._selected(report)) is not None:
            self.opened = finding
            self.shell.show("finding")

    def action_copy(self) -> None:
        """What the finding under the cursor says to change, else what it says."""
        report = self._asked()
        if report is not None and (finding := self._selected(report)) is not None:
            self.copy(lines_of(finding) or [finding.title])

    def action_copy_all(self) -> None:
        """The lines to change: all that the report recommends."""
        report = self._asked()
        if report is not None:
            changes = (each.change.line for each in report.recommendations)
            self.copy([line for line in changes if line])

    def _asked(self) -> Report | None:
        """The report, if its screen is shown; else it is said where it is."""
        report = _report(self.shell.moment)
        if report is None or self.shell.pane.name not in _HERE:
            self.shell.say("y copies the lines of a finding; press 5 for the report")
            return None
        return report

    def copy(self, lines: list[str]) -> None:
        if not lines:
            self.shell.say("there are no lines to copy")
            return
        self.shell.copy_to_clipboard("\n".join(lines) + "\n")
        plural = "s" if len(lines) > 1 else ""
        self.shell.say(f"copied {len(lines)} line{plural}, if the terminal allows it")

    def action_save(self) -> None:
        """The report as Markdown in the folder where gpumon was started."""
        report = _report(self.shell.moment)
        if report is None:
            self.shell.say("e saves the report; press 5 for it")
            return
        from gpumon.files import NotWritten, write_file
        from gpumon.model.lines import word
        from gpumon.report.render.markdown import markdown

        id = word("job", report.job.id or report.job.raw_id)
        name = f"gpumon-report-{id or ('job' if report.job.id or report.job.raw_id else 'node')}.md"
        try:
            write_file(name, markdown(report), regular=True)
        except NotWritten as error:
            self.shell.say(f"not saved: {clean(str(error))}")
        else:
            self.shell.say(f"saved as {os.path.abspath(name)}")


def _second_column(rows: list[Row], places: list[int], room: int) -> int:
    """The row with which it begins: that behind the findings, if the rest then has room."""
    behind = places[-1] if places else 0
    blank = next((y for y in range(behind, len(rows)) if not rows[y]), room)
    return blank + 1 if blank < room and len(rows) - blank <= room else room


def lines_of(finding: Finding) -> list[str]:
    """What to copy of it."""
    return [each.after for each in finding.actions if each.after]


def _report(moment: Moment) -> Report | None:
    return moment.evaluation.report if moment.evaluation is not None else None
