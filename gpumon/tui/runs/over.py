"""The recorded runs over a dashboard, and one of them played in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.errors import GpumonError

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.recording.runs import Run
    from gpumon.tui.runs.screen import Library, State
    from gpumon.tui.screen_app import ViewApp


class RunsOver:
    """`show` has the dashboard show a recording, or (None) what it showed before."""

    def __init__(
        self,
        app: ViewApp[None],
        library: Library | None,
        show: Callable[[Pipeline | None], None],
        say: Callable[[str], None],
    ) -> None:
        self._app = app
        self._library = library
        self._show = show
        self._say = say
        self._state: State | None = None
        self._playing: Pipeline | None = None

    def open(self, palette: str, glyphs: str) -> None:
        """The list; what runs goes on behind it."""
        if self._library is None:
            self._say("the recorded runs: gpumon runs")
            return
        from gpumon.tui.runs.screen import RunsScreen, State  # opened seldom

        self._state = self._state or State()
        self._app.push_screen(RunsScreen(self._library, self._state, palette, glyphs), self._chosen)

    def _chosen(self, run: Run | None) -> None:
        if run is not None:
            self._say(f"opening {run.id} …")
            threading.Thread(target=self._replay, args=(run,), daemon=True, name="replay").start()
        self._app.draw()

    def _replay(self, run: Run) -> None:
        assert self._library is not None
        try:
            pipeline = self._library.replay(run)
        except GpumonError as error:
            self._app.call_later(self._say, str(error))
        else:
            self._app.call_later(self._play, pipeline)

    def _play(self, pipeline: Pipeline) -> None:
        self.stop()
        self._playing = pipeline
        self._show(pipeline)

    def leave(self) -> bool:
        """Go back from a recording; False where none is played."""
        if self._playing is None:
            return False
        self.stop()
        self._show(None)
        return True

    def stop(self) -> None:
        if self._playing is not None:
            self._playing.stop()
            self._playing = None
