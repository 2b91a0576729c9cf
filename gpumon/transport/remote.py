"""A command through a login shell: each word unchanged, and its output without the shell's.

What a shell's start-up files print comes before the command's own output. So the shell says a
mark first; what comes before it is dropped, and the mark itself tells that the command runs.
"""

from __future__ import annotations

import random
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpumon.model.text import clean
from gpumon.transport.intake import MAX_NOISE_BYTES, NOISE
from gpumon.transport.reading import ERRORS
from gpumon.transport.stream import Failure
from gpumon.transport.unhurried import unhurried

OPENING_AT_ONCE = 8
#: how often a connection is tried that a busy server drops
TRIES = 6
_FIRST_PAUSE_S = 0.25
_COMPLAINT_BYTES = 8192
_MOST_PATIENCE = 8.0  # times the first

_MARK = b"gpumon-is-here\n"
#: a line end first: the start-up files' last line may have none
_SEEN = re.compile(rb"\n" + re.escape(_MARK.strip()) + rb"\r?\n")


def shell_command(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """For the login shell: the mark, then `argv` in the shell's place, with `env` added."""
    words = ["env", *(f"{name}={value}" for name, value in env.items()), *argv] if env else argv
    return f"echo; echo {_MARK.decode().strip()}; exec {shlex.join(words)}"


#: a login shell's profile may be what puts Slurm's commands into PATH; what it prints is dropped
_FIND = (
    'command -v "$0" >/dev/null || { [ ! -r /etc/profile ] || . /etc/profile; } >/dev/null 2>&1; '
    'exec "$0" "$@"'
)


def with_profile(argv: Sequence[str]) -> list[str]:
    """`argv`, after /etc/profile where its program is not in PATH without that."""
    return ["/bin/sh", "-c", _FIND, *argv]


class Start:
    """Finds the mark in what the shell writes, in pieces of any size."""

    def __init__(self) -> None:
        self._tail = b""
        self._noise_bytes = 0
        self.seen = False

    def feed(self, data: bytes) -> bytes:
        """What of it is the command's own output. Raises Failure where too much comes before."""
        if self.seen:
            return data
        self._tail += data
        mark = _SEEN.search(self._tail)
        if mark is None:
            self._noise_bytes += len(data)
            if self._noise_bytes > MAX_NOISE_BYTES:
                raise Failure(NOISE)
            self._tail = self._tail[-len(_MARK) - 2 :]
            return b""
        rest = self._tail[mark.end() :]
        self.seen, self._tail = True, b""
        return rest


def check_host(name: str) -> None:
    """Raises Failure for what cannot be `[USER@]HOST`: it would be taken for an option."""
    odd = not name.isascii() or not name.isprintable() or any(c in name for c in " '\"\\`$;&|<>(),")
    if odd or not name or name.startswith("-") or "@-" in name or name.endswith("@"):
        raise Failure("not a valid host name", final=True, try_next=False)


class Complaint:
    """Drains a remote command's standard error, whose full window would stop the command.

    read: the next piece, b"" at the end. `descriptor`: what is readable when that would not wait;
    without it a thread of its own waits.
    """

    def __init__(self, read: Callable[[], bytes], descriptor: int | None = None) -> None:
        self._end = b""
        self._read = read
        self._has_ended = threading.Event()
        if descriptor is None:
            threading.Thread(target=self._drain, daemon=True).start()
        else:
            ERRORS.follow(descriptor, self._take)

    def _drain(self) -> None:
        while self._take():
            pass

    def _take(self) -> bool:
        """The next piece; False at the end."""
        try:
            piece = self._read()
        except (OSError, EOFError, ValueError):  # closed under us
            piece = b""
        self._end = (self._end + piece)[-_COMPLAINT_BYTES:]
        if not piece:
            self._has_ended.set()
        return bool(piece)

    def text(self, wait_s: float = 0.0) -> str:
        """The end of it, as it came; waits at most `wait_s` for more. Not clean."""
        self._has_ended.wait(wait_s)
        return self._end.decode("utf-8", "replace")

    def last(self, wait_s: float = 0.0) -> str:
        """The last line that is not blank, cleaned."""
        lines = [line for line in self.text(wait_s).splitlines() if line.strip()]
        return clean(lines[-1].strip(), 200) if lines else ""


class Slots:
    """At most 8 connections being opened per server at once.

    sshd's default MaxStartups is 10:30:100: from the tenth unfinished login on it drops some.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[object, threading.Semaphore] = {}

    @contextmanager
    def of(self, server: object) -> Iterator[None]:
        """Holds one of the server's slots, once there is one."""
        with self._lock:
            slot = self._servers.setdefault(server, threading.Semaphore(OPENING_AT_ONCE))
        with unhurried():
            slot.acquire()
        try:
            yield
        finally:
            slot.release()


class Patience:
    """How long the shell of a node may take to begin.

    Its start-up files may take turns with those of all other nodes, in a home directory that they
    share (pyenv waits for its turn up to 60 s): who gives up and comes again makes the line longer.
    """

    def __init__(self, seconds: float) -> None:
        self._first_s = seconds
        self._late: dict[str, int] = {}

    def of(self, node: str) -> float:
        """Seconds; twice as many after each time that they were not enough."""
        return self._first_s * min(2.0 ** self._late.get(node, 0), _MOST_PATIENCE)

    def note(self, node: str, *, late: bool) -> None:
        """How it was this time."""
        self._late[node] = self._late.get(node, 0) + 1 if late else 0


def tries() -> Iterator[int]:
    """The numbers of the tries at a server that may be busy, from 0; sleeps between them."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(pause_s(attempt - 1))
        yield attempt


def pause_s(attempt: int) -> float:
    """Longer each time, and never the same for all who were turned away together."""
    return random.uniform(0.5, 1.5) * _FIRST_PAUSE_S * 2.0**attempt
