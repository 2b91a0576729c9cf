"""A program with a terminal of its own, of which everything can be done to it that users do."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from tests.e2e.program import environment
from tests.support.waiting import until

MARK = "GPUMON_TEST_HELD"
#: less than the 45 s after which an agent ends by itself
SOON_S = 30


class Held:
    """Runs it as a session leader on a pty. `reads` may be cleared: the terminal takes nothing."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        ignored: Sequence[int] = (),
    ) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.found = termios.tcgetattr(self.slave)
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.data = b""
        self.reads = threading.Event()
        self.reads.set()
        self._closed = False

        def take() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        own = {MARK: self._mark, "TERM": "xterm-256color"}
        self.program = subprocess.Popen(
            argv, stdin=self.slave, stdout=self.slave, stderr=self.slave, preexec_fn=take,
            env={**(environment() if env is None else env), **own},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self.left:
            process.kill()
        self.program.kill()
        self.program.wait()
        self.hang_up()

    def _read(self) -> None:
        while not self._closed:
            self.reads.wait()
            if self._closed or not select.select([self.master], [], [], 0.05)[0]:
                continue
            if not self.reads.is_set():
                continue
            try:
                self.data += os.read(self.master, 65536)
            except OSError:
                time.sleep(0.05)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def until(self, words: str) -> None:
        def there() -> bool:
            has_ended = self.program.poll() is not None
            found = words.encode() in self.data
            assert found or not has_ended, (self.program.returncode, self.data[-2000:])
            return found

        until(there, lambda: f"no {words!r} in {self.data[-2000:]!r}")

    def stall(self, keys: str = "") -> None:
        """Take nothing more, and press keys until nothing more fits either."""
        self.reads.clear()
        for key in keys:
            self.type(key)
            time.sleep(0.1)

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.program.send_signal(number)
            time.sleep(0.05)

    def as_before(self) -> None:
        """Once all that it wrote has been read: the terminal's modes, its screen and its mouse."""
        self.reads.set()
        until(self._is_as_before, lambda: f"the terminal is not as it was: {self.data[-2000:]!r}")

    def _is_as_before(self) -> bool:
        on, off = (self.data.rfind(b"\x1b[?1049" + each) for each in (b"h", b"l"))
        mouse_on, mouse_off = (self.data.rfind(b"\x1b[?1000" + each) for each in (b"h", b"l"))
        modes = termios.tcgetattr(self.slave) == self.found
        return modes and off >= on and mouse_off >= mouse_on

    def hang_up(self) -> None:
        """The terminal is gone."""
        if self._closed:
            return
        self._closed = True
        self.reads.set()
        self._thread.join()
        os.close(self.slave)
        os.close(self.master)

    @property
    def left(self) -> list[psutil.Process]:
        """What it started, itself included, that lives."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.environ().get(MARK) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def gone(self, within_s: float = SOON_S) -> None:
        """Wait until it has ended, and everything with it."""
        until(
            lambda: self.program.poll() is not None and not self.left,
            lambda: f"{self.program.poll()}, left: {self.left}",
            within_s,
        )
