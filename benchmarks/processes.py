"""CPU time and memory of a process and its descendants, from /proc (see proc(5))."""

from __future__ import annotations

import os
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the name before it may hold blanks."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()


def tree(root: int) -> list[int]:
    """Return a process and its descendants; the root comes first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except OSError:  # it ended meanwhile
                continue
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_s(pids: list[int]) -> float:
    """CPU seconds (user and system) of processes, and of the children they have waited for.

    The kernel counts in ticks of 10 ms: a window of 20 s resolves 0.05 % of a core.
    """
    ticks = 0
    for pid in pids:
        try:
            ticks += sum(map(int, _stat(pid)[11:15]))
        except OSError:
            continue
    return ticks / TICKS_PER_S


class Memory(NamedTuple):
    """Bytes. Pss divides a page among the processes that map it; Rss counts it in each."""

    pss_bytes: int
    rss_bytes: int


def memory(pids: list[int]) -> Memory:
    total = {"Pss:": 0, "Rss:": 0}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                for line in file:
                    words = line.split()
                    if words[0] in total:
                        total[words[0]] += int(words[1]) * 1024
        except OSError:
            continue
    return Memory(total["Pss:"], total["Rss:"])
