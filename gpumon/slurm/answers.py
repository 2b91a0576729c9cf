"""Answers of Slurm's commands that all programs of one user on one machine share.

Each answer is a file in a folder of the user's own: a checksum, a line of JSON with the question
and the time, and what the command printed, as it was. It is written under another name and moved
into place. Who asks holds a lock meanwhile; the others wait for the answer. Times are those since
boot, which no clock that is set moves, and the question holds the boot, the host and whatever else
decides who answers. Where anything here does not work, each program asks for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from gpumon import private
from gpumon.model import clock as our_clock
from gpumon.slurm.pace import Question, Told
from gpumon.slurm.runner import Result, SlurmTimeoutError

#: bytes of an answer that is shared, and of all; and how many there are
MAX_ANSWER_BYTES = 1 << 20
MAX_BYTES = 16 << 20
MAX_ANSWERS = 64
#: s; older ones are removed when another one is written
_KEPT_S = 3600.0
_LOOK_S = 0.05
#: s; so much later than it should, who asks has ended or stands still
_LATE_S = 1.0
_FORMAT = 1
_SUFFIXES = (".answer", ".lock", ".new")
#: s; no command of Slurm is given longer, so what says otherwise is damaged
_LONGEST_S = 600.0
#: variables that decide which cluster Slurm's commands ask
_STEERING = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS")


class SharedAnswers:
    """The answers in a folder, for one place where commands run ("" for this machine)."""

    def __init__(
        self,
        folder: str,
        place: str = "",
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = our_clock.since_boot,
    ) -> None:
        self._folder = folder
        self._place = place
        self._environ = environ
        self._clock = clock

    def ask(
        self,
        question: Question,
        usable: Callable[[Told], bool],
        call: Callable[[Told | None], Told],
        timeout_s: float,
    ) -> Told:
        """As `pace.Answers` has it. Raises SlurmTimeoutError where another program still waits."""
        try:
            within = self._open()
        except OSError:
            return call(None)
        entry = _Entry(within, self._key(question), self._clock)
        with contextlib.closing(entry):
            return self._ask(entry, usable, call, timeout_s)

    def _ask(
        self,
        entry: _Entry,
        usable: Callable[[Told], bool],
        call: Callable[[Told | None], Told],
        timeout_s: float,
    ) -> Told:
        until = self._clock() + timeout_s
        while not entry.lock(timeout_s):
            last = entry.read()
            if last is not None and usable(last):
                return last
            if self._clock() >= until:
                if self._place or not entry.is_asked():  # a login may wait for a password
                    break
                raise SlurmTimeoutError(
                    f"Slurm is not responding: {entry.program} took over {timeout_s:g} s, "
                    "called by another gpumon of yours; try again later"
                )
            time.sleep(_LOOK_S)
        last = entry.read()
        if last is not None and usable(last):
            return last
        told = call(last)
        entry.write(told)
        return told

    def _open(self) -> int:
        private.make_folder(self._folder)
        return private.open_folder(self._folder)

    def _key(self, question: Question) -> str:
        """The question with all that decides who answers it, and on which clock."""
        who = [
            os.geteuid(),
            os.uname().nodename,
            _boot(),
            self._place,
            "" if self._place else shutil.which(question[0]) or "",
            [self._environ.get(name, "") for name in _STEERING],
        ]
        return json.dumps([_FORMAT, *who, *question])


class _Entry:
    """One question's answer and lock, in an open folder, which is closed with it."""

    def __init__(self, within: int, key: str, clock: Callable[[], float]) -> None:
        self._within = within
        self._key = key
        self._clock = clock
        self._lock: int | None = None
        self._name = hashlib.sha256(key.encode()).hexdigest()[:32]
        self.program = json.loads(key)[7]

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # and with it the lock
        os.close(self._within)

    # -- who asks

    def lock(self, timeout_s: float) -> bool:
        """Whether it is ours to ask: nobody else does, or should have had an answer by now (it may
        stand still), or locks do not work here.
        """
        try:
            if self._lock is None:
                self._lock = private.open_file(self._within, f"{self._name}.lock", os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._lock, f"{self._clock() + timeout_s:020.3f}".encode(), 0)
        except BlockingIOError:
            until = self._until()
            return until is not None and until < self._clock()
        except OSError:
            pass
        return True

    def is_asked(self) -> bool:
        """Whether who has the lock may still get an answer."""
        return (self._until() or 0.0) >= self._clock()

    def _until(self) -> float | None:
        """When who has the lock is late; None where that is not known: it has just begun."""
        assert self._lock is not None
        try:
            until = float(os.pread(self._lock, 20, 0)) + _LATE_S
        except (OSError, ValueError):
            return None
        return until if until < self._clock() + _LONGEST_S else None

    # -- what is known

    def read(self) -> Told | None:
        """The last answer; None where there is none, or not a whole one."""
        try:
            file = private.open_file(self._within, f"{self._name}.answer")
        except OSError:
            return None
        try:
            with os.fdopen(file, "rb") as stream:
                told = _decoded(stream.read(MAX_ANSWER_BYTES), self._key)
        except OSError:
            return None
        return told if told is not None and told.at <= self._clock() else None

    def write(self, told: Told) -> None:
        """Let the others have it, if it is small enough, and newer than what they have."""
        data = _encoded(told, self._key)
        last = self.read()
        if len(data) > MAX_ANSWER_BYTES or (last is not None and last.at > told.at):
            return
        fresh, name = f"{self._name}.{secrets.token_hex(6)}.new", f"{self._name}.answer"
        with contextlib.suppress(OSError):
            try:
                with os.fdopen(private.new_file(self._within, fresh), "wb") as stream:
                    stream.write(data)
                os.rename(fresh, name, src_dir_fd=self._within, dst_dir_fd=self._within)
            except OSError:
                os.unlink(fresh, dir_fd=self._within)
                raise
            _tidy(self._within, name)


def _encoded(told: Told, key: str) -> bytes:
    error = told.result.err.encode("utf-8", "surrogatepass")
    head = {
        "key": key, "at": told.at, "code": told.result.code, "delimiter": told.delimiter,
        "failures": told.failures, "timeout": told.timeout, "error_bytes": len(error),
    }  # fmt: skip
    data = json.dumps(head).encode("ascii") + b"\n" + error + told.result.out
    return _checksum(data) + b"\n" + data


def _decoded(data: bytes, key: str) -> Told | None:
    """The answer in a file; None for anything that `_encoded` did not make of this question."""
    checksum, _, data = data.partition(b"\n")
    if checksum != _checksum(data):
        return None
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        if head["key"] != key:
            return None
        size = int(head["error_bytes"])
        error = body[:size].decode("utf-8", "surrogatepass")
        return Told(
            float(head["at"]), Result(int(head["code"]), body[size:], error),
            str(head["delimiter"]), int(head["failures"]), str(head["timeout"]),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode("ascii")


def _tidy(within: int, written: str) -> None:
    """Remove what is old beside the file just written, then the oldest of too many.

    What is in use elsewhere is only lost.
    """
    files = sorted(_files(within), reverse=True)
    now = next((at for at, _, name in files if name == written), 0.0)
    size = 0
    for place, (at, bytes_, name) in enumerate(files):
        size += bytes_
        too_many = place >= 2 * MAX_ANSWERS or size > MAX_BYTES
        if too_many or abs(now - at) > _KEPT_S:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=within)


def _files(within: int) -> Iterator[tuple[float, int, str]]:
    """(time, bytes, name) of each file of ours."""
    with os.scandir(within) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.endswith(_SUFFIXES):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.name


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
