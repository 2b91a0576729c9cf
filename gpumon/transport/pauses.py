"""When the next step of a job may start, by what became of those before.

A step that broke is tried again after 60 s, then 2, 4, 8 and 10 min, whichever dashboard tries; a
step that was refused left no trace and is tried again sooner. One that its readers left while all
was well does not count. Steps are kept in a file, so that this holds for a dashboard that is
started again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpumon import private
from gpumon.model import clock as our_clock

#: s; after the start of the last step that counts; twice as long after each more within an hour
PAUSE_S, LONGEST_PAUSE_S, _HOUR_S = 60.0, 600.0, 3600.0
#: s; the same where Slurm refused the step
REFUSED_S = 5.0
#: jobs, and steps of one, of which the newest are kept
_MAX_JOBS, _MAX_STEPS = 256, 32
_MAX_BYTES = 1 << 20

#: what became of a step; "open" is one that runs, or whose end nobody saw
OPEN, BROKE, REFUSED, LEFT = "open", "broke", "refused", "left"


class Begun(NamedTuple):
    """A step, by its job, whether with GPUs, and when it was started (s since boot)."""

    job: str
    gpus: bool
    at: float


class Pauses:
    """The steps of the last hour. Thread-safe."""

    def __init__(
        self,
        within: int | None = None,
        file: str = "",
        clock: Callable[[], float] = our_clock.since_boot,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`within`: the descriptor of the private folder that `file` is in; None: no file."""
        self._is_shared = within is not None  # what runs can be joined
        self._within = within
        self._file = file
        self._clock = clock
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._own: dict[Begun, str] = {}
        self._steps: dict[Begun, str] = {}

    def wait_s(self, job: str, *, gpus: bool) -> float:
        """Seconds until a step may start; 0 for now."""
        with self._lock:
            self._read()
            known = dict(self._steps)
        now = self._clock()
        broke, refused = [], []
        for step, fate in known.items():
            if step.job != job:
                continue
            if fate == BROKE or (fate == OPEN and not (self._is_shared and step in self._own)):
                broke.append(step.at)
            elif fate == REFUSED and step.gpus is gpus:  # the other kind may be granted
                refused.append(step.at)
        due = [
            max(times) + min(pause_s * 2.0 ** (len(times) - 1), LONGEST_PAUSE_S)
            for times, pause_s in ((broke, self._pause_s), (refused, REFUSED_S))
            if times
        ]
        return max(0.0, max(due, default=now) - now)

    def begin(self, job: str, *, gpus: bool) -> Begun:
        """A step starts now."""
        step = Begun(job, gpus, self._clock())
        with self._lock:
            self._note(step, OPEN)
        return step

    def end(self, step: Begun, fate: str) -> None:
        """What became of it; the first word counts."""
        with self._lock:
            if self._own.get(step) == OPEN:
                self._note(step, fate)

    def _note(self, step: Begun, fate: str) -> None:
        self._own[step] = fate
        self._read()
        self._write()

    # -- the file

    def _read(self) -> None:
        """What others know, and ourselves."""
        found = {step: fate for step, fate in self._load().items() if step not in self._own}
        now = self._clock()
        known = sorted({**found, **self._own}.items(), key=lambda each: each[0].at)
        recent = [each for each in known if 0 <= now - each[0].at < _HOUR_S and each[1] != LEFT]
        jobs: dict[str, list[tuple[Begun, str]]] = {}
        for step, fate in recent:
            jobs.setdefault(step.job, []).append((step, fate))
        newest = sorted(jobs.values(), key=lambda steps: steps[-1][0].at)[-_MAX_JOBS:]
        self._steps = {step: fate for steps in newest for step, fate in steps[-_MAX_STEPS:]}
        self._own = {
            step: fate
            for step, fate in self._own.items()
            if fate == OPEN or now - step.at < _HOUR_S
        }

    def _load(self) -> dict[Begun, str]:
        if self._within is None:
            return {}
        try:
            with os.fdopen(private.open_file(self._within, self._file), "rb") as file:
                body = json.loads(file.read(_MAX_BYTES))
            if body["boot"] != _boot():
                return {}
            return {
                Begun(str(job), bool(gpus), float(at)): str(fate)
                for job, gpus, at, fate in body["steps"]
            }
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return {}

    def _write(self) -> None:
        if self._within is None:
            return
        body = {"boot": _boot(), "steps": [[*step, fate] for step, fate in self._steps.items()]}
        fresh = f"{self._file}.{os.urandom(6).hex()}"
        with suppress(OSError):
            try:
                with os.fdopen(private.new_file(self._within, fresh), "wb") as file:
                    file.write(json.dumps(body).encode("ascii"))
                os.rename(fresh, self._file, src_dir_fd=self._within, dst_dir_fd=self._within)
            except OSError:
                os.unlink(fresh, dir_fd=self._within)
                raise


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
