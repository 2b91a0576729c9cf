"""One-line errors with their exit codes.

Travels with the agent: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1  # could not: unreachable node, no accounting, I/O
EXIT_USAGE = 2  # wrong usage or input
EXIT_MATCHED = 3  # `report --fail-if` holds
EXIT_NOT_FOUND = 4  # no such job, recording or device
EXIT_INTERRUPTED = 130


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
