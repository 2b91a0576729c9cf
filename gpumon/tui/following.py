"""The keys that follow the job's output; without a job they say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.tui.output import Output, harmless

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.state import ViewState

    class _Host(App[None]):
        state: ViewState
        output: Output | None

        def say(self, message: str) -> None: ...
        def draw(self) -> None: ...
else:
    _Host = object


class OutputActions(_Host):
    """The app's part of following output."""

    def action_output(self) -> None:
        """Show the output; again: the other file."""
        state = self.state
        if self.output is None:
            self.say("output is followed for a job whose files are known: gpumon attach JOBID")
            return
        if state.view == "output":
            state.output.stream = "err" if state.output.stream == "out" else "out"
            state.output.back = 0
        state.view = "output"
        self.draw()

    def read_output(self) -> None:
        """Take what the file holds now; while the reader has gone back, the lines stay."""
        output, pane = self.output, self.state.output
        if output is None:
            return
        pane.path, pane.trouble = clean(output.path(pane.stream)), ""
        try:
            lines = output.tail(pane.stream)
        except OSError as error:
            pane.lines, pane.trouble = [], clean(error.strerror or str(error))
            return
        if pane.back == 0 or pane.read != pane.stream:
            pane.lines, pane.read = [harmless(line) for line in lines], pane.stream
