"""A program under measurement: in a terminal or on a pipe, its output read all the time."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

# What programs ask a terminal, and what a modern one answers. Without the answers gpustat waits for
# 20 s, and Textual does not mark the updates that may be shown at once.
ANSWERS = {
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # DEC mode 2026, synchronized output: known, now off
    b"\x1b[6n": b"\x1b[2;5R",  # where is the cursor: of gpumon's question, where REP puts it
    b"\x1b[c": b"\x1b[?62;22c",  # what are you: a VT220 with colours
}
BURST_GAP_S = 0.03  # silence that ends one update of the screen
CONTROL = re.compile(
    rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])|[\x00-\x09\x0b-\x1f]"
)
STARTED_WITHIN_S = 90  # of a busy machine


class EndedEarly(Exception):
    """The program ended while it was to be measured; the text says how."""


class Running:
    """Start a program and count what it writes.

    `size` is (columns, rows) of a terminal, or None for a pipe as standard output. `marker` is a
    text of the first full screen; without one the first byte counts as the first screen.
    """

    def __init__(
        self, argv: list[str], env: dict[str, str], size: tuple[int, int] | None, marker: str
    ) -> None:
        self.bytes = self.updates = 0
        self.first_byte_s: float | None = None
        self.first_screen_s: float | None = None
        self._marker, self._tail = marker.encode(), b""
        self._last_output_s = -1.0
        self._status: int | None = None
        self._began = time.monotonic()
        if size:
            self.pid, self._output = pty.fork()
            if self.pid == 0:
                columns, rows = size
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                _exec(argv, env)
        else:
            self._output, writing = os.pipe()
            self.pid = os.fork()
            if self.pid == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(writing, 1)
                os.dup2(writing, 2)
                _exec(argv, env)
            os.close(writing)

    def start(self) -> None:
        """Read until the first full screen was seen."""
        while self.first_screen_s is None:
            if time.monotonic() - self._began > STARTED_WITHIN_S:
                raise EndedEarly(f"no {self._marker.decode()!r} within {STARTED_WITHIN_S} s")
            self.read(0.2)

    def pump(self, seconds: float) -> float:
        """Read for so long; returns the seconds it took."""
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            self.read(left)
        return time.monotonic() - began

    def send(self, keys: str) -> None:
        """Type at the terminal."""
        os.write(self._output, keys.encode())

    def read(self, timeout_s: float) -> None:
        """Take what comes within this time, once."""
        if not select.select([self._output], [], [], timeout_s)[0]:
            return
        try:
            data = os.read(self._output, 65536)
        except OSError:  # how Linux reports that the other side of a terminal is closed
            data = b""
        if not data:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            lines = CONTROL.sub(b"", self._tail).decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
            raise EndedEarly(f"ended with status {self._status}: {last[:150]}")
        now_s = time.monotonic() - self._began
        for query, answer in ANSWERS.items():
            if query in data:
                os.write(self._output, answer)
        if self.first_byte_s is None:
            self.first_byte_s = now_s
        self._tail = (self._tail + data)[-100_000:]
        if self.first_screen_s is None and self._marker in self._tail:
            self.first_screen_s = now_s
        self.bytes += len(data)
        if now_s - self._last_output_s > BURST_GAP_S:
            self.updates += 1
        self._last_output_s = now_s

    def stop(self) -> None:
        """End the program, politely first, and wait for it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._status is None:
                os.kill(self.pid, number)
                self._wait(3)
        os.close(self._output)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._status is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
            elif select.select([self._output], [], [], 0.02)[0]:
                try:  # a program that cannot write its last words would not end
                    os.read(self._output, 65536)
                except OSError:
                    time.sleep(0.02)


def _exec(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)
