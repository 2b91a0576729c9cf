"""The relay's process: its socket, its dashboards and its steps, in one thread."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpumon.collect.guest import mark
from gpumon.transport.pauses import Pauses
from gpumon.transport.relay import GRACE_S
from gpumon.transport.relay.client import Client
from gpumon.transport.relay.step import Step

#: together they need fewer than 1024 descriptors, the usual limit, which srun's tasks inherit
MAX_CLIENTS, MAX_STEPS = 400, 150

_TICK_S = 0.5
_IDLE_S = 5.0  # before the first dashboard has come


class Relay:
    """All of it, in one thread."""

    def __init__(
        self, listener: socket.socket, within: int, name: str, grace_s: float = GRACE_S
    ) -> None:
        """`within`: the descriptor of the private folder, where the socket `name` is."""
        self.pauses = Pauses(within, f"{name}.json")
        self.clients: set[Client] = set()
        self.grace_s = grace_s
        self._listener = listener
        self._within = within
        self._name = name
        self._socket = self._found()
        self._steps: list[Step] = []
        self._selector = selectors.DefaultSelector()
        self._is_ending = False
        listener.setblocking(False)
        self.watch(listener.fileno(), selectors.EVENT_READ, self._accept)

    def watch(
        self,
        descriptor: int,
        events: int,
        call: Callable[[], None],
        write: Callable[[], None] | None = None,
    ) -> None:
        """Have `call` called when it is ready, and `write` when it can be written to."""
        if write is not None:
            events |= selectors.EVENT_WRITE
        try:
            self._selector.modify(descriptor, events, (call, write))
        except KeyError:
            self._selector.register(descriptor, events, (call, write))

    def forget(self, descriptor: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def answer(
        self, client: Client, request: dict[str, Any], joined: dict[str, Step]
    ) -> dict[str, Any]:
        """Have a dashboard join its nodes' steps (noted in `joined`); starts what is lacking, if it
        may.
        """
        lacking = []
        for node in map(str, request["nodes"]):
            steps = (each for each in self._steps if each.sign == request["sign"])
            step = next((each for each in steps if each.can_be_joined and node in each.nodes), None)
            if step is None:
                lacking.append(node)
            else:
                joined[node] = step
        why, wait_s, has_started = "", 0.0, False
        if not request["may_start"]:
            lacking = []
        if lacking:
            wait_s = self.pauses.wait_s(request["job"], gpus=request["gpus"])
        if lacking and len(self._steps) >= MAX_STEPS:
            why = "too many steps at once; try again later"
        elif lacking and not wait_s:
            try:
                self._steps.append(step := Step(self, request, lacking))
            except OSError as error:
                why = f"{request['command'][0]}: {error.strerror}"
            else:
                has_started = True
                joined.update(dict.fromkeys(lacking, step))
        for node, step in joined.items():
            step.join(node, client)
        return {"joined": list(joined), "wait_s": wait_s, "why": why, "started": has_started}

    def run(self) -> None:
        """Until there is no step and no dashboard any more."""
        began, ticked, had_any = time.monotonic(), 0.0, False
        while True:
            for key, events in self._selector.select(_TICK_S):
                self._call(key, events)
            now = time.monotonic()
            had_any = had_any or bool(self.clients)
            if now - ticked < _TICK_S:
                continue
            ticked = now
            if self._is_ending:
                for step in self._steps:
                    step.close(now)
            self._steps = [step for step in self._steps if step.tick(now)]
            is_idle = not self._steps and not self.clients and (had_any or now - began > _IDLE_S)
            if is_idle and self._can_leave():
                return

    def _call(self, key: selectors.SelectorKey, events: int) -> None:
        """What waits for this; unless another call has changed that meanwhile."""
        call, write = key.data
        is_writable = bool(events & selectors.EVENT_WRITE) and write is not None
        is_other = write is None or bool(events & selectors.EVENT_READ)
        for wanted, each in ((is_writable, write), (is_other, call)):
            known = self._selector.get_map().get(key.fd)
            if wanted and known is not None and known.data == key.data:
                each()

    def end(self) -> None:
        """End all steps, and then itself."""
        self._is_ending = True

    def _accept(self) -> None:
        with suppress(OSError):
            line, _ = self._listener.accept()
            who = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", who)[1] != os.geteuid() or len(self.clients) >= MAX_CLIENTS:
                line.close()
            else:
                self.clients.add(Client(self, line))

    def _can_leave(self) -> bool:
        """Remove the socket, unless somebody starts or connects just now."""
        lock = os.open(f"{self._name}.lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._within)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        if self._selector.select(0):
            os.close(lock)
            return False
        if self._found() == self._socket:  # not that of one which found us too busy
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._within)
        return True  # the lock goes with this process

    def _found(self) -> int:
        """The number of the file that the socket's name leads to; 0 for none."""
        with suppress(OSError):
            return os.lstat(self._name, dir_fd=self._within).st_ino
        return 0


def main() -> None:
    """`relay LISTENER FOLDER NAME GRACE_S`, the first two being descriptors."""
    mark()
    listener, within, name, grace_s = sys.argv[1:]
    if os.fork():
        os._exit(0)  # who started it need not wait for it
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    relay = Relay(socket.socket(fileno=int(listener)), int(within), name, float(grace_s))
    signal.signal(signal.SIGTERM, lambda *_: relay.end())
    relay.run()
