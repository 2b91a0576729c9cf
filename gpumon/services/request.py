"""Which reports a user requests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.errors import UsageError
from gpumon.recording.runs import SUFFIX, path_outside
from gpumon.slurm import ids

#: a comma outside the brackets of an array's tasks
_BETWEEN_IDS = re.compile(r",(?![^\[]*\])")


class Request(NamedTuple):
    """From the options of `gpumon report`."""

    runs: Sequence[str] = ()  # job IDs, and paths of recordings
    recording: str | None = None  # of the one job ID
    from_sacct: str | None = None  # a saved dump
    user: str | None = None
    since: str | None = None
    until: str | None = None
    login: str | None = None  # [USER@]HOST that runs Slurm's commands
    diff: bool = False  # the changes of the job's script
    prometheus: str | None = None  # URL of a server

    @property
    def is_window(self) -> bool:
        """Whether it is for the jobs of a user or a time, and not for named ones."""
        return bool(self.user or self.since or self.until)

    def check(self) -> None:
        """Raise UsageError where parts of it contradict each other."""
        paths = [run for run in self.runs if is_path(run)]
        if self.recording and self.from_sacct:
            raise UsageError("give --recording or --from-sacct, not both")
        if self.recording and (len(self.runs) != 1 or paths):
            raise UsageError(
                "--recording needs exactly one JOBID; without a job run 'gpumon report FILE'"
            )
        if self.is_window and (self.runs or self.recording or self.from_sacct):
            raise UsageError("--user, --since and --until cannot be combined with a JOBID or file")
        if paths and self.from_sacct:
            raise UsageError("--from-sacct accepts JOBIDs, not files")
        if paths and self.diff:
            raise UsageError("--diff needs the job script, so give JOBID --recording FILE")


def listed(runs: Iterable[str]) -> list[str]:
    """The words with lists such as `123,124_[1,3]` taken apart, as sacct -j takes them; IDs of runs
    outside of a job as their paths.
    """
    return [each for run in runs for each in _parts(run)]


def _parts(run: str) -> list[str]:
    parts = _BETWEEN_IDS.split(run)
    try:
        for each in parts:
            ids.parse(each)
    except UsageError:
        if os.path.exists(run):
            return [run]
        return [path_outside(run) or run]  # else a mistake
    return parts


def is_path(run: str) -> bool:
    """Whether a word names a recording. A job's id does not, not even beside a file of its name.

    Raises UsageError where it is neither.
    """
    if os.sep in run or run.endswith(SUFFIX):
        return True
    try:
        ids.parse(run)
    except UsageError as error:
        if os.path.exists(run):
            return True
        raise UsageError(f"{error}; there is no such file either") from None
    return False


def own_job() -> str:
    """The job around us."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
    if not job:
        raise UsageError(
            "name a JOBID, a recording's FILE, --last, or --user and --since; "
            "'gpumon runs' lists the recordings"
        )
    return job
