"""Runs the calls on each device so that one that never returns holds up only that device.

One daemon thread runs the jobs of all devices in turn, which is far cheaper than a thread for each:
they would spend as much time again on waking up and on the interpreter's lock. As soon as a job
takes longer than a few milliseconds, another thread takes over the jobs behind it.

A thread that hangs inside the driver can be neither interrupted nor replaced (the call may hold
one of the driver's locks): it is left alone until it answers, and dies with the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")

#: how long the other jobs wait for one
_HEAD_START_S = 0.005


class _Job(NamedTuple):
    """What to call, and the round in which it is waited for."""

    call: Callable[[], None]
    round: int


class Crew:
    """The threads that run the workers' jobs, and the round in which their answers are waited for.

    Built from bare locks: a Condition costs a new lock and several wake-ups per wait.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        self._began = 0.0  # monotonic; when the thread that goes on took its last job
        self._runner: _Thread | None = None  # the thread that goes on with the next job
        self._idle: list[_Thread] = []
        self._count = 0
        self._round = 0
        self._pending = 0  # jobs of this round that have not come back
        self._all_back = threading.Lock()
        self._all_back.acquire()
        self._closed = False

    def begin(self) -> None:
        """Begin a round: forget the jobs of the last one that have not come back."""
        with self._lock:
            self._round += 1
            self._pending = 0
            self._all_back.acquire(blocking=False)

    def enter(self, call: Callable[[], None]) -> None:
        """Queue a job; it begins with the next `start` or `wait`."""
        with self._lock:
            self._pending += 1
            self._jobs.append(_Job(call, self._round))

    def start(self) -> None:
        """Have the queued jobs run."""
        with self._lock:
            if self._runner is None:
                self._hand_over()

    def wait(self, deadline_s: float) -> bool:
        """Whether all jobs of the round came back in time; all have begun by then."""
        self.start()
        now = time.monotonic()
        end = now + deadline_s
        while self._pending > 0 and now < end:
            last = min(end, self._began + _HEAD_START_S) if self._jobs else end
            if last > now:
                self._all_back.acquire(timeout=last - now)
            else:
                with self._lock:
                    self._hand_over()
            now = time.monotonic()
        with self._lock:
            while self._jobs:
                self._hand_over()
            if self._pending > 0:
                self._runner = None  # it may hang: the next job gets another thread
            return self._pending == 0

    def close(self) -> None:
        """End the threads once their jobs have come back; never waits for them."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            while self._idle:
                self._idle.pop().go.release()

    def finish(self, thread: _Thread, job: _Job) -> _Job | None:
        """Note that a job has come back; the next one if this is still the thread that goes on."""
        with self._lock:
            if job.round == self._round:
                self._pending -= 1
                if self._pending == 0 and self._all_back.locked():
                    self._all_back.release()
            goes_on = self._runner is thread
            if goes_on and self._jobs:
                self._began = time.monotonic()
                return self._jobs.popleft()
            if goes_on:
                self._runner = None
            if self._closed:
                thread.go.release()
            else:
                self._idle.append(thread)
            return None

    def _hand_over(self) -> None:
        """Have an idle thread go on with the next job; the lock is held."""
        if not self._jobs or self._closed:
            return
        if not self._idle:
            self._idle.append(_Thread(self, f"{self._name}-{self._count}"))
            self._count += 1
        self._runner = self._idle.pop()
        self._runner.job = self._jobs.popleft()
        self._began = time.monotonic()
        self._runner.go.release()


class _Thread(threading.Thread):
    """Runs the job that it is handed, then those behind it while no other thread goes on."""

    def __init__(self, crew: Crew, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.job: _Job | None = None
        self.go = threading.Lock()
        self.go.acquire()
        self._crew = crew
        self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            if self.job is None:
                return  # the crew was closed
            while self.job is not None:
                self.job.call()
                self.job = self._crew.finish(self, self.job)


class Worker(Generic[Answer]):
    """Runs one job at a time; its answers wait until they are taken."""

    def __init__(self, crew: Crew) -> None:
        self.busy = False
        self.asked_at = 0.0  # monotonic; of the job that runs, or ran last
        self._crew = crew
        self._job: Callable[[], Answer] | None = None
        self._answers: deque[Answer | Exception] = deque()

    def ask(self, job: Callable[[], Answer]) -> bool:
        """Queue `job` with the crew; False while an earlier one has not come back."""
        if self.busy:
            return False
        self._job, self.busy, self.asked_at = job, True, time.monotonic()
        self._crew.enter(self._run)
        return True

    def take(self) -> list[Answer | Exception]:
        """The answers since the last time, oldest first; an exception is an answer too."""
        answers = []
        while self._answers:
            answers.append(self._answers.popleft())
        return answers

    def _run(self) -> None:
        assert self._job is not None
        try:
            self._answers.append(self._job())
        except Exception as error:  # one device's failure, reported as data by the taker
            self._answers.append(error)
        self.busy = False
