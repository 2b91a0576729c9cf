"""The session with the driver: opened in a thread, again when it is lost, and why it is not."""

from __future__ import annotations

import time
from functools import partial

from gpumon.collect.base import Backoff
from gpumon.collect.nvml.answers import Counted, NoSession, Opened
from gpumon.collect.nvml.workers import Crew, Worker
from gpumon.model.sample import NO_DEVICE

#: a driver that comes back is seen within 10 s: this, the end of the Xid thread, and one tick
_RETRY_S = 5.0
#: a device that stays away costs the others a new session only so often in the end
_RETRY_MAX_S = 60.0
#: the Xid thread ends within one wait of 3 s
WATCH_ENDS_S = 4.0
_SILENT_S = 2.0


class Session:
    """Opens the driver's library, and opens it again when that may help; never waits for it."""

    def __init__(self, crew: Crew, proc: str = "/proc") -> None:
        self.opened: Opened | None = None
        self.note = ""  # a sentence for people while there is no session, or after a new one
        self._proc = proc
        self._crew = crew
        self._old: Opened | None = None  # to be closed before the next one is opened
        self._worker: Worker[Opened | Counted] = Worker(crew)
        self._began = 0.0
        self._retry_at: float | None = None
        self._count_at = 0.0
        self._end_at: float | None = None  # the session ends once its Xid thread has, or then
        self._backoff = Backoff(_RETRY_S, _RETRY_MAX_S)
        self._lost = ""  # why the last session ended

    def begin(self) -> None:
        """Open it for the first time, or instead of the one there is."""
        if self.opened is not None:
            self.opened.watch.stop()
            self._old, self.opened = self.opened, None
        self._retry_at = self._end_at = None
        if self._worker.ask(partial(_open, self._old, self._proc)):
            self._began, self._old = time.monotonic(), None
            self._crew.start()
        else:
            self._retry_at = time.monotonic() + _RETRY_S  # it counts devices, and hangs in that

    def poll(self) -> Opened | None:
        """The session that has begun since the last time; tries again when it is time."""
        now = time.monotonic()
        for answer in self._worker.take():
            if isinstance(answer, Opened):
                self._take(answer, now)
                return answer
            if isinstance(answer, Counted):
                self._compare(answer)
            elif self.opened is None:
                self._fail(answer, now)
        if self._retry_at is not None and now >= self._retry_at:
            self.begin()
        elif self._worker.busy and self.opened is None and self._waited_s() > _SILENT_S:
            self.silent()
        elif self.opened is not None and now >= self._count_at:
            self._count_at = now + _RETRY_S
            self._worker.ask(partial(_count, self._proc))
        return None

    def lose(self, why: str) -> None:
        """The session is gone: open a new one at once, then, while that does not help, later."""
        if self.opened is None:
            return
        if not self._lost:
            self.note = f"The session with the NVIDIA driver was lost ({why}); reopening it."
            self._lost = why
            self._backoff.due(time.monotonic())
            self.begin()
        else:
            self.unwell()

    def unwell(self) -> None:
        """Some devices are not well: a new session may find them, though the others can wait."""
        if self._backoff.due(time.monotonic()):
            self._end()

    def well(self) -> None:
        """The devices answer: the next loss is a new one."""
        self._backoff.reset()
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
        self.note = f"The NVIDIA driver is not responding (in nvmlInit since {since})."

    def close(self) -> None:
        if self.opened is not None:
            self.opened.watch.stop()

    def _waited_s(self) -> float:
        return time.monotonic() - self._began

    def _end(self) -> None:
        """Devices are read on while the Xid thread ends, which takes longest."""
        if self.opened is not None and self._end_at is None:
            self.opened.watch.stop()
            self._end_at = time.monotonic() + WATCH_ENDS_S

    def _take(self, opened: Opened, now: float) -> None:
        self.opened, self._retry_at = opened, None
        self.note = self._note_of_opened(opened)
        self._count_at = now + _RETRY_S

    def _fail(self, error: Exception, now: float) -> None:
        self._retry_at = now + _RETRY_S
        if isinstance(error, NoSession):
            self.note = str(error)
        elif isinstance(error, ImportError):  # of the binding
            self.note, self._retry_at = f"GPUs cannot be read: {error}.", None
        else:
            self.note = f"The NVIDIA driver cannot be used ({error}); retrying."

    def _compare(self, counted: Counted) -> None:
        if self.opened is not None and (counted != self.opened.counted or not counted.devices):
            self._end()

    def _note_of_opened(self, opened: Opened) -> str:
        if not opened.counted.devices:
            return NO_DEVICE
        if self._lost:
            return (
                f"The session with the NVIDIA driver was lost ({self._lost}) and has been reopened."
            )
        return ""


def _open(old: Opened | None, proc: str) -> Opened:
    from gpumon.collect.nvml import driver  # late, since it imports NVIDIA's binding

    return driver.open_session(old, proc, WATCH_ENDS_S)


def _count(proc: str) -> Counted:
    from gpumon.collect.nvml import driver

    return driver.count(proc)
