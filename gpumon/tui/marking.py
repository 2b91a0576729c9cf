"""Marks from the screen, and what there is to say about the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gpumon.model.text import clean
from gpumon.tui.dialogs import LineScreen

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.jobs import JobSource
    from gpumon.tui.state import ViewState

    class _Host(App[None]):
        marker: Marker | None
        job: JobSource | None
        state: ViewState

        def say(self, message: str) -> None: ...
else:
    _Host = object


@runtime_checkable
class Marker(Protocol):
    """A source that takes marks; see `sources.tee`."""

    def mark(self, text: str) -> str: ...
    def news(self) -> str: ...


@runtime_checkable
class Recording(Protocol):
    """A source that records; see `sources.tee`."""

    not_recorded: dict[str, str]  # by node: why it should be, and is not


class MarkActions(_Host):
    """The app's part of recording."""

    def update_recording(self) -> None:
        """Keep on the screen why nothing is recorded, as long as that is so."""
        if isinstance(self.marker, Recording):
            self.state.not_recorded = dict(self.marker.not_recorded)

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
