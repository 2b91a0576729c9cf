"""Running Slurm's commands: here, or wherever another runner runs them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gpumon.errors import GpumonError

#: characters of a command's errors that are kept
_MAX_ERROR = 1 << 16
#: a user's settings of Slurm's commands, which would change what they print
_STEERING = ("SACCT_", "SCONTROL_", "SINFO_", "SQUEUE_", "SSTAT_")


class SlurmError(GpumonError):
    """A command of Slurm did not answer what was asked."""


class NoSlurmError(SlurmError):
    """The command is not there."""


class SlurmTimeoutError(SlurmError):
    """The command did not answer in time."""


class Result(NamedTuple):
    """What a command printed. Some commands of Slurm exit 0 on errors."""

    code: int
    out: bytes
    err: str


class Runner(Protocol):
    """Runs a command of Slurm, never through a shell, and waits for it."""

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        """`env` is added to the environment. Raises SlurmError where it cannot run."""


class LocalRunner:
    """Runs commands on this machine, each in a process group of its own."""

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        """Raises NoSlurmError, or SlurmTimeoutError after `timeout_s`, its processes killed."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**_environment(), **env},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if shutil.which(argv[0]) is None:  # also where a folder of PATH may not be searched
                raise NoSlurmError(
                    f"there is no {argv[0]} here; run gpumon on a login node, or give --login HOST"
                ) from error
            raise SlurmError(f"cannot run {argv[0]}: {error}") from error
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise SlurmTimeoutError(
                f"Slurm does not answer: {argv[0]} took over {timeout_s:g} s; try again later"
            ) from error
        except BaseException:  # Ctrl-C
            _end(process)
            raise
        return Result(process.returncode, out, err[:_MAX_ERROR].decode("utf-8", "replace"))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and what it started, and take its pipes back."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
