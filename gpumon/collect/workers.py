"""One daemon thread per device, so that a call that never returns holds up only that device.

A thread that hangs inside the driver can be neither interrupted nor replaced (the call may hold
one of the driver's locks): it is left alone until it answers, and dies with the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Deque, Generic, List, Optional, TypeVar, Union

Answer = TypeVar("Answer")


class Round:
    """Waits for the workers asked in one round, but not longer than a deadline.

    Built from two bare locks: a Condition costs a new lock and several wake-ups per wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._number = 0
        self._pending = 0

    def begin(self) -> None:
        """Forget the workers that did not answer in the last round."""
        with self._lock:
            self._number += 1
            self._pending = 0
            self._wake.acquire(blocking=False)

    def enter(self) -> int:
        with self._lock:
            self._pending += 1
            return self._number

    def leave(self, number: int) -> None:
        with self._lock:
            if number != self._number:
                return
            self._pending -= 1
            if self._pending == 0 and self._wake.locked():
                self._wake.release()

    def wait(self, deadline_s: float) -> bool:
        """Whether all who entered have left in time."""
        end = time.monotonic() + deadline_s
        while self._pending > 0:
            left = end - time.monotonic()
            if left <= 0 or not self._wake.acquire(timeout=left):
                return self._pending == 0
        return True


class Worker(Generic[Answer]):
    """A daemon thread that runs one job at a time; its answers wait until they are taken."""

    def __init__(self, name: str, round_: Round) -> None:
        self.busy = False
        self.asked_at = 0.0  # monotonic; of the job that runs, or ran last
        self._name = name
        self._round = round_
        self._number = 0
        self._job: Optional[Callable[[], Answer]] = None
        self._go = threading.Lock()
        self._go.acquire()
        self._answers: Deque[Union[Answer, Exception]] = deque()
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    def ask(self, job: Callable[[], Answer]) -> bool:
        """Start `job` in the thread; False while an earlier one has not come back."""
        if self.busy:
            return False
        self._job, self.busy, self.asked_at = job, True, time.monotonic()
        self._number = self._round.enter()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._go.release()
        return True

    def take(self) -> List[Union[Answer, Exception]]:
        """The answers since the last time, oldest first; an exception is an answer too."""
        answers = []
        while self._answers:
            answers.append(self._answers.popleft())
        return answers

    def close(self) -> None:
        """End the thread once its job has come back; never waits for it."""
        self._closed = True
        if not self.busy and self._thread is not None:
            self.busy = True
            self._go.release()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            job = self._job
            if self._closed or job is None:
                return
            try:
                self._answers.append(job())
            except Exception as error:  # one device's failure, reported as data by the taker
                self._answers.append(error)
            number = self._number  # before `busy` ends: the next `ask` writes it
            self.busy = False
            self._round.leave(number)
            if self._closed:
                return
