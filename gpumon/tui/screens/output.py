"""What the job writes: the tail of its output or error file, made harmless."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.tui.lines import Row, row_width, spread
from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.selection import Selection

if TYPE_CHECKING:
    from gpumon.sources.jobfiles import JobFiles

_NAMES = {"out": "output", "err": "error"}
#: escape sequences of terminals (ECMA-48): strings such as titles and links, then CSI, then others
_ESCAPES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
_TAB = " " * 4
_LONGEST = 4096  # characters of one line


def harmless(line: str) -> str:
    """The line as a terminal would have left it, as plain text.

    Colours and cursor movements are dropped; of a progress bar that returns to the line's start
    again and again, what it wrote last is kept.
    """
    text = _ESCAPES.sub("", line[-_LONGEST:])
    text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return clean(text.replace("\t", _TAB).rstrip())


class OutputPane(Pane):
    """The end of a file as it grows; up goes back, End follows it again."""

    name = "output"
    wheel = 3

    def __init__(self, shell: Shell, selection: Selection, output: JobFiles | None) -> None:
        super().__init__(shell, selection)
        self._output = output
        self.bar_where = ("output known",) if output is not None else ()
        self._stream = "out"  # or "err"
        self._read = ""  # the stream that the lines come from
        self._lines: list[str] = []
        self._back = 0  # lines between what is shown and the end; 0 follows the file

    def action_output(self) -> None:
        """Show the output; again: the other file."""
        if self._output is None:
            self.shell.say("a job's output is shown by gpumon attach JOBID")
            return
        if self.shell.pane is self:
            self._stream = self._other
            self._back = 0
        self.shell.show(self.name)

    def action_move(self, step: int) -> None:
        self._back = max(0, self._back - step)

    @property
    def _other(self) -> str:
        return "err" if self._stream == "out" else "out"

    def _update(self) -> tuple[str, str]:
        """Take what the file holds now; while the reader has gone back, the lines stay.

        Returns its path, and why there are no lines.
        """
        if self._output is None:
            return "", ""
        path = clean(self._output.path(self._stream))
        try:
            lines = self._output.tail(self._stream)
        except OSError as error:
            self._lines = []
            return path, clean(error.strerror or str(error))
        if self._back == 0 or self._read != self._stream:
            self._lines, self._read = [harmless(line) for line in lines], self._stream
        return path, ""

    def draw(self, moment: Moment, width: int, height: int) -> View:
        """A line that says which file, then its last lines."""
        path, trouble = self._update()
        place = f"{self._back} before the end" if self._back else "following"
        right: Row = [(place, "attention" if self._back else "dim"), ("   o ", "key")]
        right.append((f"{_NAMES[self._other]} ", "dim"))
        left: Row = [(f" {_NAMES[self._stream]}  ", "title")]
        room = max(0, width - row_width(left) - row_width(right) - 1)
        path = path if len(path) <= room else "…" + path[len(path) - room + 1 :]
        rows: list[Row] = [spread([*left, (path, "dim")], right, width)]
        if trouble:
            return View([*rows, [(f" {trouble}", "unknown")]])
        room = max(0, height - 1)
        self._back = min(self._back, max(0, len(self._lines) - room))
        last = len(self._lines) - self._back
        shown = self._lines[max(0, last - room) : last]
        rows += [[(" ", ""), (line, "")] for line in shown]
        if not shown:
            rows.append([(" nothing written yet", "dim")])
        return View(rows, [Zone(0, 0, width, 1, "output")])
