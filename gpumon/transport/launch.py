"""One srun and the streams of its nodes, which share its input and its output."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable
from contextlib import suppress

from gpumon.collect.labels import Joiner, addressed, end_line
from gpumon.errors import WireError
from gpumon.model.text import clean
from gpumon.transport.intake import Lines
from gpumon.transport.stream import Stream
from gpumon.wire import MAX_LINE_BYTES

_BRIEFLY_S = 0.2  # what `close` may take
_TOO_MUCH = "cut off: it sent more than could be read"
_LINE_BYTES = 64  # of any line, beside what it holds
_PREFIX = re.compile(r"^(srun|slurmstepd|slurmstepd-\S+): (error: )?")
#: lines of one node that wait to be taken
MAX_WAITING_BYTES = 16 << 20


class Launch:
    """One running srun, or our share of one, and the streams of its nodes."""

    def __init__(
        self,
        stream: Stream,
        nodes: list[str],
        start_s: float,
        over: Callable[[Launch], None] = lambda launch: None,
    ) -> None:
        """`over` is called when it has ended."""
        self._stream = stream
        self._over = over
        self._why = ""  # it ended, as the relay says
        self._lock = threading.Lock()
        self._sent = 0
        self._start_s = start_s
        self._is_late = self._is_heard = False
        self.is_refused = False  # srun ended before any agent began
        self.streams = {node: NodeStream(self, node) for node in nodes}
        self.open_nodes = set(nodes)
        self._timer = threading.Timer(start_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()
        # last: what ends at once needs all of the above
        threading.Thread(target=self._read, daemon=True, name="srun").start()

    def send(self, position: int, data: bytes) -> None:
        """Bytes for all tasks, from this position on; what was sent already is not sent again."""
        with self._lock:
            fresh = data[max(0, self._sent - position) :]
            self._sent += len(fresh)
            if fresh:
                self._stream.write(fresh)

    def say(self, node: str, line: bytes) -> None:
        """To the agent of one node; `_sent` counts what all tasks are sent alike."""
        with self._lock:
            if self._sent:  # all of the agent's modules, which come first
                self._stream.write(addressed(node, line))

    def leave(self, node: str) -> None:
        """One node's stream was closed: its agent ends, and with the last one srun."""
        self.open_nodes.discard(node)
        if not self.open_nodes:
            self.close()
        elif self._lock.acquire(timeout=_BRIEFLY_S):
            try:
                if self._sent:  # all of the agent's modules, which come first
                    self._stream.write(end_line(node))
            except OSError:
                pass  # srun has gone
            finally:
                self._lock.release()

    def close(self) -> None:
        self._timer.cancel()
        self._stream.close()
        for stream in self.streams.values():
            stream.put(b"")

    def complaint(self) -> str:
        late = f"no answer within {self._start_s:.3g} s" if self._is_late else ""
        return _PREFIX.sub("", self._why or self._stream.complaint()) or late

    def _read(self) -> None:
        with suppress(WireError):  # a line without end: the rest cannot be told apart either
            self._take_lines()
        self.is_refused = not self._is_heard and not self._is_late
        self._over(self)
        self.close()
        while self._stream.read():  # else srun would wait for somebody who does
            pass

    def _take_lines(self) -> None:
        joiner = Joiner(MAX_LINE_BYTES)
        lines = Lines()
        while data := self._stream.read():
            for line in lines.feed(data):
                if line.startswith(b"\0"):
                    self._why = clean(line[1:].decode("utf-8", "replace").strip(), 200)
                piece = joiner.piece(line)
                stream = self.streams.get(piece[0]) if piece else None
                if not piece or stream is None:
                    continue
                if piece[1]:  # else no more comes of it, if anything did
                    self._timer.cancel()
                    self._is_heard = True
                stream.put(piece[1])

    def _give_up(self) -> None:
        self._is_late = True
        self.close()


class NodeStream:
    """One node's share of a launch."""

    def __init__(self, launch: Launch, node: str) -> None:
        self._launch = launch
        self._node = node
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._put_bytes = self._read_bytes = 0  # each changed by one thread only
        self._is_cut = False
        self._position = 0
        self._ended = self._closed = False

    def put(self, line: bytes) -> None:
        """A line for who reads this node; more than may wait cuts it off: the reader of all nodes
        must not wait for one.
        """
        if self._is_cut or self._closed:
            return
        self._is_cut = self._put_bytes - self._read_bytes > MAX_WAITING_BYTES
        self._put_bytes += len(line) + _LINE_BYTES
        self._lines.put(b"" if self._is_cut else line)

    def read(self) -> bytes:
        if self._ended:
            return b""
        line = self._lines.get()
        self._read_bytes += len(line) + _LINE_BYTES
        self._ended = not line
        return line

    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        self._launch.send(self._position, data)
        self._position += len(data)

    def say(self, line: bytes) -> None:
        self._launch.say(self._node, line)

    def close(self) -> None:
        self.put(b"")
        self._closed = True
        self._launch.leave(self._node)

    def complaint(self) -> str:
        return _TOO_MUCH if self._is_cut else self._launch.complaint()
