"""The session with the driver: opened in a thread, again when it is lost, and why it is not."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import NamedTuple, Optional

from gpumon.collect.nvml import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    SONAME,
    VERSION_MISMATCH,
    Library,
    NvmlError,
    text_of,
)
from gpumon.collect.nvml_events import XidWatch
from gpumon.collect.workers import Round, Worker

_BACK_OFF_MIN_S = 5.0
_BACK_OFF_MAX_S = 60.0
#: the Xid thread ends within one wait of a second
_WATCH_ENDS_S = 2.0


class Opened(NamedTuple):
    """A session that has begun."""

    library: Library
    watch: XidWatch
    cuda: str
    device_count: int


class Session:
    """Opens the driver's library, and opens it again with back-off; never waits for it itself."""

    def __init__(self, round_: Round, proc: str = "/proc") -> None:
        self.opened: Optional[Opened] = None
        self.note = ""  # a sentence for people while there is no session, or after a new one
        self._proc = proc
        self._worker: Worker[Opened] = Worker("gpumon-nvml", round_)
        self._began = 0.0
        self._retry_at: Optional[float] = None
        self._back_off_s = _BACK_OFF_MIN_S
        self._lost = ""  # why the last session ended

    def begin(self) -> None:
        """Open it for the first time, or after `lose`."""
        old, self.opened = self.opened, None
        if old is not None:
            old.watch.stop()
        self._retry_at = None
        self._began = time.monotonic()
        self._worker.ask(partial(_open, old))

    def lose(self, why: str) -> None:
        """Every device answers that the session is gone: open a new one, at once, then later."""
        if self._retry_at is None:
            self._retry_at = time.monotonic()
            if self._lost:  # lost again: the last attempt did not help
                self._retry_at += self._wait()
            self._lost = why
            self.note = f"The session with the NVIDIA driver was lost ({why}); it is opened again."

    def poll(self) -> Optional[Opened]:
        """The session that has begun since the last time; tries again when it is time."""
        for answer in self._worker.take():
            if isinstance(answer, Opened):
                self.opened = answer
                self.note = self._note_of_opened(answer)
                return answer
            self.note = self._note_of_error(answer)
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self.begin()
        return None

    def silent(self) -> None:
        """It has not come back in time."""
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - self._waited_s()))
        self.note = f"The NVIDIA driver does not answer (nvmlInit since {since})."

    def _waited_s(self) -> float:
        return time.monotonic() - self._began

    def well(self) -> None:
        """The devices answer: the next loss is a new one."""
        self._back_off_s, self._lost = _BACK_OFF_MIN_S, ""

    def close(self) -> None:
        if self.opened is not None:
            self.opened.watch.stop()
        self._worker.close()

    def _wait(self) -> float:
        wait_s = self._back_off_s
        self._back_off_s = min(2 * wait_s, _BACK_OFF_MAX_S)
        return wait_s

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
        self._retry_at = time.monotonic() + self._wait()
        if code == DRIVER_NOT_LOADED:
            return "No NVIDIA driver on this node (its kernel module is not loaded)."
        return f"The NVIDIA driver cannot be used ({error}); it is tried again."


def _open(old: Optional[Opened]) -> Opened:
    if old is not None:
        old.watch.join(_WATCH_ENDS_S)
        old.library.close()
    library = Library()
    return Opened(library, XidWatch(library), library.cuda(), library.device_count())


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
