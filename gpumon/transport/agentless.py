"""A stream of lines that no agent writes: what somebody else measured, in an agent's words."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator


class AgentlessStream:
    """A `Stream`; `_told` gives its lines, and ends when `_closed` is set."""

    def __init__(self, trouble: str = "") -> None:
        self._closed = threading.Event()
        self._trouble = trouble
        self._lines = self._told()

    def _told(self) -> Iterator[bytes]:
        """The lines, as they come; of a class below."""
        return iter(())

    def read(self) -> bytes:
        return next(self._lines, b"")

    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        """Nobody is there to read it."""

    def say(self, line: bytes) -> None:
        raise OSError(errno.ENOENT, "no agent on this node")

    def close(self) -> None:
        self._closed.set()

    def complaint(self) -> str:
        return self._trouble


def line_of(text: str) -> bytes:
    """As an agent would write it."""
    return text.encode("ascii") + b"\n"
