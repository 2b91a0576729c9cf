"""A dashboard's connection to the relay, for some nodes."""

from __future__ import annotations

import json
import selectors
import socket
from typing import TYPE_CHECKING

from gpumon.collect.labels import addressed, end_line, label, over_line

if TYPE_CHECKING:
    from gpumon.transport.relay.server import Relay
    from gpumon.transport.relay.step import Step

#: bytes that wait for one dashboard, which is cut off beyond; of a request, and of the modules
MAX_WAITING_BYTES = 8 << 20
MAX_REQUEST_BYTES = 4 << 20
_MAX_MODULES_BYTES = 4 << 20
_PIECE_BYTES = 1 << 16


class Client:
    """A dashboard's connection for some nodes."""

    def __init__(self, relay: Relay, line: socket.socket) -> None:
        self._relay = relay
        self._line = line
        self._steps: dict[str, Step] = {}  # node -> the step that it is in
        self._in = bytearray()
        self._out = bytearray()
        self._left_bytes: int | None = None  # of the modules
        self._modules = bytearray()
        self._has_asked = False
        self._is_ending = False
        line.setblocking(False)
        relay.watch(line.fileno(), selectors.EVENT_READ, self._read)

    def send(self, data: bytes) -> None:
        if len(self._out) + len(data) > MAX_WAITING_BYTES:
            self.close()  # it does not read: the others go on
            return
        if not self._out:
            self._relay.watch(self._line.fileno(), selectors.EVENT_READ, self._read, self._flush)
        self._out += data

    def lose(self, node: str, why: bytes) -> None:
        """No more comes of this node."""
        self._steps.pop(node, None)
        if not self._steps:
            self._end(why)  # before who reads the last node asks why
        self.send(over_line(label(node)))

    def close(self) -> None:
        """It has gone, or is cut off."""
        if self._line.fileno() < 0:
            return
        self._relay.forget(self._line.fileno())
        self._line.close()
        self._relay.clients.discard(self)
        for node, step in self._steps.items():
            step.leave(node, self)
        self._steps = {}

    def _end(self, why: bytes = b"") -> None:
        self._is_ending = True
        self.send(b"\0" + why + b"\n")

    def _flush(self) -> None:
        try:
            del self._out[: self._line.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._out:
            if self._is_ending:
                self.close()
            else:
                self._relay.watch(self._line.fileno(), selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        try:
            data = self._line.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._in += data
        if not self._has_asked:
            self._ask()
        if self._has_asked:
            self._take()

    def _ask(self) -> None:
        line, end, rest = self._in.partition(b"\n")
        if not end:
            if len(line) > MAX_REQUEST_BYTES:
                self.close()
            return
        self._in = rest
        self._has_asked = True
        try:
            answer = self._relay.answer(self, json.loads(line), self._steps)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.close()
            return
        self.send(json.dumps(answer).encode("ascii") + b"\n")
        if not self._steps:
            self._end()

    def _take(self) -> None:
        """The modules first, then lines."""
        if self._left_bytes is None:
            line, end, rest = self._in.partition(b"\n")
            if not end or not line.isdigit() or int(line) > _MAX_MODULES_BYTES:
                if end or len(line) > len(str(_MAX_MODULES_BYTES)):
                    self.close()
                return
            self._left_bytes, self._in = int(line), rest
            self._modules += line + b"\n"
        if self._left_bytes:
            piece = self._in[: self._left_bytes]
            del self._in[: len(piece)]
            self._left_bytes -= len(piece)
            self._modules += piece
            if self._left_bytes:
                return
        if self._modules:
            for step in set(self._steps.values()):
                step.feed(bytes(self._modules))
            self._modules.clear()
        *lines, self._in = self._in.split(b"\n")
        for line in lines:
            self._hear(bytes(line))
        if len(self._in) > MAX_REQUEST_BYTES:
            self.close()

    def _hear(self, line: bytes) -> None:
        """Heartbeats are this process's own; a word for a node, and its end."""
        for node, step in list(self._steps.items()):
            if line + b"\n" == end_line(node):
                del self._steps[node]
                step.leave(node, self)
            elif line.startswith(addressed(node, b"")):
                step.say(line + b"\n")
