"""This node: the agent as a child process, its lines read from a pipe; and children in general.

A child and not a thread: a driver that deadlocks holds its caller in the kernel, where not even
SIGKILL reaches it. The screen must quit all the same, and then only the child stays behind until
the driver lets it go.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

import gpumon
from gpumon import ending
from gpumon.errors import WireError
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.text import clean
from gpumon.model.view import Status
from gpumon.sources.base import Feed, Sink
from gpumon.sources.rate import Rate, TooFast
from gpumon.sources.stream import Failure
from gpumon.wire import MAX_LINE_BYTES

BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_READ_BYTES = 1 << 16
_COMPLAINT_BYTES = 1 << 16  # of one line that a child writes to its standard error


class LocalSource:
    """Runs `gpumon collect --until-eof` and feeds its stream; starts it again when it dies."""

    name = "local"

    def __init__(self, node: str, interval_s: float) -> None:
        self._node = node
        self._interval_s = interval_s
        self._axis = Axis(ours=True)
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def start(self, sink: Sink) -> None:
        sink.status(self._node, self._status("connecting", "starting the collectors"))
        self._thread = threading.Thread(target=self._run, args=(sink,), daemon=True, name="local")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        child = self._child
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()  # the agent ends with its input
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            child.kill()  # and one that hangs in the driver goes when the driver lets it

    def _status(self, state: str, detail: str = "") -> Status:
        return Status(state, self.now(), detail, self.name)

    def now(self) -> float:
        return clock.now()

    def _run(self, sink: Sink) -> None:
        attempt = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            why, ended = self._once(sink)
            if self._stopping.is_set():
                return
            if ended:
                sink.status(self._node, self._status("ended", ended))
                return
            if time.monotonic() - began > 60:
                attempt = 0
            wait_s = BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)]
            attempt += 1
            sink.status(self._node, self._status("lost", f"{why}; trying again in {wait_s:.0f} s"))
            self._stopping.wait(wait_s)

    def _once(self, sink: Sink) -> tuple[str, str]:
        """One life of the agent: why it ended, and what its own `end` said ("" if nothing)."""
        environ = dict(os.environ)
        package_dir = os.path.dirname(os.path.dirname(os.path.abspath(gpumon.__file__)))
        paths = [package_dir, environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        command = [sys.executable, "-m", "gpumon.collect", "--until-eof", "--interval"]
        try:
            child = subprocess.Popen(
                [*command, str(self._interval_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                start_new_session=True,  # Ctrl-C is the screen's, not the agent's
            )
        except OSError as error:
            return f"the collectors could not be started: {error.strerror}", ""
        self._child = child
        ending.adopt(child.pid)
        if self._stopping.is_set():  # stop() may have come before there was a child to stop
            child.kill()
        assert child.stdout is not None
        assert child.stderr is not None
        complaint = _Tail(child.stderr)
        feed = Feed(sink, Rate(), self._axis)
        first = True
        try:
            # a line that is longer than any may be comes in parts, which cannot be read
            while line := child.stdout.readline(MAX_LINE_BYTES + 1):
                feed.line(line)
                if first and feed.node:
                    sink.status(feed.node, self._status("live"))
                    first = False
        except (WireError, TooFast) as error:
            child.kill()
            child.wait()
            return str(error), ""
        except (OSError, ValueError):  # the pipe was closed under us
            pass
        code = child.wait()
        ending.release(child.pid)
        return f"the collectors ended (exit {code}) {complaint.last()}".rstrip(), feed.ended


class _Tail:
    """Drains a child's standard error and keeps its last line: a full pipe would stop the child."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._line = b""
        self._thread = threading.Thread(target=self._drain, args=(stream,), daemon=True)
        self._thread.start()

    def _drain(self, stream: IO[bytes]) -> None:
        while line := stream.readline(_COMPLAINT_BYTES):
            if line.strip():
                self._line = line[-400:]

    def last(self) -> str:
        self._thread.join(0.2)
        return clean(self._line.decode("utf-8", "replace").strip(), 200)


class ChildStream:
    """A program of this machine as a Stream. Raises Failure when it cannot be started."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, patience_s: float = 0.3
    ) -> None:
        """`patience_s`: how long `close` leaves it to end with its input before it is killed."""
        self._patience_s = patience_s
        try:
            self._child = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd="/",  # it must hold up no file system
                start_new_session=True,  # Ctrl-C is the screen's
            )
        except OSError as error:
            raise Failure(f"{argv[0]}: {error.strerror}") from None
        ending.adopt(self._child.pid, patient=True)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._input, self._output = self._child.stdin, self._child.stdout
        self._complaint = _Tail(self._child.stderr)
        self._closing = threading.Lock()

    def read(self) -> bytes:
        try:
            return os.read(self._output.fileno(), _READ_BYTES)
        except (OSError, ValueError):
            return b""

    def write(self, data: bytes) -> None:
        try:
            self._input.write(data)
            self._input.flush()
        except ValueError:  # closed by us
            raise BrokenPipeError("closed") from None

    def close(self) -> None:
        with self._closing:
            try:
                self._input.close()
            except OSError:  # what was not yet written
                pass
            try:
                self._child.wait(self._patience_s)
            except subprocess.TimeoutExpired:
                self._child.terminate()
                try:
                    self._child.wait(0.1)
                except subprocess.TimeoutExpired:
                    self._child.kill()
                    return
            ending.release(self._child.pid)

    def complaint(self) -> str:
        return self._complaint.last()


class LocalLauncher:
    """The way to this node itself, open where this process is part of the job."""

    name = "local"
    lacks = ""

    def __init__(self, node: str, *, in_job: bool) -> None:
        self.node = node
        self._in_job = in_job

    def open(self, node: str, argv: list[str]) -> ChildStream:
        if not self._in_job:
            raise Failure("this shell is not in the job", final=True)
        return ChildStream(argv)

    def close(self) -> None:
        """Nothing is shared."""
