"""The key that marks what happens now on the time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.tui.keys import Key, grouped
from gpumon.tui.screens.base import Actor, Shell

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline


class MarkKeys(Actor):
    """What it does on every screen."""

    keys = grouped(
        "Report", Key("m", "mark", "m", "", "put a mark on the time axis and in the recording")
    )

    def __init__(self, shell: Shell, pipeline: Pipeline) -> None:
        super().__init__(shell)
        self._pipeline = pipeline

    def action_mark(self) -> None:
        if self._pipeline.player is not None:
            self.shell.say("a replay takes no marks; for a live run: gpumon mark TEXT")
            return

        def take(text: str) -> None:
            self.shell.say(self._pipeline.mark(text))

        from gpumon.tui.dialogs.line import LineDialog

        self.shell.ask(LineDialog("text for the time axis"), take)
