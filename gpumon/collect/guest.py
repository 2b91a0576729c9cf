"""A process of gpumon's is a guest: where memory runs out, the kernel ends it before all others.

Without that the kernel ends the largest process of a full cgroup, which is the job's program,
whoever asked for the last page. The shell that brings an agent to a node does the same in its
first line (`transport.payload`), for what it becomes. `record -- COMMAND` takes it for the process
beside the command alone: the end of the one around it would be the end of the job's script.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: the `comm` of a guest, by which agents know each other in a job; an exec takes it away. With a
#: blank in it a step's task would get no SIGTERM: slurmstepd reads /proc/PID/stat by words
NAME = "gpumon-guest"
_SCORE = "/proc/self/oom_score_adj"
_MOST = b"1000"  # of proc(5): ended first

_inherited = b""  # the score that this process was started with


def be_guest() -> None:
    """Take the last place. Where /proc cannot be written, nothing changes."""
    global _inherited
    mark()
    with suppress(OSError):
        before = _read(_SCORE)
        _write(_SCORE, _MOST)
        _inherited = _inherited or before


def mark() -> None:
    """Be known to agents as gpumon's, whose memory is not the job's."""
    with suppress(OSError):
        _write("/proc/self/comm", NAME.encode())


@contextmanager
def as_inherited() -> Iterator[None]:
    """For the start of a command of the user's: it inherits what this process was started with.

    Needs no privilege: the kernel refuses only what is below the last value that a privileged
    process set, and that is at most the inherited one.
    """
    if _inherited:
        with suppress(OSError):
            _write(_SCORE, _inherited)
    try:
        yield
    finally:
        if _inherited:
            be_guest()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 64).strip()
    finally:
        os.close(descriptor)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
