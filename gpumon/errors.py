"""One-line errors with their exit codes.

Travels with the agent: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import errno
import resource
from typing import Iterable

EXIT_OK = 0
EXIT_FAILED = 1  # could not: unreachable node, no accounting, I/O
EXIT_USAGE = 2  # wrong usage or input
EXIT_MATCHED = 3  # `report --fail-if` holds
EXIT_NOT_FOUND = 4  # no such job, recording or device
EXIT_INTERRUPTED = 130


#: likeness takes time that grows with the square of the length
_LONGEST_WORD = 200
_NO_THREAD = "can't start new thread"
NO_PROCESS = "cannot start another process or thread"
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


class ForeignLineError(WireError):
    """A line that no version of gpumon writes."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, or address space (`ulimit -v`), ended; it shows in many ways."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):  # of the dynamic loader
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    if isinstance(error, RuntimeError) and error.__cause__ is not None:  # of __set_name__, in 3.11
        return is_out_of_memory(error.__cause__)
    if _NO_THREAD in str(error):
        return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return isinstance(error, MemoryError)


def require_memory(room_bytes: int) -> None:
    """Raise GpumonError where so much address space is not free.

    A thread that finds no room for its first objects never reports that it runs, and who started it
    waits for ever; without room for its own data glibc ends the process.
    """
    import mmap  # which few programs need

    try:
        mmap.mmap(-1, room_bytes).close()  # of address space; no memory is used
    except (OSError, MemoryError):
        raise GpumonError(NO_MEMORY) from None


def shortage(error: BaseException) -> str:
    """What the system lacks according to this error, and what to do; "" if it is another error."""
    if is_out_of_memory(error):
        return NO_MEMORY
    # of a fork; of a full pipe it has the characters that were written
    no_fork = isinstance(error, BlockingIOError) and not hasattr(error, "characters_written")
    if not no_fork and _NO_THREAD not in str(error):
        return ""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY:
        return f"{NO_PROCESS}; end other programs, or request a higher limit (pids.max)"
    return f"{NO_PROCESS}; 'ulimit -u' allows you {most}: raise it, or end other programs"


def suggestion(word: str, words: Iterable[str]) -> str:
    """`; did you mean 'record'?`, by the known word that is most like it; "" where none is."""
    import difflib  # for mistakes alone

    near = difflib.get_close_matches(word[:_LONGEST_WORD], words, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
