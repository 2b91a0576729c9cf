"""A command of the user's that runs once when the job ends, while gpumon watches."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import IO

from gpumon.collect.guest import as_inherited
from gpumon.errors import EXIT_FAILED, UsageError
from gpumon.model.text import clean
from gpumon.slurm.job import ExitCode, Job

#: what a command that is about to end gets at most when gpumon is left
_PATIENCE_S = 0.5
_COMPLAINT_BYTES = 4096


class OnEnd:
    """The command. It has no terminal: it cannot draw on the screen, and outlives gpumon."""

    def __init__(self, command: str, *, on_screen: bool) -> None:
        """Raises UsageError where it cannot be run, or without a screen that watches the job."""
        if not on_screen:
            raise UsageError("--on-end needs a terminal: gpumon must run until the job ends")
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--on-end: {error}: {clean(command, 80)}") from None
        if not self._argv:
            raise UsageError("--on-end: the command is empty")
        if shutil.which(self._argv[0]) is None:
            raise UsageError(f"--on-end: program {clean(self._argv[0], 80)!r} not found")
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile()
        self._failed = ""
        self._began = False

    def run(self, job: Job) -> None:
        """Start it; only the first call does."""
        if self._began:
            return
        self._began = True
        try:
            with as_inherited():
                self._process = subprocess.Popen(
                    self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=self._said, env={**os.environ, **variables(job)}, start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            self._failed = str(error)

    def finish(self, code: int) -> int:
        """After the screen, which ended with `code`: report what went wrong, in one line."""
        why = self._trouble()
        if not why:
            return code
        print(f"gpumon: --on-end: {clean(self._argv[0], 80)} {why}", file=sys.stderr)
        return code or EXIT_FAILED

    def _trouble(self) -> str:
        if not self._began:
            return "did not run: gpumon quit before the job ended"
        if self._failed:
            return f"could not be started: {clean(self._failed, 200)}"
        assert self._process is not None
        try:
            code = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return ""  # it continues
        if not code:
            return ""
        how = f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code}"
        complaint = self._complaint()
        return f"{how}: {complaint}" if complaint else how

    def _complaint(self) -> str:
        """The last line of its errors."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _COMPLAINT_BYTES))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return clean(lines[-1], 200) if lines else ""


def variables(job: Job) -> dict[str, str]:
    """The job for the command's environment; "" for values that Slurm lacks."""
    elapsed_s = job.elapsed_s
    return {
        "GPUMON_JOB_ID": clean(job.id or job.raw_id, 80),
        "GPUMON_JOB_STATE": clean(job.state, 40),
        "GPUMON_EXIT_CODE": _code(job.exit_code),
        "GPUMON_ELAPSED_S": "" if elapsed_s is None else f"{elapsed_s:.0f}",
    }


def _code(code: ExitCode | None) -> str:
    """As shells write it: 128 and the signal, where one ended the job."""
    if code is None:
        return ""
    return str(code.code if code.code or not code.signal else 128 + code.signal)
