"""One finding of the report in full."""

from __future__ import annotations

import time
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING

from gpumon.chart.canvas import Canvas
from gpumon.chart.figure import Line, dot_columns, draw, stretched
from gpumon.model.units import measured_text
from gpumon.report.sentences import sentences
from gpumon.tui.lines import Row
from gpumon.tui.moment import Moment
from gpumon.tui.moment.remarks import label
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.processes.stack import stack_rows
from gpumon.tui.screens.report import ReportPane, copy
from gpumon.tui.selection import Selection

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.analysis.rundata import DeviceData, RunData
    from gpumon.pipeline.stacks import Stacks

_LABELS = ("  0", " 50", "100")
_MARGIN = 0.25  # of the finding's window, shown on either side of it


class FindingPane(Pane):
    """Its sentences, the lines to copy, and the time that shows it."""

    name = "finding"

    def __init__(
        self, shell: Shell, selection: Selection, report: ReportPane, stacks: Stacks | None = None
    ) -> None:
        """`stacks`: None where what is shown does not happen now."""
        super().__init__(shell, selection)
        self._report = report
        self._stacks = stacks
        self._run: RunData | None = None  # what the plot was made of, and its rows
        self._made_of: tuple[object, ...] = ()
        self._lines: list[str] = []  # to copy, as far as they are in sight
        self._plot: list[Row] = []

    def draw(self, moment: Moment, width: int, height: int) -> View:
        from gpumon.report.render.layout import wrapped
        from gpumon.report.render.page import finding_rows

        finding = self._report.opened
        if finding is None or moment.evaluation is None:
            return View([[(" No finding is open.", "dim")]])
        rows: list[Row] = [[(" ", ""), *row] for row in finding_rows(finding, min(width - 2, 100))]
        if details := _details(finding):
            rows += wrapped("", details, min(width - 2, 100), "dim", "dim")
        rows.append([(" " + " · ".join(_facts(finding)), "dim")])
        rows += self._stack(finding, moment, width, height)
        proven = [each for each in finding.actions if each.kind != "try"]
        self._lines = [line for each in proven or finding.actions if (line := each.after)]
        if self._lines:
            rows += [[], [(" to copy (y):", "dim")]]
            del self._lines[max(0, height - len(rows)) :]
            rows += [[("   ", ""), (line, "key")] for line in self._lines]
        run, room = moment.evaluation.run, height - len(rows) - 1
        rows += [[], *self._window(run, finding, width, room, moment.glyphs)]
        return View(rows[:height])

    def _window(
        self, run: RunData, finding: Finding, width: int, height: int, glyphs: str
    ) -> list[Row]:
        """The plot, which is worked out anew with each evaluation, not in each drawing."""
        made_of = (finding, width, height, glyphs)
        if self._run is not run or self._made_of != made_of:
            self._run, self._made_of = run, made_of
            self._plot = _window(run, finding, width, height, glyphs)
        return self._plot

    def _stack(self, finding: Finding, moment: Moment, width: int, height: int) -> list[Row]:
        """Of a process that hangs: where it is."""
        hanging = _hanging(finding, moment)
        if self._stacks is None or hanging is None:
            return []
        rows = stack_rows(self._stacks, *hanging, time.monotonic(), width, height)
        if not rows:
            return []
        title: Row = [(f" PID {hanging[1]} on {hanging[0]}; ", "dim")]
        return [[], [*title, ("gpumon stack", ""), (" shows every rank", "dim")], *rows]

    def action_stack(self) -> None:
        """Read the stack of the process that hangs, now."""
        finding = self._report.opened
        hanging = _hanging(finding, self.shell.moment) if finding is not None else None
        if self._stacks is not None and hanging is not None:
            self._stacks.ask(*hanging)
        else:
            self.shell.say("no process of this finding can be read; open one: 3, then Enter")

    def action_move(self, step: int) -> None:
        self._report.action_move(step)

    def action_leave(self) -> None:
        self.shell.show(self._report.name)

    def action_copy(self) -> None:
        """The lines shown; of a finding without them its sentence."""
        if self._report.opened is None:
            self._report.action_copy()
        else:
            copy(self.shell, self._lines or [sentences(self._report.opened)[0]])


def _hanging(finding: Finding, moment: Moment) -> tuple[str, int] | None:
    """The first process on the devices of a suspected hang, by node and PID."""
    if finding.id != "suspected-hang":
        return None
    for node, device in moment.devices:
        if label(node, device) in finding.devices:
            for process in node.processes(None):
                if device.key in process.usage and process.ended is None:
                    return node.name, process.facts.pid
    return None


def _details(finding: Finding) -> str:
    """The measurement behind the finding, as far as its sentences leave it out."""
    return "" if finding.adds is None or finding.goes_on else finding.evidence


#: what device memory in use says about need (docs/findings.md)
_MEMORY = {
    "real": "the memory in use is needed",
    "upper-bound": "the memory in use is an upper bound of the need",
    "unknown": "the memory in use does not show the need",
    "measured": "the need was measured inside the program",
}


def _facts(finding: Finding) -> list[str]:
    facts = [f"finding {finding.id}"]
    if finding.waste_gpu_hours:
        facts.append(f"{finding.waste_gpu_hours:.2g} GPU-hours wasted")
    if finding.mem_truth:
        facts.append(_MEMORY[finding.mem_truth])
    return facts


def _window(run: RunData, finding: Finding, width: int, height: int, glyphs: str) -> list[Row]:
    """Busy and memory of the first device it is about, over the window that shows it."""
    device = next((each for each in run.devices if each.label in finding.devices), None)
    if device is None and run.devices:
        device = run.devices[0]
    start = finding.start if finding.start is not None else run.start
    end = finding.end if finding.end is not None else run.end
    if device is None or height < 5 or end <= start or not run.count:
        return []
    margin = (end - start) * _MARGIN
    first = run.bin_at(start - margin)
    last = min(run.count, run.bin_at(end + margin) + 1)
    lines = tuple(_line(device, name, first, last, width) for name in ("mem", "busy"))
    labels = tuple(_clock(run.grid_start + at * run.bin_s) for at in (first, last))
    canvas = _drawn(lines, width, min(height - 1, 16), labels, glyphs)
    if canvas is None:
        return []
    lasted = measured_text(end - start)
    caption = f" {device.label}  busy and memory %, the {lasted} from {_clock(start)} with margins"
    roles = {0: "mem", 1: "busy", None: "dim"}
    return [
        [(caption, "dim")],
        *([(text, roles[line]) for text, line in row] for row in canvas.rows),
    ]


@lru_cache(maxsize=1)
def _drawn(
    lines: tuple[Line, ...], width: int, height: int, labels: tuple[str, ...], glyphs: str
) -> Canvas | None:
    """Once, until a bin of the run ends: plotext takes as long as a whole screen without it."""
    return draw(lines, width, height, 0, 100, _LABELS, labels, glyphs)


def _line(device: DeviceData, name: str, first: int, last: int, width: int) -> Line:
    total = device.mem_total_bytes or 0.0
    track = device.track("mem_used_bytes" if name == "mem" else "busy_percent")
    factor = (100 / total if total else 0.0) if name == "mem" else 1.0
    known = [None if isnan(value) else value * factor for value in track.mean[first:last]]
    return Line(tuple(stretched(known, dot_columns(width, _LABELS))))


def _clock(epoch_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(epoch_s))
