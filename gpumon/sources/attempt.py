"""One transport tried for one node, in a thread of its own, up to the first sample of the job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpumon.errors import shortage
from gpumon.model import clock
from gpumon.model.sample import Header
from gpumon.sources.follow import Follower, Outcome
from gpumon.transport.stream import Failure, Stream, Transport
from gpumon.transport.unhurried import is_unhurried

#: a stream without a line for so long is a connection that is gone
SILENCE_S = 30.0
_SILENT_INTERVALS = 6
#: an agent may need so long to begin, on a busy node: `transport.payload` gives it 45 s
_BEGIN_S = 50.0


class Attempt:
    """Opens a stream and waits for what it brings; `header` or `failure` is the result."""

    def __init__(
        self,
        transport: Transport,
        start: Callable[[], tuple[Stream, bytes]],
        follower: Follower,
        interval_s: float,
    ) -> None:
        """`start` opens the stream and gives what is to be sent first; it raises Failure."""
        self.transport = transport
        self.header: Header | None = None
        self.failure: Failure | None = None
        self.is_over = False  # the job has ended there
        self._start = start
        self._follower = follower
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._loaded = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._checked = time.monotonic()
        self._waited_s = 0.0

    def run(self, report: Callable[[Attempt], None]) -> None:
        """Begin; `report` is called with this, in its thread, when there is a result."""

        def arrive() -> None:
            try:
                self._arrive()
            except Failure as failure:
                self.failure = failure
            except Exception as error:  # a mistake of ours: said, and the other nodes continue
                mistake = f"internal error: {type(error).__name__}: {error}"
                self.failure = Failure(shortage(error) or mistake)
            if self.header is None:
                self.close()
            report(self)

        name = f"{self.transport.name} {threading.current_thread().name}"
        self._thread = threading.Thread(target=arrive, daemon=True, name=name)
        try:
            self._thread.start()
        except RuntimeError as error:  # no room for its stack
            self.failure = Failure(shortage(error) or str(error))
            report(self)

    def _arrive(self) -> None:
        stream, payload = self._start()
        with self._lock:
            self._stream, late = stream, self._closed
        if late:  # given up while the stream was being opened
            stream.close()
            raise Failure("another transport was faster")
        result = self._follower.arrive(stream, payload, self._set_loaded)
        if isinstance(result, Outcome):
            self.is_over = result.kind == "ended"
            raise Failure(result.text, final=result.final)
        self.header = result

    def _set_loaded(self) -> None:
        self.forgive()  # it may have waited for its turn until now
        self._loaded, self._waited_s = True, 0.0

    def take(self) -> bool:
        """Take what the stream brings next; False at its end."""
        assert self._stream is not None
        return self._follower.take(self._stream)

    def outcome(self) -> Outcome:
        """How the stream ended, which is then closed."""
        assert self._stream is not None
        try:
            return self._follower.outcome(self._stream)
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
        if self._thread is None or not is_unhurried(self._thread.ident):
            self._waited_s += now - self._checked
        self._checked = now
        return self._waited_s

    # -- from other threads

    @property
    def silent_s(self) -> float:
        """For how long nothing has come, where that is more than its interval explains; else 0."""
        if not self._loaded:
            return 0.0
        interval_s = max(self._interval_s, self._follower.interval_s)
        begins_s = _BEGIN_S if self.header is None else 0.0
        least_s = max(SILENCE_S, _SILENT_INTERVALS * interval_s, begins_s)
        silent_s = clock.since_boot() - self._follower.last_line
        return silent_s if silent_s > least_s else 0.0

    def forgive(self) -> None:
        """There is a reason for its silence."""
        self._follower.last_line = clock.since_boot()

    def keep(self) -> None:
        """A sign of life to the agent."""
        if self._stream is not None and self._loaded and not self._closed:
            try:
                self._stream.write(b"\n")
            except OSError:
                pass  # its reader notices the same

    def ask(self, line: bytes) -> bool:
        """Send the agent a request; False where there is none to take it. May block."""
        if self._stream is None or not self._loaded or self._closed:
            return False
        try:
            self._stream.say(line)
        except OSError:
            return False
        return True

    def give_up(self, why: str) -> None:
        self._follower.given_up = why
        self.close()

    def close(self) -> None:
        with self._lock:
            stream, again, self._closed = self._stream, self._closed, True
        if stream is not None and not again:
            stream.close()
