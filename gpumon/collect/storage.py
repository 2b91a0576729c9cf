"""Space in the file systems that a job can fill without noticing: temporary directories.

Asking a file system may block for ever (a network mount whose server is gone), so each is
asked by a thread of its own, which is left to itself when it does not come back.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Callable, NamedTuple

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.procfs import look, missing_because
from gpumon.model.reading import TIMEOUT, Missing, Reading, then
from gpumon.model.text import clean

_PERIOD_S = 30.0
_DEADLINE_S = 0.5
_MAX_FILE_SYSTEMS = 8
_MAX_PATH = 256

_LOCAL_TYPES = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "bcachefs")
)
_SCRATCH = re.compile(r"/(?:[\w.-]+/){0,2}[\w.-]*(?:scratch|nvme|ssd|local)[\w.-]*$", re.IGNORECASE)


class Space(NamedTuple):
    """What a file system reports. `free_bytes` is what a user may still write."""

    device: int  # equal for paths in one file system
    total_bytes: int
    used_bytes: int
    free_bytes: int


def measure(path: str) -> Space:
    """Asks the file system of `path`; may block. Raises OSError."""
    device = os.stat(path).st_dev
    answer = os.statvfs(path)
    return Space(
        device,
        answer.f_blocks * answer.f_frsize,
        (answer.f_blocks - answer.f_bfree) * answer.f_frsize,
        answer.f_bavail * answer.f_frsize,
    )


def parse_scratch_mounts(text: str) -> list[str]:
    """Mount points of local file systems that are scratch by their name, from mountinfo."""
    paths = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) >= 6 and kind[0] in _LOCAL_TYPES and _SCRATCH.match(fields[4]):
            paths.append(fields[4])
    return paths


def candidates(environ: Mapping[str, str], mountinfo: str) -> list[tuple[str, str]]:
    """(label, path) of what to ask, the user's own directories first."""
    found = [
        ("slurm_tmpdir", environ.get("SLURM_TMPDIR", "")),
        ("tmpdir", environ.get("TMPDIR", "")),
        ("tmp", "/tmp"),
        ("shm", "/dev/shm"),
    ]
    found += [(os.path.basename(path), path) for path in parse_scratch_mounts(mountinfo)]
    unique: dict[str, str] = {}
    for label, path in found:
        if path.startswith("/") and "\0" not in path and path not in unique.values():
            unique.setdefault(clean(label, 32), path)
    return list(unique.items())[:_MAX_FILE_SYSTEMS]


class _Question:
    """One file system, queried in the background."""

    def __init__(self, path: str, ask: Callable[[str], Space]) -> None:
        self.path = path
        self.answer: Space | Missing = TIMEOUT
        self._ask = ask
        self._thread: threading.Thread | None = None

    @property
    def hangs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self.answer = TIMEOUT
        self._thread = threading.Thread(target=self._run, daemon=True, name="storage")
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        try:
            self.answer = self._ask(self.path)
        except OSError as error:
            self.answer = missing_because(error, Missing("unsupported", "no such directory"))


class Storage:
    """Total, used and free bytes of the file systems in `paths` (label, path)."""

    name = "storage"

    def __init__(
        self,
        environ: Mapping[str, str],
        proc: str = "/proc",
        paths: list[tuple[str, str]] | None = None,
        ask: Callable[[str], Space] = measure,
    ) -> None:
        if paths is None:
            mountinfo = look(f"{proc}/self/mountinfo")
            paths = candidates(environ, "" if isinstance(mountinfo, Missing) else mountinfo)
        self._questions = {label: _Question(path, ask) for label, path in paths}
        self._schedule = Schedule()

    def collect(self, tick: Tick) -> None:
        if not self._schedule.due("disk", _PERIOD_S, tick.mono):
            return
        # beside a question that still hangs, a second one would hang, too; nor is it waited for
        asked = [question for question in self._questions.values() if not question.hangs]
        for question in asked:
            question.start()
        until = time.monotonic() + _DEADLINE_S
        for question in asked:
            question.wait(until - time.monotonic())
        seen: list[int] = []
        for label, question in self._questions.items():
            answer = question.answer
            if isinstance(answer, Missing):
                if (
                    answer.reason != "unsupported"
                ):  # a path that does not exist is not a file system
                    tick.put("disk", label, _row(question.path, answer))
            elif answer.device not in seen:
                seen.append(answer.device)
                tick.put("disk", label, _row(question.path, answer))


def _row(path: str, answer: Space | Missing) -> dict[str, Reading]:
    row: dict[str, Reading] = {"path": clean(path, _MAX_PATH)}
    if not isinstance(answer, Missing) and answer.total_bytes <= 0:
        answer = Missing("unsupported", "not reported by the file system")
    for field in ("total_bytes", "used_bytes", "free_bytes"):
        row[field] = then(answer, attrgetter(field))
    return row
