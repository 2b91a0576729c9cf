"""One srun of the relay, and the dashboards that read its nodes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpumon.collect.labels import AFRESH, addressed, end_line, label
from gpumon.transport.pauses import BROKE, LEFT, REFUSED

if TYPE_CHECKING:
    from gpumon.transport.relay.client import Client
    from gpumon.transport.relay.server import Relay

_PIECE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 16
_COMPLAINT_BYTES = 4096
_HEARTBEAT_S = 10.0
#: s without a line after which a node that is left counts as lost
_SILENT_S, _SILENT_INTERVALS = 20.0, 4.0
#: s that srun may need to end with its input: agents end for want of heartbeats after 45 s
_ENDS_S = 75.0
#: the same where no agent has begun: a controller that does not answer may still start the step
_STARTS_S = 600.0
#: s for srun to end with its output, or the other way round
_REAP_S = 1.0
_COUNTS = ("--nodes=", "--ntasks=")


class Node:
    """One node of a step."""

    def __init__(self, now: float) -> None:
        self.clients: set[Client] = set()
        self.is_heard = False
        self.heard_at = now


class Step:
    """One srun."""

    def __init__(self, relay: Relay, request: dict[str, Any], nodes: list[str]) -> None:
        """Raises OSError where srun cannot be started."""
        self._relay = relay
        self.sign = request["sign"]
        now = time.monotonic()
        self._silent_s = max(_SILENT_S, _SILENT_INTERVALS * request["interval_s"])
        self.nodes = {node: Node(now) for node in nodes}
        self._labels = {label(node): node for node in nodes}
        self._process = subprocess.Popen(
            [_for_nodes(word, nodes) for word in request["command"]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env=request["env"], cwd="/", start_new_session=True,
        )  # fmt: skip
        self.begun = relay.pauses.begin(request["job"], gpus=request["gpus"])
        self._began = now
        self._is_heard = False
        self._over_at: float | None = None  # when its output ended, and when it did itself
        self._ended_at: float | None = None
        self._is_told = False  # the dashboards know
        self._closed_at: float | None = None
        self._left_at: float | None = None  # when the last dashboard left
        self._beat_at = now
        self.is_fed = False  # the agents' modules were sent
        self._input = bytearray()
        self._rest = b""
        self._complaint = b""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._in = self._process.stdin.fileno()
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self._in, False)
        relay.watch(self._out, selectors.EVENT_READ, self._read)
        relay.watch(self._err, selectors.EVENT_READ, self._read_complaint)

    # -- dashboards

    @property
    def can_be_joined(self) -> bool:
        return self._closed_at is None and self._over_at is None

    def join(self, node: str, client: Client) -> None:
        self._left_at = None
        known = self.nodes[node]
        known.clients.add(client)
        if known.is_heard:
            self.say(addressed(node, AFRESH + b"\n"))

    def leave(self, node: str, client: Client) -> None:
        known = self.nodes.get(node)
        if known is None or client not in known.clients:
            return
        known.clients.discard(client)
        if known.clients:
            return
        is_silent = time.monotonic() - known.heard_at > self._silent_s
        if is_silent and self._over_at is None:
            self._relay.pauses.end(self.begun, BROKE)
        others = any(each.clients for each in self.nodes.values())
        if is_silent or others:
            del self.nodes[node]
            if others:
                self.say(end_line(node))
        if not others:
            self._left_at = time.monotonic()

    def feed(self, modules: bytes) -> None:
        """The agents' modules, from whoever has sent them first."""
        if not self.is_fed:
            self.is_fed = True
            self._write(modules)

    def say(self, line: bytes) -> None:
        """A line to the agents; before the modules none would understand it."""
        if self.is_fed:
            self._write(line)

    # -- srun

    def _write(self, data: bytes) -> None:
        if self._closed_at is None and self._over_at is None:
            if not self._input:
                self._relay.watch(self._in, selectors.EVENT_WRITE, self._flush)
            self._input += data

    def _flush(self) -> None:
        try:
            del self._input[: os.write(self._in, self._input)]
        except BlockingIOError:
            return
        except OSError:  # srun has gone
            self._input.clear()
        if not self._input:
            self._relay.forget(self._in)

    def _read(self) -> None:
        data = os.read(self._out, _PIECE_BYTES)
        if not data:
            self._relay.forget(self._out)
            self._over_at = time.monotonic()
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_MAX_LINE_BYTES:]
        now = time.monotonic()
        pieces: dict[Client, list[bytes]] = {}
        for line in lines:
            name = self._labels.get(line.partition(b" ")[0], "")
            node = self.nodes.get(name)
            if node is None:
                continue
            self._is_heard = node.is_heard = True
            node.heard_at = now
            for client in node.clients:
                pieces.setdefault(client, []).append(line)
        for client, some in pieces.items():
            client.send(b"\n".join([*some, b""]))

    def _read_complaint(self) -> None:
        data = os.read(self._err, _PIECE_BYTES)
        self._complaint = (self._complaint + data)[-_COMPLAINT_BYTES:]
        if not data:
            self._relay.forget(self._err)

    def tick(self, now: float) -> bool:
        """Whether it is still there."""
        if self._ended_at is None and self._process.poll() is not None:
            self._ended_at = now
        ends = [at for at in (self._over_at, self._ended_at) if at is not None]
        if len(ends) == 2 or any(now - at > _REAP_S for at in ends):
            self._tell_end()
            if self._ended_at is not None:
                self._bury()
                return False
        if self._closed_at is None:
            if self._left_at is not None and now - self._left_at >= self._relay.grace_s:
                self.close(now)
            elif now - self._beat_at >= _HEARTBEAT_S and self.is_fed:
                self._beat_at = now
                self._write(b"\n")
        elif now - self._closed_at > (_ENDS_S if self._is_heard else _STARTS_S):
            self._kill()
        return True

    def close(self, now: float) -> None:
        """End it: its agents end with the input."""
        if self._closed_at is not None:
            return
        self._closed_at = now
        self._relay.forget(self._in)
        assert self._process.stdin is not None
        self._process.stdin.close()
        is_late = not self._is_heard and now - self._began > self._silent_s
        self._relay.pauses.end(self.begun, BROKE if is_late else LEFT)

    def _tell_end(self) -> None:
        """Tell the dashboards that it is over, and why."""
        if self._is_told:
            return
        self._is_told = True
        with suppress(OSError):  # what has come meanwhile
            os.set_blocking(self._err, False)
            self._complaint += os.read(self._err, _PIECE_BYTES)
        lines = [line.strip() for line in self._complaint.splitlines() if line.strip()]
        why = lines[-1] if lines else b""
        is_refused = bool(self._process.returncode) and not self._is_heard
        if is_refused and b"launch" not in why.lower():
            self._relay.pauses.end(self.begun, REFUSED)
        self._relay.pauses.end(self.begun, BROKE)
        self.close(time.monotonic())
        for node, known in self.nodes.items():
            for client in list(known.clients):
                client.lose(node, why)

    def _bury(self) -> None:
        for descriptor in (self._out, self._err):
            self._relay.forget(descriptor)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _kill(self) -> None:
        """Its step is over, or its node is gone. Its child, which would report its death, first."""
        pid = self._process.pid
        with suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                for child in file.read().split():
                    os.kill(int(child), signal.SIGKILL)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _for_nodes(word: str, nodes: list[str]) -> str:
    """A word of srun's command line, for these nodes instead."""
    if word.startswith(_COUNTS):
        return f"{word.split('=')[0]}={len(nodes)}"
    return f"--nodelist={','.join(nodes)}" if word.startswith("--nodelist=") else word
