"""The stacks of processes that somebody looks at. The screen asks and never waits for a node."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from gpumon.model.stack import ANY, PROBE, Stack, Told

#: between two questions about a process whose probe answers; it writes as often
_PERIOD_S = 2.0
#: after so long a node that has not answered is asked again
_PATIENCE_S = 30.0
MAX_STACKS = 16


class Asked(Protocol):
    """A source whose nodes can be asked."""

    tell: Callable[[str, Told], None]

    def ask_stacks(self, name: str, pid: int, how: str) -> bool:
        """As `sources.attach.AttachSource.ask_stacks`."""


class Seen(NamedTuple):
    """A stack, and when it came (monotonic s)."""

    stack: Stack
    at: float


class Stacks:
    """The newest of each process; of few processes."""

    def __init__(self, source: Asked, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, int], tuple[float, str]] = OrderedDict()
        self._seen: dict[tuple[str, int], Seen] = {}
        source.tell = self._take

    def look(self, node: str, pid: int) -> Seen | None:
        """The newest stack of a process that is on the screen now; None before the first answer.

        The probe is asked by itself, again and again while it answers.
        """
        seen, now = self._seen.get((node, pid)), self._clock()
        asked_at, _ = self._asked.get((node, pid), (-_PATIENCE_S, ""))
        is_live = seen is not None and seen.stack.by == PROBE
        answered = seen is not None and seen.at >= asked_at
        is_due = now >= asked_at + (_PERIOD_S if is_live and answered else _PATIENCE_S)
        if is_due and (seen is None or is_live):
            self.ask(node, pid, PROBE)
        return seen

    def is_awaited(self, node: str, pid: int) -> bool:
        """Whether an answer that was asked for by a person is still to come."""
        asked_at, how = self._asked.get((node, pid), (0.0, PROBE))
        seen = self._seen.get((node, pid))
        return how == ANY and (seen is None or seen.at < asked_at)

    def ask(self, node: str, pid: int, how: str = ANY) -> None:
        """Have it read now, by whatever works; in a thread, as a connection may block."""
        with self._lock:
            self._asked[node, pid] = (self._clock(), how)
            self._asked.move_to_end((node, pid))
            while len(self._asked) > MAX_STACKS:
                self._seen.pop(self._asked.popitem(last=False)[0], None)
        ask, words = self._source.ask_stacks, (node, pid, how)
        thread = threading.Thread(target=ask, args=words, daemon=True, name="stack")
        with suppress(RuntimeError):  # no room for its stack; the next drawing asks again
            thread.start()

    def _take(self, node: str, told: Told) -> None:
        """Only what was asked for."""
        with self._lock:
            if told.stack is None or (node, told.stack.pid) not in self._asked:
                return
            self._seen[node, told.stack.pid] = Seen(told.stack, self._clock())
