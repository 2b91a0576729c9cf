"""One transport tried for one node: its stream, from opening it until it has ended, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from gpumon.errors import WireError, shortage
from gpumon.model import clock
from gpumon.model.sample import JOB_ENDED, NO_JOB, WRONG_JOB, Event, Header, Sample
from gpumon.model.spacing import Spacing
from gpumon.store.turn import TURNS
from gpumon.transport.intake import Intake, Lines
from gpumon.transport.rate import Rate, TooFast
from gpumon.transport.stream import Failure, Stream, Transport
from gpumon.transport.unhurried import is_unhurried
from gpumon.wire.stacks import ANSWER

if TYPE_CHECKING:
    from gpumon.sources.attach import NodeRun

#: a stream without a line for so long is a connection that is gone
SILENCE_S = 30.0
_SILENT_INTERVALS = 6
#: an agent may need so long to begin, on a busy node: `transport.payload` gives it 45 s
_BEGIN_S = 50.0


class Attempt:
    """Opens a stream and waits for the first sample of the job, in a thread of its own; `header` or
    `failure` is the result. What comes then is taken by one thread at a time.
    """

    def __init__(
        self, transport: Transport, node: NodeRun, now: Callable[[], float] = clock.now
    ) -> None:
        """`now`: our clock, epoch s."""
        self.transport = transport
        self.header: Header | None = None
        self.failure: Failure | None = None
        self._node = node
        self._now = now
        self._intake, self._lines, self._spacing = Intake(Rate()), Lines(), Spacing()
        self._held: Iterable[tuple[Header | Sample, float]] = ()  # for `take`, each with its time
        self._end: Event | None = None  # the agent's last word
        self._why = ""  # why no more is taken
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._is_loaded = self._is_closed = False
        self._thread: int | None = None
        self._last_line = clock.since_boot()
        self._checked = time.monotonic()
        self._waited_s = 0.0

    def run(self, report: Callable[[Attempt], None]) -> None:
        """Begin; `report` is called with this, in its thread, when there is a result."""

        def arrive() -> None:
            self._thread = threading.get_ident()
            try:
                self.arrive()
            except Failure as failure:
                self.failure = failure
            except Exception as error:  # a mistake of ours: said, and the other nodes continue
                self.failure = Failure(shortage(error) or mistake(error))
            if self.header is None:
                self.close()
            report(self)

        beside(arrive, f"{self.transport.name} {threading.current_thread().name}")

    def arrive(self) -> None:
        """Wait for the first sample of the job. Raises Failure with why there is none."""
        stream, payload = self._node.open(self.transport)
        with self._lock:
            self._stream, late = stream, self._is_closed
        if late:  # given up while the stream was being opened
            stream.close()
            raise Failure("another transport was faster")
        with suppress(OSError):  # it went away before it had read the agent; its complaint says why
            stream.write(payload)
            self.forgive()  # it may have waited for its turn until now
            self._is_loaded, self._waited_s = True, 0.0
            if self._finds_first():
                return
        raise Failure(self.outcome(), final=self._ends_for(WRONG_JOB))

    def _finds_first(self) -> bool:
        header: tuple[Header, float] | None = None
        while not self._why and (items := self._read()) is not None:
            with TURNS.of_stream():
                for item, received in items:
                    if isinstance(item, Header):
                        header = item, received
                    elif self._is_the_jobs(item) and header is not None:
                        self._held = chain([header, (item, received)], items)
                        self.header = header[0]
                        return True
        return False

    def take(self) -> bool:
        """Take what comes next, first of all what `arrive` has read; False when the agent or the
        stream has ended.
        """
        held, self._held = self._held, ()
        items = held or self._read()
        if items is None:
            return False
        with TURNS.of_stream():
            for item, received in items:
                self._take(item, received)
                if self._end is not None:
                    break
        return self._end is None and not self._why

    def _read(self) -> Iterator[tuple[Header | Sample, float]] | None:
        """What the next piece of the stream holds, to be decoded as it is taken; None: nothing
        more is taken. Who quits must not wait for what a thousand nodes have sent.
        """
        data = b""
        if self._stream is not None and not self._node.is_done:
            with suppress(OSError):
                data = self._stream.read()
        if not data:
            return None
        self.forgive()
        self._node.heard()
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Iterator[tuple[Header | Sample, float]]:
        try:
            for line in self._lines.feed(data):
                if self._node.is_done:
                    return
                if line.startswith(ANSWER):
                    if (answer := self._intake.answer(line)) is not None:
                        self._node.told(answer)
                    continue
                for item in self._intake.line(line):
                    yield item, self._now()
        except (WireError, TooFast) as error:
            self._why = str(error)

    def _take(self, item: Header | Sample, received: float) -> None:
        if isinstance(item, Header):
            self._node.header(self.transport, self._node.axis.header(item, received))
            return
        self._is_the_jobs(item)
        if item.rows:
            self._spacing.note(clock.since_boot())
        self._node.add(self._node.axis.sample(item, received), received)

    def _is_the_jobs(self, sample: Sample) -> bool:
        """Notes also whether it is the agent's last."""
        self._end = next((event for event in sample.events if event.kind == "end"), None)
        return not self._ends_for(WRONG_JOB, NO_JOB)

    def _ends_for(self, *whys: str) -> bool:
        return self._end is not None and self._end.data.get("why") in whys

    def outcome(self) -> str:
        """Why the stream ended, which is then closed; the node is told if the job has, too."""
        assert self._stream is not None
        try:
            if self._end is not None:
                if self._ends_for(JOB_ENDED):
                    self._node.ended = self._node.ended or self._end.text
                return self._end.text
            return self._why or self._stream.complaint() or "the connection was closed"
        finally:
            self.close()

    def descriptor(self) -> int | None:
        """What is readable when `take` would not wait; see `Stream`."""
        return self._stream.descriptor() if self._stream is not None else None

    def waited_s(self) -> float:
        """For how long it has made no step: it connects, or the agent starts. Not counted is what
        it waits for a person, or for its turn.
        """
        now = time.monotonic()
        if not is_unhurried(self._thread):
            self._waited_s += now - self._checked
        self._checked = now
        return self._waited_s

    # -- from other threads

    @property
    def silent_s(self) -> float:
        """For how long nothing has come, where that is more than its interval explains; else 0.

        The interval is that of the samples, as the stream says, or as they come where that is less.
        """
        if not self._is_loaded:
            return 0.0
        interval_s, header = self._node.interval_s, self._intake.header
        if header is not None:
            interval_s = max(interval_s, self._spacing.interval_s(header.interval_s))
        begins_s = _BEGIN_S if self.header is None else 0.0
        least_s = max(SILENCE_S, _SILENT_INTERVALS * interval_s, begins_s)
        silent_s = clock.since_boot() - self._last_line
        return silent_s if silent_s > least_s else 0.0

    def forgive(self) -> None:
        """Something has come, or there is a reason for its silence."""
        self._last_line = clock.since_boot()

    def send(self, line: bytes = b"") -> bool:
        """Send the agent a request, else a sign of life; False where there is none to take it. May
        block.
        """
        if self._stream is None or not self._is_loaded or self._is_closed:
            return False
        try:
            self._stream.say(line) if line else self._stream.write(b"\n")
        except OSError:  # its reader notices the same
            return False
        return True

    def give_up(self, why: str) -> None:
        self._why = why
        self.close()

    def close(self) -> None:
        with self._lock:
            stream, again, self._is_closed = self._stream, self._is_closed, True
        if stream is not None and not again:
            stream.close()


def beside(call: Callable[[], None], name: str | None = None) -> threading.Thread | None:
    """The thread that runs this; None where there can be none (`ulimit -u`): then it was run."""
    thread = threading.Thread(target=call, daemon=True, name=name)
    try:
        thread.start()
    except RuntimeError:
        call()
        return None
    return thread


def mistake(error: Exception) -> str:
    """One of ours, as people are told of it."""
    return f"internal error: {type(error).__name__}: {error}"
