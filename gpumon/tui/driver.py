"""The terminal below Textual: it may take nothing for a while, and it may go away.

Textual's own driver writes through a queue of 30 pieces, on which the whole program waits when the
terminal takes nothing, and it reads the end of a terminal that is gone over and over.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TextIO, TypeVar

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from gpumon import ending

T = TypeVar("T")

#: what a terminal that took nothing for so long gets no new drawings of
_STALLED_S = 0.5
_STALLED_BYTES = 1 << 16
#: how long leaving waits for a terminal that is slow
_CLOSE_S = 0.2
_PIECE_BYTES = 1 << 16
#: at once, where writing waits: what mostly fits when there is room (WAKEUP_CHARS of Linux)
_WAITING_BYTES = 256
#: cancels a sequence that was cut; mouse, focus, paste, keys, wrapping, cursor, screen as before
_AS_BEFORE = (
    b"\x18\x1b[?2026l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l"
    b"\x1b[?2004l\x1b[?2048l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)


class Writer(threading.Thread):
    """Writes to the terminal as fast as that takes it; `write` never waits."""

    def __init__(self, file: TextIO, watched: int, gone: Callable[[], None]) -> None:
        """`gone` is called once when `file` or the descriptor `watched` has lost its terminal."""
        super().__init__(daemon=True, name="terminal")
        self._file = file
        self._fd = _own(file.fileno())
        self._piece_bytes = _WAITING_BYTES if self._fd == file.fileno() else _PIECE_BYTES
        self._watched = watched
        self._gone = gone
        self._lock = threading.Lock()
        self._data = bytearray()
        self._moved = 0.0
        self._woken, self._wake = os.pipe()
        self._closing = False
        self._idle = threading.Event()
        self._idle.set()

    def write(self, text: str) -> None:
        data = text.encode(self._file.encoding or "utf-8", self._file.errors or "replace")
        with self._lock:
            if not data or self._closing:
                return
            if not self._data:
                self._moved = time.monotonic()
                self._idle.clear()
            self._data += data
        self._awake()

    @property
    def stalled(self) -> bool:
        """Whether the terminal takes less than it is given."""
        with self._lock:
            waits = bool(self._data) and time.monotonic() - self._moved > _STALLED_S
            return waits or len(self._data) > _STALLED_BYTES

    def close(self) -> bool:
        """Whether all was written in time."""
        written = self._idle.wait(_CLOSE_S)
        with self._lock:
            self._closing = True
            self._data.clear()
        self._awake()
        return written

    def _awake(self) -> None:
        with suppress(OSError):
            os.write(self._wake, b"w")

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._watched, 0)  # an end is always reported
        while not self._closing:
            poll.register(self._fd, select.POLLOUT if self._data else 0)
            events = dict(poll.poll())
            if events.pop(self._woken, 0):
                os.read(self._woken, 4096)
            if events and (events != {self._fd: select.POLLOUT} or not self._write_some()):
                with self._lock:
                    self._closing = True
                self._idle.set()
                self._gone()
        if self._fd != self._file.fileno():
            os.close(self._fd)
        os.close(self._woken)
        os.close(self._wake)

    def _write_some(self) -> bool:
        """False: the terminal is gone."""
        with self._lock:
            piece = bytes(self._data[: self._piece_bytes])
        try:
            count = os.write(self._fd, piece)
        except BlockingIOError:  # less room than it said
            time.sleep(0.02)
            return True
        except OSError:
            return False
        with self._lock:
            del self._data[:count]
            self._moved = time.monotonic()
            if not self._data:
                self._idle.set()
        return True


def _own(fd: int) -> int:
    """The same terminal, opened so that writing never waits; `fd` itself where that cannot be.

    The flag must not be set on `fd`: the shell shares that.
    """
    if os.isatty(fd):
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{fd}", flags)
    return fd


class Terminal(LinuxDriver):
    """Textual's driver with output that never waits, and an end when the terminal has one."""

    _out: Writer | None = None
    _attributes: list[Any] | None = None  # of the terminal, before all this
    _suspended = False
    _undo: ExitStack | None = None

    @property
    def stalled(self) -> bool:
        """Whether a drawing would only wait."""
        return self._out is not None and self._out.stalled

    def write(self, data: str) -> None:
        if self._out is not None:
            self._out.write(data)

    def start_application_mode(self) -> None:
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__  # Textual takes standard error, which may be a log
        self._out = Writer(self._file, self.fileno, self._end)
        self._out.start()
        with suppress(termios.error):
            self._attributes = termios.tcgetattr(self.fileno)
        self._undo = ExitStack()
        self._undo.enter_context(ending.undone(self._restore))
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        super().close()
        self._close_output()

    def _close_output(self) -> None:
        if self._out is not None and not self._out.close():
            self._restore()
        if self._undo is not None:
            self._undo.close()

    def _end(self) -> None:
        ending.tell(signal.SIGHUP)

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except OSError:  # EIO: the terminal is gone, or not ours any more
            self._end()
        except BaseException:
            from rich.traceback import Traceback

            self._app.call_later(self._app.panic, Traceback())

    def _sigtstp_application(self, *_: object) -> None:
        self._suspended = True
        super()._sigtstp_application()

    def _sigcont_application(self, *_: object) -> None:
        """After SIGSTOP nothing was left in order, and the shell has used the terminal since."""
        if not self._auto_restart or self._out is None:
            return
        before = self._attributes
        if not self._suspended:
            self.disable_input()
            self._close_output()
            self._must_signal_resume = True
        self._suspended = False
        self.resume_application_mode()
        self._attributes = self.attrs_before = before
        self._app.call_later(self._app.refresh)

    def _restore(self) -> None:
        """Leave the terminal as it was, though it may take nothing; never waits."""
        if self._attributes is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self._attributes)
        shared = sys.__stdout__.fileno() if sys.__stdout__ is not None else -1
        fd = _own(shared)
        if fd == shared:
            return  # could wait for ever
        with suppress(termios.error, OSError):
            termios.tcflush(fd, termios.TCOFLUSH)
            os.write(fd, _AS_BEFORE)
        os.close(fd)


def run_screen(app: App[T]) -> T | None:
    """Run the app until its user, a signal or the end of the terminal ends it; its result.

    `gpumon.ending.code()` tells whether it was a signal.
    """

    def leave(code: int) -> None:
        loop = app._loop
        if loop is None:
            raise RuntimeError("not running")
        loop.call_soon_threadsafe(app.exit, None, code)

    with ending.leaving(leave):
        return app.run()
