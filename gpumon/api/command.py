"""gpumon's commands, started by a program that imports gpumon.

What they do runs beside the program: collectors have threads, and the program has other work.
"""

from __future__ import annotations

import os
import subprocess
import sys

from gpumon.collect.proc.probed import VARIABLE
from gpumon.errors import GpumonError
from gpumon.isolated import command
from gpumon.services.probing import folder_of


def start(*arguments: str) -> subprocess.Popen[str]:
    """A command, in a session of its own: Ctrl-C, or a cell that is interrupted, does not end it.

    It reads what the user's probes write on this node. Raises GpumonError.
    """
    argv = command("gpumon/__main__.py", *arguments)
    try:
        return subprocess.Popen(
            [argv[0], "-Xutf8", *argv[1:]],
            env={**os.environ, VARIABLE: folder_of(os.environ)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise GpumonError(f"cannot start {sys.executable}: {error.strerror}") from None


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output and what it reported, when it has ended. Raises GpumonError if it failed."""
    out, err = process.communicate()
    if process.returncode:
        last = (err.strip() or f"gpumon ended with code {process.returncode}").splitlines()[-1]
        raise GpumonError(last.removeprefix("gpumon: "))
    return out, err
