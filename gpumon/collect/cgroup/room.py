"""Room for a guest: how much memory the cgroups around this process can still take.

A job that is near its limit is killed by whoever asks for the last page. So nothing of gpumon's is
started in a job where less than `START_BYTES` are free (`transport.payload` has the same test for
the shell), and what runs there leaves when less than `LEAVE_BYTES` are.

Before a start only page cache that nobody used lately counts as free: it costs the job nothing.
Who runs leaves only where the kernel could not make room by dropping any of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from gpumon.collect.cgroup.path import UNIFIED, Mount, locate, mounts_of
from gpumon.collect.procfs import look, parse_count, parse_table
from gpumon.model.reading import Missing

#: of one agent, measured as the most that its step's cgroup held: the shell, Python while it
#: compiles what it was sent, the agent and slurmstepd are 13 MiB; the NVIDIA library adds some
NEED_BYTES = 16 << 20
START_BYTES = 4 * NEED_BYTES
LEAVE_BYTES = 3 * NEED_BYTES
_FLEE_BYTES = 2 * NEED_BYTES  # without a goodbye
#: how fast a program may fill memory, at most; between two looks at it
_FILLS_BYTES_PER_S = 2 << 30
_SOONEST_S, _SELDOM_S = 0.02, 1.0
_NO_LIMIT_BYTES = 1 << 60  # v1 prints "none" as the largest number of pages


class _Files(NamedTuple):
    """Names of a version's files, and what of the statistics is page cache."""

    limits: tuple[str, ...]
    used: str
    unused_cache: str
    cache: str
    shared: str  # which is in `cache`, and cannot be dropped


_V1 = _Files(
    ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file", "total_cache",
    "total_shmem",
)  # fmt: skip
# above memory.high the kernel slows all processes down
_V2 = _Files(("memory.max", "memory.high"), "memory.current", "inactive_file", "file", "shmem")


class Room:
    """What is free under each limit above this process; the least counts."""

    def __init__(self, proc: str = "/proc", mounts: Mapping[str, Mount] | None = None) -> None:
        """`mounts`: of cgroups; by default looked up in `proc`. Folders are found by this
        process's own cgroup, up to the top of what is mounted.
        """
        mounts = mounts_of(proc) if mounts is None else mounts
        self._limited: list[str] = []
        text = look(f"{proc}/self/cgroup")
        paths = {} if isinstance(text, Missing) else _paths(text)
        controller = "memory" if "memory" in paths and "memory" in mounts else UNIFIED
        self._files = _V1 if controller == "memory" else _V2
        mount = mounts.get(controller)
        folder = locate(paths[controller], mount) if mount and controller in paths else ""
        folder = folder.rstrip("/")
        while mount and folder:
            if self._limit(folder) is not None:
                self._limited.append(folder)
            if folder == mount.directory.rstrip("/"):
                break
            folder = folder.rpartition("/")[0]

    def to_start_bytes(self) -> int | None:
        """Free without taking from the job's page cache; None where nothing is limited."""
        return self._least(START_BYTES, cold_only=True)

    def to_stay_bytes(self) -> int | None:
        """Free if the kernel drops all page cache; None where nothing is limited."""
        enough = _FLEE_BYTES + int(_FILLS_BYTES_PER_S * _SELDOM_S)  # there is time until then
        return self._least(enough, cold_only=False)

    def refusal(self) -> str:
        """Why nothing may be started here; "" where it may."""
        free = self.to_start_bytes()
        return lacking(free) if free is not None and free < START_BYTES else ""

    def patience_s(self) -> float:
        """How soon to look again; 0: leave now."""
        free = self.to_stay_bytes()
        if free is None:
            return float("inf")
        if free < LEAVE_BYTES:
            return 0.0
        return _until_full_s(free)

    def _least(self, enough: int, *, cold_only: bool) -> int | None:
        known = [self._free(folder, enough, cold_only) for folder in self._limited]
        return min((each for each in known if each is not None), default=None)

    def _free(self, folder: str, enough: int, cold_only: bool) -> int | None:
        limit, used = self._limit(folder), self._count(f"{folder}/{self._files.used}")
        if limit is None or used is None:
            return None
        if limit - used >= enough:
            return limit - used  # at least: cache need not be looked up
        text = look(f"{folder}/memory.stat")
        table = {} if isinstance(text, Missing) else parse_table(text)
        if cold_only:
            return limit - used + table.get(self._files.unused_cache, 0)
        cache = table.get(self._files.cache, 0) - table.get(self._files.shared, 0)
        return limit - used + max(0, cache)

    def _limit(self, folder: str) -> int | None:
        limits = [self._count(f"{folder}/{name}") for name in self._files.limits]
        known = [each for each in limits if each is not None and each < _NO_LIMIT_BYTES]
        return min(known, default=None)

    def _count(self, path: str) -> int | None:
        text = look(path)
        return None if isinstance(text, Missing) else parse_count(text)


def _paths(text: str) -> dict[str, str]:
    """Controller -> path, from a text of /proc/PID/cgroup."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def leave_in_time(descriptor: int = 2) -> None:
    """End this process, whatever it does, as soon as much less than `LEAVE_BYTES` are free: it has
    said goodbye before, unless it was starting or the job grew by much at once. To be ended by the
    kernel would mark the step in which it stands as out of memory.

    What is said goes to `descriptor`; the exit code is 0, which would be the step's.
    """
    room = Room()

    def watch() -> None:
        while (free := room.to_stay_bytes()) is not None:
            if free < _FLEE_BYTES:
                with suppress(OSError):
                    os.write(descriptor, f"gpumon: {LEFT}\n".encode())
                os._exit(0)
            time.sleep(min(_SELDOM_S, _until_full_s(free)))

    if room.to_stay_bytes() is not None:
        with suppress(RuntimeError):  # no thread to be had
            threading.Thread(target=watch, daemon=True, name="room").start()


def _until_full_s(free: int) -> float:
    """How soon to look again, before a program could have filled what is free."""
    return max(_SOONEST_S, (free - _FLEE_BYTES) / _FILLS_BYTES_PER_S)


def lacking(free_bytes: int) -> str:
    """Why nothing is started, for people."""
    return (
        f"{NO_ROOM}: {max(0, free_bytes) >> 20} MiB, and gpumon starts nothing in a job with less "
        f"than {START_BYTES >> 20} MiB"
    )


#: how `lacking` and the shell's own test begin
NO_ROOM = "too little memory is free under the job's limit"
LEFT = f"less than {LEAVE_BYTES >> 20} MiB was free under the job's memory limit: gpumon left"
