"""`gpumon runs` in a terminal: the list, and from there into a replay and back."""

from __future__ import annotations

from gpumon import ending
from gpumon.config import Settings
from gpumon.errors import EXIT_OK, GpumonError
from gpumon.services.library import RecordedRuns
from gpumon.services.replay import replay
from gpumon.tui.runs.screen import State, choose_run


def show_runs(settings: Settings) -> int:
    """The list, and from there into a replay and back, until the user quits; the exit code.

    Raises GpumonError.
    """
    state = State()
    while (run := choose_run(RecordedRuns(is_ascii=settings.ascii), settings, state)) is not None:
        try:
            replay(run.id, settings, 1.0, is_from_list=True)
        except GpumonError as error:
            state.message = str(error)
        if code := ending.code():
            return code
    return EXIT_OK
