"""The recorded runs: what their screen shows and does, and which of them a command is about."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gpumon.errors import NotFoundError, UsageError
from gpumon.model.text import clean
from gpumon.recording.runs import Run, SeveralJobsError, find_runs, remove, resolve, state_dir
from gpumon.terminal import can_show_screen

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline


T = TypeVar("T")
_FEW = 5  # jobs that an error names


class RecordedRuns:
    """`Library` of gpumon.tui.runs.screen."""

    def __init__(self, *, is_ascii: bool) -> None:
        self._is_ascii = is_ascii

    @property
    def folder(self) -> str:
        return state_dir()

    def find(self) -> tuple[Sequence[Run], Sequence[str]]:
        unread: list[str] = []
        return find_runs(unread), unread

    def report(self, run: Run, columns: int) -> str:
        from gpumon.report.render.forms import Medium
        from gpumon.services.pages import report_page

        return report_page(run.id, Medium(columns, is_coloured=True, is_ascii=self._is_ascii))[0]

    def compare(self, a: Run, b: Run) -> str:
        from gpumon.services.comparing import compared_text

        return compared_text(a.id, b.id)

    def remove(self, run: Run) -> None:
        remove(run)

    def replay(self, run: Run) -> Pipeline:
        from gpumon.services.playing import open_replay, playing

        return playing(open_replay(run.id), run.id)


def runs_for(command: str, named: Sequence[str], count: int, *, last: bool) -> list[str]:
    """The runs that a command is about, the older one first: those that were named, with `last`
    the newest ones, else those that the user chooses from a list. Raises UsageError, NotFoundError.

    None are returned where the user leaves the list.
    """
    if len(named) == count and not last:
        return list(named)
    if len(named) < count and named and not last and _has_several(named[0]):
        return list(named) * count
    if named and last:
        raise UsageError(f"name {_runs(count)}, or give --last")
    runs = find_runs()
    if not runs:
        raise NotFoundError(
            f"there are no recordings in {state_dir()}; 'gpumon' and 'gpumon record' create them"
        )
    if last:
        if len(runs) < count:
            raise NotFoundError(f"there is only one recorded run, {runs[0].id}; record another one")
        return [run.id for run in runs[:count]][::-1]
    if can_show_screen():
        raise UsageError(
            f"name {_runs(count)} ('gpumon runs' lists them), or use 'gpumon {command} --last'"
        )
    return _chosen(command, runs, list(named), count)


def _has_several(run: str) -> bool:
    """Whether it is a folder with recordings of several jobs."""
    if not os.path.isdir(run):
        return False
    try:
        resolve(run)
    except SeveralJobsError:
        return True
    return False


def with_one_job(command: str, named: Sequence[str], work: Callable[[list[str]], T]) -> T | None:
    """What the command makes of the runs that were named. Of a folder with recordings of several
    jobs the user chooses one from a list; None where the user leaves it.

    Raises UsageError where there is no terminal for a list, and what `work` raises.
    """
    names = list(named)
    while True:
        try:
            return work(names)
        except SeveralJobsError as error:
            if error.folder not in names:
                raise
            if can_show_screen():
                raise UsageError(_several_text(command, error)) from None
            place = names.index(error.folder)
            others = [run for run in error.runs if run.id not in names]
            title = f"gpumon {command}: which run in {error.folder}?"
            chosen = _choose(title, others, error.folder)
            if chosen is None:
                return None
            names[place] = chosen


def _several_text(command: str, error: SeveralJobsError) -> str:
    jobs = [run for run in error.runs if run.job]
    some = [
        clean(run.job, 40) + (f" ({clean(run.name, 40)})" if run.name else "")
        for run in jobs[:_FEW]
    ]
    more = f", and {len(jobs) - _FEW} more" if len(jobs) > _FEW else ""
    return (
        f"{clean(error.folder, 200)} has recordings of several jobs: {', '.join(some)}{more}; "
        f"name one: gpumon {command} {shlex.quote(jobs[0].id)}"
    )


def _runs(count: int) -> str:
    return "a run" if count == 1 else "two runs"


def _chosen(command: str, runs: Sequence[Run], named: list[str], count: int) -> list[str]:
    """By as many lists as there are runs to choose."""
    while len(named) < count:
        title = f"gpumon {command}: which run?"
        if count > 1:
            title = f"gpumon {command}: {'which run?' if not named else f'{named[0]}, and which?'}"
        others = [run for run in runs if run.id not in named]
        if not others:
            raise NotFoundError(f"there is only one recorded run, {runs[0].id}; record another one")
        chosen = _choose(title, others)
        if chosen is None:
            return []
        named.append(chosen)
    return named


def _choose(title: str, runs: Sequence[Run], folder: str = "") -> str | None:
    """The ID of the one that the user chooses from a list; `folder`: what all of them are in."""
    from gpumon.config import load_settings
    from gpumon.report.render.runs import cells
    from gpumon.tui.dialogs.choice import Choice, choose
    from gpumon.tui.runs.table import COLUMNS

    def row(run: Run) -> list[str]:
        return cells(run._replace(id=os.path.relpath(run.id, folder)) if folder else run)

    choices = [Choice(run.id, row(run)) for run in runs]
    return choose(title, COLUMNS, choices, load_settings().theme)
