"""How gpumon ends on a signal, whatever it is doing: soon, and with nothing left behind.

Python's own signal handlers run in the main thread alone, which may be stuck in the kernel, wait
for a lock, or write to a terminal that takes nothing. What the interpreter does in C is done at
once: it writes the signal's number to a pipe, and a thread here waits for that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Optional

SIGNALLED = 128  # shells' convention: 128 + signal
#: how long an orderly end may take; what then is not done is left undone
GRACE_S = 0.6
#: how long each thing that is undone may take
_UNDO_S = 0.1
_ENDS = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
#: for an agent that ends by itself when its input does, unless the driver holds it
_PATIENTLY = """\
end() {  # SIGNAL PID:START...: the groups whose leaders still are what they were (proc(5), stat)
    number=$1; shift
    for leader do
        read -r stat <"/proc/${leader%:*}/stat" || continue
        set -- ${stat##*) }
        [ "${20}" = "${leader#*:}" ] && kill "-$number" "-${leader%:*}"
    done
}
end CONT "$@"; sleep 2; end TERM "$@"; sleep 1; end KILL "$@"
"""

_telling = -1
_code = 0
_leave: Optional[Callable[[int], None]] = None
_undoing: list[Callable[[], None]] = []
_groups: dict[int, bool] = {}  # process group -> whether it may take its time


def watch() -> None:
    """Have SIGTERM and SIGHUP end this program so from now on. For the main thread.

    Where SIGHUP is ignored (nohup), that stays so until a screen opens.
    """
    import threading  # `gpumon --help` comes without

    global _telling
    if _telling >= 0 or threading.current_thread() is not threading.main_thread():
        return
    listening, telling = os.pipe()
    thread = threading.Thread(target=_listen, args=(listening,), daemon=True, name="ending")
    try:
        thread.start()
    except RuntimeError:  # no room for its stack: then signals act as if we had not been here
        return
    _telling = telling
    os.set_blocking(_telling, False)
    signal.set_wakeup_fd(_telling, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handled)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C is an exception, as always; the second ends what that one began."""
    signal.signal(number, _handled)
    signal.default_int_handler(number, frame)


def _handled(_number: int, _frame: object) -> None:
    """Only a signal with a handler is told to the thread."""


@contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[None]:
    """While a screen is open: `leave` is told the exit code, and has the grace to end in order.

    It is called in another thread. SIGINT is then a signal like the others, not an exception.
    """
    global _leave
    watch()
    before = {number: signal.signal(number, _handled) for number in _ENDS}
    _leave = leave
    try:
        yield
    finally:
        for number, handler in before.items():  # one more must not kill what is ending
            signal.signal(number, signal.SIG_IGN if _code else handler)
        _leave = None


def tell(number: signal.Signals) -> None:
    """As if this signal had come: the terminal is gone. From any thread."""
    if _telling >= 0:
        with suppress(BlockingIOError):
            os.write(_telling, bytes([number]))


def code() -> int:
    """128 + the first signal that was to end the program; 0: none did."""
    return _code


@contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """While the body runs, an end that is not in order calls `undo` first."""
    _undoing.append(undo)
    try:
        yield
    finally:
        _undoing.remove(undo)


def adopt(group: int, *, patient: bool = False) -> None:
    """This process group ends with us: at once, or in a few seconds, when it has not by itself."""
    _groups[group] = patient


def release(group: int) -> None:
    """It has ended."""
    _groups.pop(group, None)


def signal_group(leader: int, number: int) -> bool:
    """Send a signal to the process group of a child of ours, unless the child was waited for.

    Until then nothing else has its PID. Afterwards PID and group may be another process's. With 0
    as the number: whether the child is still to be waited for.
    """
    try:
        os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.killpg(leader, number)
    except OSError:
        return False
    return True


def finish() -> None:
    """End the process groups that are left."""
    groups, patient = dict(_groups), []
    _groups.clear()
    for group, may_wait in groups.items():
        if not may_wait:
            signal_group(group, signal.SIGKILL)
        elif signal_group(group, 0):
            with suppress(OSError):  # no descriptor is left to read it
                patient.append(f"{group}:{_start_ticks(group)}")
    if patient:
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        argv = ["sh", "-c", _PATIENTLY, "gpumon", *patient]
        environ = {"PATH": "/usr/bin:/bin"}
        with suppress(OSError):
            os.posix_spawn("/bin/sh", argv, environ, file_actions=null, setsid=True)


def _start_ticks(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]


def _listen(listening: int) -> None:
    import threading

    global _code
    interrupted = False
    while not _code:
        (number,) = os.read(listening, 1)
        if number == signal.SIGINT and not interrupted and _leave is None:
            interrupted = True
        elif number in _ENDS:
            _code = SIGNALLED + number
    leave = _leave
    if leave is not None:
        with suppress(Exception):  # the screen has not begun, or has just ended
            leave(_code)
            threading.Event().wait(GRACE_S)
    for undo in reversed(_undoing):
        thread = threading.Thread(target=undo, daemon=True)
        thread.start()
        thread.join(_UNDO_S)
    finish()
    os._exit(_code)
