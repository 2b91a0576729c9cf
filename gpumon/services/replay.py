"""The dashboard on a recorded run, and the list of them."""

from __future__ import annotations

from gpumon import ending
from gpumon.config import Settings
from gpumon.errors import EXIT_OK, GpumonError
from gpumon.services.library import RecordedRuns
from gpumon.services.playing import open_replay, playing
from gpumon.services.runs import note
from gpumon.sources.replay import ReplaySource
from gpumon.terminal import can_show_screen


def replay(run: str, settings: Settings, speed: float, *, is_from_list: bool = False) -> int:
    """Play a recording, a folder of them or a job's; returns the exit code.

    `is_from_list`: Esc goes back to the list from which it was chosen.

    Raises GpumonError where it cannot be read, or where there is no terminal.
    """
    source = open_replay(run, speed, note)
    return play(source, settings, "replay", run, is_from_list=is_from_list)


def play(
    source: ReplaySource,
    settings: Settings,
    command: str,
    run: str = "",
    *,
    is_from_list: bool = False,
) -> int:
    """The dashboard on this source; `run` as of `playing`.

    Raises GpumonError where there is no terminal for `command`.
    """
    if reason := can_show_screen():
        raise GpumonError(f"{reason}; run 'gpumon {command}' in a terminal")
    from gpumon.tui.app import run_app

    library = RecordedRuns(is_ascii=settings.ascii)
    return run_app(playing(source, run), settings, library=library, is_from_list=is_from_list)


def show_runs(settings: Settings) -> int:
    """The list, and from there into a replay and back, until the user quits; the exit code.

    Raises GpumonError.
    """
    from gpumon.tui.runs.screen import State, choose_run

    state = State()
    while (run := choose_run(RecordedRuns(is_ascii=settings.ascii), settings, state)) is not None:
        try:
            replay(run.id, settings, 1.0, is_from_list=True)
        except GpumonError as error:
            state.message = str(error)
        if code := ending.code():
            return code
    return EXIT_OK
