"""The thread of gpumon's probe, of which a program is to feel nothing.

Runs where `gpumon_probe.py` runs, under the same rules. Locks, clocks and the start of threads are
taken as they are at import: a program may put others in their places.
"""

import _signal as signal  # type: ignore[import-not-found]
import _thread
from _thread import allocate_lock as _lock
from _thread import start_new_thread as _start
from os import PRIO_PROCESS, getpriority
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_GONE_LOOKS, _GONE_LOOK_S = 100, 0.00005  # each a bit later, together 0.25 s; usual are 50 µs
_get_id = getattr(_thread, "get_native_id", None)  # from Python 3.8 on; 3.12 is the first to warn


def is_patched() -> bool:
    """Whether threads are no threads, as behind `gevent.monkey.patch_all()` and eventlet's."""
    made: "tuple[Any, ...]" = (_start, _lock, _thread.start_new_thread, _thread.allocate_lock)
    return any(type(each) is not type(len) for each in made)


class Thread:
    """One that `threading` does not list, and that takes no signal.

    A program may block a signal to wait for it; faults of the thread itself are not blocked.
    """

    def __init__(self, run: "Callable[[Thread], None]", is_this: bool = False) -> None:
        """`is_this`: the one that calls this, and then `run_here`, is to be it.

        Raises RuntimeError where there can be no more threads.
        """
        self._do, self._is_this = run, is_this
        self._asked, self._ended = _lock(), _lock()  # held until then
        self._is_asked, self._id = False, 0
        self._asked.acquire()
        self._ended.acquire()
        if not is_this:
            _start(self._run, ())

    def run_here(self) -> None:
        """If that is what this one is for."""
        if self._is_this:
            self._run()

    def _run(self) -> None:
        try:
            make_deaf()
            self._id = _get_id() if _get_id is not None else 0
            self._do(self)
        except BaseException:  # which Python would print
            pass
        finally:
            self._ended.release()

    def goes_on(self, seconds: float) -> bool:
        """Wait so long; whether nobody asked for the end."""
        return not self._asked.acquire(True, seconds)

    def end(self, within_s: float) -> bool:
        """Whether it ended, for the kernel too: there it lives on for a moment."""
        if not self._is_asked:
            self._is_asked = True
            self._asked.release()
        if not self._ended.acquire(True, within_s):
            return False
        self._ended.release()
        for n in range(_GONE_LOOKS if self._id else 0):
            try:
                getpriority(PRIO_PROCESS, self._id)
            except OSError:
                break
            sleep(n * _GONE_LOOK_S)
        return True


def make_deaf() -> None:
    """Let this thread take no signal."""
    faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
    kept = (*faults, 32, 33)  # the last two are glibc's own
    signal.pthread_sigmask(signal.SIG_BLOCK, [n for n in range(1, signal.NSIG) if n not in kept])
