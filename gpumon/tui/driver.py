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
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any, TextIO, TypeVar

from rich.color import ColorSystem
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import CursorPosition
from textual.message import Message

from gpumon import ending
from gpumon.tui.picture import Picture, Run

T = TypeVar("T")

#: what a terminal that took nothing for so long gets no new drawings of
_STALLED_S = 0.5
_STALLED_BYTES = 1 << 16
#: how long leaving waits for a terminal that is slow
_CLOSE_S = 0.2
_CUT_MS = 20  # how often it is looked whether a sequence that was begun has been cut short
_PIECE_BYTES = 1 << 16
#: at once, where writing waits: what mostly fits when there is room (WAKEUP_CHARS of Linux)
_WAITING_BYTES = 256
#: cancels a sequence that was cut; mouse, focus, paste, keys, wrapping, cursor, screen as before
_AS_BEFORE = (
    b"\x18\x1b[?2026l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l"
    b"\x1b[?2004l\x1b[?2048l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)


#: asks whether the terminal knows REP, which repeats a character, also one beyond ASCII (tmux 3.3
#: does not): where is the cursor after it? In the second row, as in the first F3 answers the same
_ASK_REPEATS = "\x1b[2;1H{}\x1b[3b\x1b[6n\x1b[2;1H    "
_REPEATED = (4, 1)  # x and y after it

#: the window's title, onto xterm's stack of them and back
_KEEP_TITLE, _TITLE_BEFORE = "\x1b[22;2t", "\x1b[23;2t"


class Writer(threading.Thread):
    """Writes to the terminal as fast as that takes it; `write` never waits."""

    def __init__(
        self, file: TextIO, watched: int, gone: Callable[[], None], drained: Callable[[], None]
    ) -> None:
        """`gone` is called once when `file` or the descriptor `watched` has lost its terminal;
        `drained` when all was taken that had to wait.
        """
        super().__init__(daemon=True, name="terminal")
        self._file = file
        self._fd = _own(file.fileno())
        self._piece_bytes = _WAITING_BYTES if self._fd == file.fileno() else _PIECE_BYTES
        self._watched = watched
        self._gone = gone
        self._drained = drained
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
                data = data[self._written_now(data) :]
                if not data:
                    return
                self._moved = time.monotonic()
                self._idle.clear()
            self._data += data
        self._awake()

    def _written_now(self, data: bytes) -> int:
        """How much of it the terminal takes at once: mostly all, and no thread has to wake up."""
        if self._fd == self._file.fileno():
            return 0  # writing could wait
        with suppress(OSError):
            return os.write(self._fd, data)
        return 0

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
            is_idle = not self._data
        if is_idle:
            self._idle.set()
            self._drained()
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


class _Ending(threading.Event):
    """An event that `poll` can wait for: `watched` is readable while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.watched, self._told = os.pipe()

    def set(self) -> None:
        if not self.is_set():
            os.write(self._told, b"e")
        super().set()

    def clear(self) -> None:
        if self.is_set():
            os.read(self.watched, 1)
        super().clear()


class Terminal(LinuxDriver):
    """Textual's driver with output that never waits, and an end when the terminal has one."""

    _out: Writer | None = None
    _attributes: list[Any] | None = None  # of the terminal, before all this
    _suspended = False
    _undo: ExitStack | None = None
    _title = ""  # of the window; "": its own

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.exit_event = self._input_ends = _Ending()
        self.picture = Picture()
        self.drained: Callable[[], None] = lambda: None  # called when it takes drawings again

    @property
    def stalled(self) -> bool:
        """Whether a drawing would only wait."""
        return self._out is not None and self._out.stalled

    def write(self, data: str) -> None:
        if self._out is not None:
            self._out.write(data)

    def show(self, parts: Iterable[tuple[int, int, Iterable[Run]]], system: ColorSystem) -> None:
        """Have parts of rows on the terminal, (y, x, runs) each."""
        if changes := self.picture.change(parts, system):
            if self._app._sync_available:
                changes = f"{SYNC_START}{changes}{SYNC_END}"
            self.write(changes)

    def set_title(self, title: str) -> None:
        """Of the window, without control characters; its own comes back at the end."""
        if title != self._title:
            self.write(("" if self._title else _KEEP_TITLE) + f"\x1b]2;{title}\a")
            self._title = title

    def stop_application_mode(self) -> None:
        if self._title:
            self.write(_TITLE_BEFORE)
            self._title = ""  # it is set anew if the program continues
        self.write("\x1b[0m")
        super().stop_application_mode()

    def start_application_mode(self) -> None:
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__  # Textual takes standard error, which may be a log
        self._out = Writer(self._file, self.fileno, self._end, lambda: self.drained())
        self._out.start()
        self.picture.forget()
        with suppress(termios.error):
            self._attributes = termios.tcgetattr(self.fileno)
        self._undo = ExitStack()
        self._undo.enter_context(ending.undone(self._restore))
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.picture.repeats = False
        is_utf8 = (self._file.encoding or "").lower() in ("utf-8", "utf8")
        self.write(_ASK_REPEATS.format("°" if is_utf8 else "#"))

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
        while True:
            try:
                return self.run_input_thread()
            except UnicodeDecodeError:  # pasted bytes, or keys of a Latin-1 terminal: left out
                continue
            except OSError:  # EIO: the terminal is gone, or not ours any more
                return self._end()
            except Exception as error:
                self._app.call_later(self._app._handle_exception, error)
                return

    def run_input_thread(self) -> None:
        """Textual's own looks ten times a second; this waits until something is typed."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self._input_ends.watched, select.POLLIN)
        while not self.exit_event.is_set():
            is_cut = parser._timeout_time is not None  # the Escape key, or what it begins
            typed = self.fileno in dict(poll.poll(_CUT_MS if is_cut else None))
            if typed and (data := os.read(self.fileno, 4096)):
                if text := decode(data):
                    self._process(parser.feed(text))
            elif typed:
                return self._end()
            self._process(parser.tick())

    def _process(self, messages: Iterable[Message]) -> None:
        for each in messages:
            if isinstance(each, CursorPosition):
                self.picture.repeats = (each.x, each.y) == _REPEATED
            else:
                self.process_message(each)

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
            os.write(fd, _AS_BEFORE + (_TITLE_BEFORE.encode() if self._title else b""))
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
