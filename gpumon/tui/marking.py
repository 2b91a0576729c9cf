"""Marks from the screen, and what there is to say about the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gpumon.model.text import clean
from gpumon.tui.dialogs import LineScreen

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.jobs import JobSource

    class _Host(App[None]):
        marker: Marker | None
        job: JobSource | None

        def say(self, message: str) -> None: ...
else:
    _Host = object


@runtime_checkable
class Marker(Protocol):
    """A source that takes marks; see `sources.tee`."""

    def mark(self, text: str) -> str: ...
    def news(self) -> str: ...


class MarkActions(_Host):
    """The app's part of recording."""

    def tell_news(self) -> None:
        """Say what happened to the recording or to the job, once."""
        for teller in (self.marker, self.job):
            news = teller.news() if teller is not None else ""
            if news:
                self.say(clean(news))

    def action_mark(self) -> None:
        """Ask for a line to put on the time axis."""
        marker = self.marker
        if marker is None:
            self.say("marks are for what runs now: gpumon mark TEXT")
            return

        def take(text: str | None) -> None:
            if text is not None and marker is not None:
                self.say(marker.mark(text))

        self.push_screen(LineScreen("what happens now, for the time axis"), take)
