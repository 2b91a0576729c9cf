"""One-line errors with their exit codes.

Travels with the agent: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import errno

EXIT_OK = 0
EXIT_FAILED = 1  # could not: unreachable node, no accounting, I/O
EXIT_USAGE = 2  # wrong usage or input
EXIT_MATCHED = 3  # `report --fail-if` holds
EXIT_NOT_FOUND = 4  # no such job, recording or device
EXIT_INTERRUPTED = 130


NO_MEMORY = "not enough memory to start; raise the limit that 'ulimit -v' or the job sets"


class GpumonError(Exception):
    """What happened and what to do, in one line; `cli` prints it and exits with `code`."""

    code = EXIT_FAILED


class UsageError(GpumonError):
    """The command line or an input file is wrong."""

    code = EXIT_USAGE


class NotFoundError(GpumonError):
    """There is no such job, recording or device."""

    code = EXIT_NOT_FOUND


class WireError(GpumonError):
    """A stream or recording that cannot be read, with the reason."""

    code = EXIT_USAGE


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, or address space (`ulimit -v`), ended; it shows in many ways."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):  # of the dynamic loader
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)
