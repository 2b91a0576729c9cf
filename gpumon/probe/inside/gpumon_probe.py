"""gpumon's probe: tells what a program's own Python knows of its GPU memory, steps and waits.

`sitecustomize.py` beside it loads this as soon as PyTorch, JAX or TensorFlow is imported. It
imports nothing of gpumon, prints nothing, and starts nothing on a device: a thread looks a few
times a second at what they hold and at where the main thread stands, and every two seconds writes a
small file. For Python 3.6 and later, with the standard library alone (docs/probe.md).

What runs on the program's own threads is marked `_unfelt`. It touches no file, waits for the
probe's thread for a moment at most, and raises nothing. Whatever goes wrong there ends the probe
for good.
"""

import gc
import os
import sys
from _thread import allocate_lock as _lock
from _thread import get_ident
from time import perf_counter as _clock

from gpumon_file import File, may_be_written
from gpumon_looks import Places, Pools, rank, worker
from gpumon_steps import Steps
from gpumon_thread import Thread, is_patched

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.25, 5.0  # while there is nothing to tell
_STACK_S = 0.25  # between two looks at the main thread
_SOONEST_S = 0.01  # whatever a clock says
_WRITE_S = 2.0
_MOST_FAULTS = 3
_MOST_UNWRITTEN = 30  # a minute: a full disk may have room again, or the program a descriptor
_SLOW_S = 5.0  # of a file system in which a write takes that long the next may never end
_LONGEST_WAIT_S = 0.5  # of the program for the probe's thread, at a fork and at the exit
_FORK_S = 0.01  # more than what Python does between a fork and its count of threads


def _unfelt(enter: "Callable[..., None]") -> "Callable[..., None]":
    """On the program's own threads nothing is raised: any fault ends the probe."""

    def entered(probe: "Probe", *given: object) -> None:
        try:
            enter(probe, *given)
        except Exception:
            probe.stop()

    return entered


class Probe:
    """One process: its thread, and the file that it writes."""

    def __init__(self, find: "Callable[[], str]", main: "int | None" = None) -> None:
        """`find`: the folder to write into, "" if there is none; called on the thread.

        `main`: the main thread, which only a program that imported `threading` knows.
        """
        self.is_over = False
        self._finds = [find]
        self._folder = ""
        self._is_known = self._is_known_to_multiprocessing = False
        self._is_first_at_exit = self._hears_collections = False
        self._steps = Steps()
        self._renew(main)

    def _renew(self, main: "int | None") -> None:
        self._pid = os.getpid()
        self._thread: "Thread | None" = None
        self._file: "File | None" = None
        self._starting = _lock()  # a thread that a fork ended may hold the last one
        self._pools, self._places = Pools(), Places(main)
        self._steps.forget()
        self._steps.wake_at_next(self._stepped)
        self._has_begun = self._has_device = self._is_last = False
        self._worker: "int | None" = None
        self._faults = self._unwritten = 0
        self._is_forking = self._is_paused = False
        self._forked = 0.0
        # a thread that a fork ends leaves to the next what is due
        self._look_s, self._written = _FIRST_LOOK_S, 0.0
        self._due = _clock() + self._look_s

    def stop(self) -> None:
        """For good."""
        self.is_over = True
        self._steps.stop()

    # -- on the program's own threads

    @_unfelt
    def found(self, beside_others: bool = True, is_this: bool = False) -> None:
        """A framework is being imported, or one is in use: have a thread look.

        `is_this`: the one that calls.
        """
        if self.is_over:
            return
        self._steps.hook(beside_others=beside_others)
        if self._thread is not None or self._is_forking or not self._starting.acquire(False):
            return
        if is_patched():
            self.stop()
        elif self._thread is None:
            self._make_known()
            self._is_paused = False
            self._thread = Thread(self._run, is_this)
        self._starting.release()

    def look_also(self, find: "Callable[[], str]") -> None:
        """Where there is no folder so far, in this one."""
        self._finds.append(find)
        self.found()

    def thread_for_this(self) -> "Thread | None":
        """Which the calling one, of whom the program knows nothing, is to run."""
        self.found(False, True)
        return self._thread

    @_unfelt
    def step(self) -> None:
        """The program has made a step of its own."""
        if not self.is_over:
            if self._thread is None:
                self._stepped()
            self._steps.called()

    @_unfelt
    def _stepped(self) -> None:
        """The first step, or the first behind a fork; the program may end before the next look."""
        self._end_before_others()
        self.found(False)

    def _make_known(self) -> None:
        """To what ends a thread otherwise: forks and the exit."""
        if self._is_known:
            return
        self._is_known = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.pause, after_in_parent=self._resume, after_in_child=self._reborn
            )
        import atexit

        atexit.register(self._end)

    def _end_before_others(self) -> None:
        """Before the framework, which is there by now: what ends first was registered last."""
        if not self._is_first_at_exit and self._is_known:
            import atexit

            self._is_first_at_exit = True
            atexit.unregister(self._end)
            atexit.register(self._end)

    @_unfelt
    def pause(self) -> None:
        """Before a fork: a process with threads is forked with care; Python warns of it."""
        self._is_forking = True
        thread, self._thread = self._thread, None
        if thread is not None and not thread.end(_LONGEST_WAIT_S):
            self.stop()

    @_unfelt
    def _resume(self) -> None:
        """Behind a fork, but not before Python has counted the threads for its warning.

        Where a device is in use there are others, and it warns anyway. Else at the next step or
        import of a framework, or when Python collects garbage.
        """
        self._is_forking = False
        if self._has_device:
            self.found(False)
        elif not self.is_over:
            self._wait_for_a_sign()
            self._steps.wake_at_next(self._stepped)

    def _wait_for_a_sign(self) -> None:
        self._forked, self._is_paused = _clock(), True
        if not self._hears_collections:  # for good: taking a callback back, Python skips the next
            self._hears_collections = True
            gc.callbacks.append(self._collecting)

    @_unfelt
    def _collecting(self, *_: object) -> None:
        if self._is_paused and not self._is_forking and _clock() > self._forked + _FORK_S:
            self.found(False)

    @_unfelt
    def _reborn(self) -> None:
        """In a fork's child: its own counts, its own file, and a thread once it is sure to stay.

        One that only prepares to become another program may do what needs a single thread. A child
        of `multiprocessing` stays.
        """
        if self.is_over:
            return
        self._renew(get_ident())
        self._wait_for_a_sign()
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._is_known_to_multiprocessing:
            self._is_known_to_multiprocessing = True
            util.register_after_fork(self, Probe._stepped)

    @_unfelt
    def _end(self) -> None:
        """At the exit: the thread writes what it has, if that takes no longer than a moment."""
        if self._pid == os.getpid():
            self._is_last = True
            if self._thread is None and not self.is_over and self._steps.look():
                self.found(False)
            if self._thread is not None:
                self._thread.end(_LONGEST_WAIT_S)
        self.stop()

    # -- on the probe's thread

    def _run(self, thread: Thread) -> None:
        while not self._folder:
            if not self._finds:
                return self.stop()
            self._folder = self._finds.pop(0)()
        while thread.goes_on(min(max(self._due - _clock(), _SOONEST_S), _SLOWEST_LOOK_S)):
            if self.is_over or is_patched():
                return self.stop()
            self._faultless(self._look, _clock())
        if self._is_last and not self.is_over and (self._has_begun or self._steps.look()):
            self._faultless(self._write, _clock())

    def _faultless(self, do: "Callable[[float], None]", now: float) -> None:
        try:
            do(now)
        except OSError:
            self._unwritten += 1
        except Exception:
            self._faults += 1
        is_slow = _clock() > now + _SLOW_S
        if is_slow or self._unwritten > _MOST_UNWRITTEN or self._faults >= _MOST_FAULTS:
            self.stop()

    def _look(self, now: float) -> None:
        self._due = now + self._look_s
        self._steps.hook(beside_others=False)
        has_steps = self._steps.look()
        if not self._has_begun:
            self._has_device = bool(self._pools.read())
            self._worker = worker()
            self._has_begun = self._has_device or self._worker is not None or has_steps
            slower_s = min(1.2 * self._look_s, _SLOWEST_LOOK_S)
            self._look_s = _STACK_S if self._has_begun else slower_s
            return
        self._end_before_others()
        self._places.look(now, self._worker is not None)
        if now >= self._written + _WRITE_S:
            self._written = now
            self._write(now)
            self._unwritten = 0

    def _write(self, now: float) -> None:
        import json

        pools = self._pools.read()
        self._has_device = bool(pools)
        told: "dict[str, Any]" = {
            "pools": pools,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "order": os.environ.get("CUDA_DEVICE_ORDER"),
        }
        told.update(self._steps.told(now))
        told.update(self._places.told(now))
        told.update({"rank": rank()} if self._worker is None else {"worker": self._worker})
        told["stack"] = [] if self._is_last else self._places.stack()  # there it is the probe's own
        if self._file is None:
            self._file = File(self._folder)
        self._file.write(json.dumps(told).encode())


def _given() -> str:
    folder = os.environ.get("GPUMON_PROBE_DIR", "")
    try:
        return folder if may_be_written(folder) else ""
    except OSError:
        return ""


#: `MAIN`: put there by who loads this file
_PROBE = Probe(_given, globals().get("MAIN"))


def begin() -> None:
    """Begin to look, if there is a folder to write to; called when a framework is imported."""
    _PROBE.found()


def thread_for_this() -> "Thread | None":
    """The same on the calling thread."""
    return _PROBE.thread_for_this()


def watch(find: "Callable[[], str]") -> None:
    """Begin to look; where no folder was given, or none that can be used, with this one."""
    global _PROBE
    if _PROBE.is_over:
        _PROBE = Probe(find)
    _PROBE.look_also(find)


def step() -> None:
    """Count a step that the program calls one."""
    _PROBE.step()


def pause() -> None:
    """Before a fork."""
    _PROBE.pause()
