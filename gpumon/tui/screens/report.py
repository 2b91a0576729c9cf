"""The report as if the job ended now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.model.units import plural
from gpumon.report.advice import box_of
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
    from gpumon.report.render.page import Block

_HERE = ("report", "finding")
_TWO_COLUMNS, _WIDEST = 170, 100  # cells: of a screen with the page in two columns, and of each
#: cells of width from which the line above the report names the arrows, too
_WITH_ALL_KEYS = 100


class ReportPane(Pane):
    """The page, scrolled. The cursor stands on what can be copied: a line of *Do this*, a finding,
    a step of it; Enter opens the finding.
    """

    name = "report"
    wheel = 3
    keys = grouped(
        "Report",
        Key("y", "copy", "y", "Copy",
            "copy what the cursor is on: a line to change, a finding", _HERE),
        Key("Y", "copy_all", "Y", "", "copy all of Do this, on this screen and on the first"),
        Key("e", "save", "e", "Save", "save the report as Markdown in this folder", _HERE),
    )  # fmt: skip

    def __init__(self, shell: Shell, selection: Selection, pipeline: Pipeline) -> None:
        super().__init__(shell, selection)
        self._pipeline = pipeline
        self._places: list[Block] = []  # on which the cursor can stand, as they were drawn last
        self._cursor = 0  # the selected one
        self._scroll = 0  # rows below where the cursor alone would put the page
        self._sees_box = False  # all of *Do this* was drawn last
        self._is_whole = False  # all findings are shown, and the reasons of each
        self.opened: Finding | None = None

    def draw(self, moment: Moment, width: int, height: int) -> View:
        report = _report(moment)
        if report is None:
            text = self._pipeline.trouble or "collecting data for the report …"
            return View([[(f" {text}", "dim")]])
        # with all rules, which the first screen does without
        from gpumon.report.render.page import blocks

        columns = 2 if width >= _TWO_COLUMNS else 1
        each = min(width // columns - 2, _WIDEST)
        rows: list[Row] = []
        starts, self._places = [], []
        glyphs = "ascii" if moment.glyphs == "ascii" else "braille"
        for block in blocks(report, each, glyphs, whole=self._is_whole, key="Enter"):
            if block.lines or block.is_more:
                starts.append(len(rows))
                self._places.append(block)
            rows += block.rows
        self._cursor = min(self._cursor, max(0, len(starts) - 1))
        room = height - 1
        top = self._top(len(rows), starts, columns * room)
        boxed = list(zip(starts, self._places[: len(box_of(report).lines)]))
        ends = max((start + len(place.rows) for start, place in boxed), default=0)
        self._sees_box = not boxed or (top <= boxed[0][0] and ends <= top + columns * room)
        first = starts[self._cursor] if starts else 0
        under = range(first, first + len(self._places[self._cursor].rows) if starts else 0)
        second = top + _second_column(rows[top:], starts, room) if columns == 2 else len(rows)
        shown: list[Row] = []
        zones = []
        for place, row in enumerate(rows[top : top + columns * room], top):
            marked = [(text, f"{role}+selected") for text, role in row] if place in under else row
            x, y = (0, place - top) if place < second else (each + 2, place - second)
            if place in starts:
                zones.append(Zone(x, 1 + y, each, 1, f"pick_place({starts.index(place)})"))
            if y < len(shown):
                shown[y] = [*fit_row(shown[y], x), (" ", ""), *marked]
            else:
                shown.append([*fit_row([], x), (" ", ""), *marked])
        return View([_head(width), *shown[:room]], zones)

    def _top(self, count: int, starts: list[int], room: int) -> int:
        """The first row shown: the cursor in sight, then wherever it was scrolled to."""
        most = max(0, count - room)
        if starts and self._scroll == 0:
            return min(max(0, starts[self._cursor] - room // 2), most)
        start = min(max(0, starts[-1] - room // 2), most) if starts else 0
        self._scroll = min(self._scroll, max(0, most - start))
        return start + self._scroll

    def action_report(self) -> None:
        self._is_whole = False
        self._pipeline.want_report()
        self.shell.show(self.name)

    def action_move(self, step: int) -> None:
        """Up and down go from place to place, and below the last one through the page."""
        if not self._places:
            return
        last = len(self._places) - 1
        if abs(step) > 1 or self._scroll or (step > 0 and self._cursor >= last):
            self._scroll = max(0, self._scroll + step)
        else:
            self._cursor = min(max(self._cursor + step, 0), last)

    def action_pick_place(self, place: int) -> None:
        self._cursor = place

    def action_open(self) -> None:
        """Enter: the finding under the cursor, or what the page left out, from the top."""
        place = self._places[self._cursor] if self._places else None
        if place is not None and place.is_more:
            self._is_whole, self._cursor, self._scroll = True, 0, 0
        elif place is not None and place.finding is not None:
            self.opened = place.finding
            self.shell.show("finding")

    def action_copy(self) -> None:
        """What is highlighted. If it was scrolled away it comes into sight, and is not copied."""
        if not self._is_shown():
            self.shell.say("y copies what the cursor is on; press 5 for the report")
        elif self._scroll:
            self._scroll = 0
            self.shell.say("y copies what is highlighted; press it again")
        elif self._places:
            copy(self.shell, self._places[self._cursor].lines)

    def action_copy_all(self) -> None:
        """All of the box. If it is not in sight it comes into sight, and is not copied."""
        report = _report(self.shell.moment)
        if report is None or not self._is_shown():
            self.shell.say("Y copies all of Do this; press 5 for the report")
            return
        if self._sees_box:
            copy(self.shell, box_of(report).lines)
        elif self._cursor or self._scroll:
            self._cursor = self._scroll = 0
            self.shell.say("Y copies all of Do this; press it again")
        else:
            self.shell.say("this terminal is too low to show all of Do this")

    def _is_shown(self) -> bool:
        return self.shell.pane is self and _report(self.shell.moment) is not None

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


def _second_column(rows: list[Row], starts: list[int], room: int) -> int:
    """The row with which it begins: that behind the findings, if the rest then has room."""
    behind = starts[-1] if starts else 0
    blank = next((y for y in range(behind, len(rows)) if not rows[y]), room)
    return blank + 1 if blank < room and len(rows) - blank <= room else room


def _head(width: int) -> Row:
    row: Row = [(" the report as if the job ended now ", "dim"), ("  Enter", "key")]
    row += [(" why  ", "dim"), ("y", "key"), (" copy  ", "dim"), ("Y", "key")]
    row += [(" copy all  ", "dim"), ("e", "key"), (" save", "dim")]
    if width >= _WITH_ALL_KEYS:
        row += [("  ↑↓", "key"), (" select, then scroll", "dim")]
    return row


def copy(shell: Shell, lines: Sequence[str]) -> None:
    """To the terminal's clipboard; it is said what became of it."""
    if not lines:
        shell.say("there is nothing to copy")
        return
    shell.copy_to_clipboard("\n".join(lines) + "\n")
    shell.say(f"copied {plural(len(lines), 'line')}, if the terminal allows it")


def _report(moment: Moment) -> Report | None:
    return moment.evaluation.report if moment.evaluation is not None else None
