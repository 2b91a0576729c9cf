"""What there is to see of a job that has ended: its report, and its recording if it has one."""

from __future__ import annotations

import sys

from gpumon.config import Settings
from gpumon.errors import EXIT_INTERRUPTED, EXIT_OK, GpumonError, NotFoundError
from gpumon.model.lines import Line, word
from gpumon.model.text import clean
from gpumon.recording.runs import resolve
from gpumon.slurm.job import Job


def show_ended(job: Job, settings: Settings, *, on_screen: bool) -> int:
    """Offer report and replay of a recorded job; returns the exit code.

    Raises GpumonError, which names the commands, without a screen or a recording.
    """
    id, state = word("job", job.id), clean(job.state, 40)
    commands = Line("gpumon report {}", id) or "gpumon report JOBID"
    has_recording = is_recorded(job.id)
    if has_recording:
        playing = Line("gpumon replay {}", id) or "gpumon replay JOBID"
        commands = f"{commands}' or '{playing}"
    if not (has_recording and on_screen):
        raise GpumonError(f"job {clean(job.id, 40)} has ended ({state}); run '{commands}'")
    from gpumon.tui.columns import Column
    from gpumon.tui.dialogs.choice import Choice, choose

    choices = [
        Choice("report", ("report", "what it requested and used, and the lines to change")),
        Choice("replay", ("replay", "its recording in the dashboard")),
    ]
    columns = (Column(""), Column("", most=70))
    chosen = choose(f"job {job.id} has ended ({state})", columns, choices, settings.theme)
    if chosen == "report":
        print_report(job.id)
        return EXIT_OK
    if chosen == "replay":
        from gpumon.services.replay import replay

        return replay(job.id, settings, 1.0)
    return EXIT_INTERRUPTED


def is_recorded(id: str) -> bool:
    """Whether `gpumon replay` finds something of the job."""
    try:
        resolve(id)
    except NotFoundError:
        return False
    return True


def print_report(id: str) -> None:
    """As `gpumon report ID` does in a terminal. Raises what that raises."""
    from gpumon.services.pages import report_page, terminal_medium

    text, notes = report_page(id, terminal_medium())
    for note in notes:
        print(f"gpumon: {note}", file=sys.stderr)
    sys.stdout.write(text)
