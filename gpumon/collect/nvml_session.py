"""The session with the driver: opened in a thread, again when it is lost, and why it is not."""

from __future__ import annotations

import os
import re
import time
from functools import partial
from typing import NamedTuple, Optional, Tuple, Union

from gpumon.collect.base import Patience
from gpumon.collect.nvml import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    VERSION_MISMATCH,
    Library,
    NvmlError,
    text_of,
)
from gpumon.collect.nvml_events import XidWatch
from gpumon.collect.nvml_load import SONAME
from gpumon.collect.workers import Round, Worker

#: a driver that comes back is seen within 10 s: this, the end of the Xid thread, and one tick
_RETRY_S = 5.0
#: a device that stays away costs the others a new session only so often in the end
_RETRY_MAX_S = 60.0
#: the Xid thread ends within one wait of 2 s
_WATCH_ENDS_S = 3.0
_SILENT_S = 2.0
_MAX_GPUS_LISTED = 256


class Opened(NamedTuple):
    """A session that has begun."""

    library: Library
    watch: XidWatch
    cuda: str
    device_count: int
    listed: Tuple[str, ...] = ()  # GPUs by the kernel module's own list


class Counted(NamedTuple):
    """What a running session says of its devices: a new one is due when that changes."""

    device_count: int
    listed: Tuple[str, ...]


class Session:
    """Opens the driver's library, and opens it again when that may help; never waits for it."""

    def __init__(self, round_: Round, proc: str = "/proc") -> None:
        self.opened: Optional[Opened] = None
        self.note = ""  # a sentence for people while there is no session, or after a new one
        self._proc = proc
        self._old: Optional[Opened] = None  # to be closed before the next one is opened
        self._worker: Worker[Union[Opened, Counted]] = Worker("gpumon-nvml", round_)
        self._began = 0.0
        self._retry_at: Optional[float] = None
        self._count_at = 0.0
        self._end_at: Optional[float] = None  # the session ends once its Xid thread has, or then
        self._patience = Patience(_RETRY_S, _RETRY_MAX_S)
        self._lost = ""  # why the last session ended

    def begin(self) -> None:
        """Open it for the first time, or instead of the one there is."""
        if self.opened is not None:
            self.opened.watch.stop()
            self._old, self.opened = self.opened, None
        self._retry_at = self._end_at = None
        if self._worker.ask(partial(_open, self._old, self._proc)):
            self._began, self._old = time.monotonic(), None
        else:
            self._retry_at = time.monotonic() + _RETRY_S  # it counts devices, and hangs in that

    def poll(self) -> Optional[Opened]:
        """The session that has begun since the last time; tries again when it is time."""
        now = time.monotonic()
        for answer in self._worker.take():
            if isinstance(answer, Opened):
                self._take(answer, now)
                return answer
            if isinstance(answer, Counted):
                self._compare(answer)
            elif self.opened is None:
                self.note = self._note_of_error(answer)
                self._retry_at = now + _RETRY_S
        if self._retry_at is not None and now >= self._retry_at:
            self.begin()
        elif self._worker.busy and self.opened is None and self._waited_s() > _SILENT_S:
            self.silent()
        elif self.opened is not None and now >= self._count_at:
            self._count_at = now + _RETRY_S
            self._worker.ask(partial(_count, self.opened.library, self._proc))
        return None

    def lose(self, why: str) -> None:
        """The session is gone: open a new one at once, then, while that does not help, later."""
        if self.opened is None:
            return
        if not self._lost:
            self.note = f"The session with the NVIDIA driver was lost ({why}); it is opened again."
            self._lost = why
            self._patience.due(time.monotonic())
            self.begin()
        else:
            self.unwell()

    def unwell(self) -> None:
        """Some devices are not well: a new session may find them, though the others can wait."""
        if self._patience.due(time.monotonic()):
            self._end()

    def well(self) -> None:
        """The devices answer: the next loss is a new one."""
        self._patience.reset()
        self._lost = ""

    def go_on(self) -> None:
        """Between two ticks: replace the session as soon as its Xid thread has ended."""
        if self._end_at is None or self.opened is None:
            return
        if self.opened.watch.ended or time.monotonic() >= self._end_at:
            self.begin()

    def silent(self) -> None:
        """It has not come back in time."""
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - self._waited_s()))
        self.note = f"The NVIDIA driver does not answer (nvmlInit since {since})."

    def close(self) -> None:
        if self.opened is not None:
            self.opened.watch.stop()
        self._worker.close()

    def _waited_s(self) -> float:
        return time.monotonic() - self._began

    def _end(self) -> None:
        """Devices are read on while the Xid thread ends, which takes longest."""
        if self.opened is not None and self._end_at is None:
            self.opened.watch.stop()
            self._end_at = time.monotonic() + _WATCH_ENDS_S

    def _take(self, opened: Opened, now: float) -> None:
        self.opened, self._retry_at = opened, None
        self.note = self._note_of_opened(opened)
        self._count_at = now + _RETRY_S

    def _compare(self, counted: Counted) -> None:
        opened = self.opened
        if opened is None:
            return
        if counted != Counted(opened.device_count, opened.listed) or not counted.device_count:
            self._end()

    def _note_of_opened(self, opened: Opened) -> str:
        if opened.device_count == 0:
            return "No NVIDIA device is visible here."
        if self._lost:
            return f"The session with the NVIDIA driver was lost ({self._lost}) and opened again."
        return ""

    def _note_of_error(self, error: Exception) -> str:
        code = error.code if isinstance(error, NvmlError) else 0
        if code == LIBRARY_NOT_FOUND:
            return "No NVIDIA driver on this node."
        if code == VERSION_MISMATCH:
            library, module = library_version(self._proc), module_version(self._proc)
            versions = f" (library {library}, kernel module {module})" if library and module else ""
            return (
                f"The driver was updated while the node ran{versions}: the node needs a reboot; "
                "tell the staff."
            )
        if code == DRIVER_NOT_LOADED:
            return "No NVIDIA driver on this node (its kernel module is not loaded)."
        return f"The NVIDIA driver cannot be used ({error}); it is tried again."


def _open(old: Optional[Opened], proc: str) -> Opened:
    if old is not None:
        old.watch.join(_WATCH_ENDS_S)
        old.library.close()
    library = Library()
    try:
        count = _count(library, proc)
        return Opened(library, XidWatch(library), library.cuda(), *count)
    except BaseException:
        library.close()  # sessions nest: one that is left open would keep its fault for ever
        raise


def _count(library: Library, proc: str) -> Counted:
    """Raises NvmlError."""
    try:
        listed = os.listdir(f"{proc}/driver/nvidia/gpus")
    except OSError:
        listed = []
    return Counted(library.device_count(), tuple(sorted(listed)[:_MAX_GPUS_LISTED]))


def library_version(proc: str) -> str:
    """The version in the file name of the library that this process has mapped; "" if none."""
    pattern = rf"{re.escape(SONAME[:-2])}\.(\d+\.[\d.]+)$"
    return _search(f"{proc}/self/maps", pattern)


def module_version(proc: str) -> str:
    """The version of the kernel module that runs; "" if unknown."""
    return _search(f"{proc}/driver/nvidia/version", r"Kernel Module[^\n]*?\s(\d+\.[\d.]+)\s")


def _search(path: str, pattern: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        found = None
    return text_of(found.group(1).encode()) if found else ""
