"""CPU time and memory of a process and its descendants."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil


def tree(root: int) -> list[int]:
    """Return a process and its descendants; the root comes first."""
    children = psutil.Process(root).children(recursive=True)
    return [root, *(child.pid for child in children)]


def _living(pids: list[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        try:
            yield psutil.Process(pid)
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, ended threads included, in ns: clock_getcpuclockid(3)."""
    return ~pid << 3 | 2


def cpu_s(pids: list[int]) -> float:
    """CPU seconds (user and system) of processes, and of the children they have waited for.

    The children's time is counted in ticks of 10 ms.
    """
    total = 0.0
    for process in _living(pids):
        try:
            total += time.clock_gettime(_cpu_clock(process.pid)) + sum(process.cpu_times()[2:4])
        except (OSError, psutil.NoSuchProcess):  # it ended meanwhile
            continue
    return total


def core_wait_s(pid: int) -> float:
    """Seconds in which living threads of a process could run and others had the cores."""
    waits = []
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread ended meanwhile
            waits.append(int(file.read_text().split()[1]))
    return sum(waits) / 1e9


class Memory(NamedTuple):
    """Bytes. Pss divides a page among the processes that map it; Rss counts it in each."""

    pss_bytes: int
    rss_bytes: int


def memory(pids: list[int]) -> Memory:
    pss = rss = 0
    for process in _living(pids):
        try:
            found = process.memory_full_info()
        except psutil.Error:
            continue
        pss, rss = pss + found.pss, rss + found.rss
    return Memory(pss, rss)
