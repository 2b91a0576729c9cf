"""Running Slurm's commands: here, or wherever another runner runs them."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gpumon import ending
from gpumon.errors import GpumonError, shortage

#: bytes of a command's errors that are kept, and of its output: 100,000 jobs of sacct have 100 MB
_MAX_ERROR = 1 << 16
MAX_OUTPUT = 128 << 20
_PIECE_BYTES = 1 << 16
#: a user's settings of Slurm's commands, which would change what they print
_STEERING = ("SACCT_", "SCONTROL_", "SINFO_", "SQUEUE_", "SSTAT_")


class SlurmError(GpumonError):
    """A command of Slurm failed."""


class NoSlurmError(SlurmError):
    """The command is not there."""


class TooMuchError(SlurmError):
    """A command printed more than is read."""

    def __init__(self, program: str) -> None:
        most = f"{MAX_OUTPUT >> 20} MiB"
        super().__init__(
            f"{program} printed more than {most}; request fewer jobs or a shorter period"
        )


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
                    f"{argv[0]} not found; run gpumon on a login node, or use --login HOST"
                ) from error
            raise SlurmError(f"cannot run {argv[0]}: {shortage(error) or error}") from error
        try:
            out, err = printed(process, argv[0], timeout_s)
        except subprocess.TimeoutExpired as error:
            raise SlurmTimeoutError(
                f"Slurm is not responding: {argv[0]} took over {timeout_s:g} s; try again later"
            ) from error
        return Result(process.returncode, out, err.decode("utf-8", "replace"))


def printed(
    process: subprocess.Popen[bytes], program: str, timeout_s: float
) -> tuple[bytes, bytes]:
    """Its output and the beginning of its errors, once it has ended; its group ends with it.

    Raises TooMuchError, and subprocess.TimeoutExpired after `timeout_s`.
    """
    ending.adopt(process.pid)
    with process:  # closes its pipes
        try:
            return _printed(process, program, time.monotonic() + timeout_s)
        finally:
            ending.signal_group(process.pid, signal.SIGKILL)
            process.wait()
            ending.release(process.pid)


def _printed(process: subprocess.Popen[bytes], program: str, until: float) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdin is not None:
        process.stdin.close()
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, out)
        waiting.register(process.stderr, selectors.EVENT_READ, err)
        while waiting.get_map():
            ready = waiting.select(max(until - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE_BYTES)
                if not piece:
                    waiting.unregister(key.fileobj)
                key.data.extend(piece)
            del err[_MAX_ERROR:]
            if len(out) > MAX_OUTPUT:
                raise TooMuchError(program)
    process.wait(max(until - time.monotonic(), 0.0))
    return bytes(out), bytes(err)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
