"""Threads that read from many pipes: one for the streams of all nodes, one for their errors."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable


class Reading:
    """Has a thread wait for all descriptors that it was given, and read what comes. Thread-safe.

    A thread for each of a thousand nodes takes a thousand stacks, and after each tick all of them
    compete for the interpreter.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._reads: dict[int, Callable[[], bool]] = {}
        self._poll: select.epoll | None = None

    def follow(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Have `read` called in the thread whenever it would not wait, until it returns False.

        It must not raise. The descriptor must stay open until then. Raises RuntimeError where no
        thread can be started.
        """
        with self._lock:
            if self._poll is None:
                poll = select.epoll()
                threading.Thread(
                    target=self._run, args=(poll,), daemon=True, name=self._name
                ).start()
                self._poll = poll
            self._reads[descriptor] = read
            self._poll.register(descriptor, select.EPOLLIN)

    def _run(self, poll: select.epoll) -> None:
        while True:
            for descriptor, _ in poll.poll():
                if not self._reads[descriptor]():
                    with self._lock:  # the number may be another pipe's from here on
                        poll.unregister(descriptor)
                        del self._reads[descriptor]


STREAMS = Reading("streams")
#: beside the streams, whose thread may be busy when somebody asks why one has ended
ERRORS = Reading("errors")
