"""Recording files: the lines of the wire in zstd frames, one file per node and run.

`docs/recording.md` describes the format and defends it by numbers. Written by one `Recorder`,
read by `Recording` in whatever state a crash, a full disk or a copy left them, found by
`find_runs` and `resolve`, thrown away by `prune`.
"""

from __future__ import annotations

from gpumon.recording.file import CannotRecordError
from gpumon.recording.reader import Recording, is_recording
from gpumon.recording.runs import (
    SUFFIX,
    Run,
    SeveralJobsError,
    UnclearError,
    find_runs,
    is_job,
    job_folder,
    marks_dir,
    new_path,
    path_outside,
    prune,
    recorded_before,
    remove,
    resolve,
    state_dir,
)
from gpumon.recording.writer import Recorder

__all__ = [
    "SUFFIX",
    "CannotRecordError",
    "Recorder",
    "Recording",
    "Run",
    "SeveralJobsError",
    "UnclearError",
    "find_runs",
    "is_job",
    "is_recording",
    "job_folder",
    "marks_dir",
    "new_path",
    "path_outside",
    "prune",
    "recorded_before",
    "remove",
    "resolve",
    "state_dir",
]
