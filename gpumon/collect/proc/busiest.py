"""The busiest processes of a node, by the CPU time that they used since the last look.

There may be tens of thousands, and all are looked at: of most only the clock of the CPU time, which
takes a twentieth of what `stat` takes.
"""

from __future__ import annotations

import time
from heapq import nlargest

from gpumon.collect.base import Schedule
from gpumon.collect.procfs import ProcFs
from gpumon.model.reading import Missing

_PERIOD_S = 5.0
_MOST_PERIOD_S = 30.0
_SHARE = 0.003  # of a core, at most, until the period is at its longest
_KTHREADD = 2  # the parent of the kernel's threads


class Busiest:
    """Looks at all processes of this PID namespace."""

    def __init__(self, proc: ProcFs) -> None:
        self._proc = proc
        self._schedule = Schedule()
        self._period_s = _PERIOD_S
        self._ticks: dict[int, int] = {}  # CPU time at the last look, by PID
        self._kernel: set[int] = set()  # threads of the kernel, as far as they came into question
        self._pids: list[int] = []

    def pids(self, count: int, mono: float) -> list[int]:
        """The busiest at the last look: every 5 s, less often where a look takes long.

        At the first look those with the most CPU time since they started.
        """
        if self._schedule.due("look", self._period_s, mono):
            began = time.thread_time()
            last, self._ticks = self._ticks, self._proc.cpu_ticks()
            self._pids = self._without_kernel(last, count)
            took_s = time.thread_time() - began
            self._period_s = min(max(_PERIOD_S, took_s / _SHARE), _MOST_PERIOD_S)
        return self._pids

    def _without_kernel(self, last: dict[int, int], count: int) -> list[int]:
        ticks = self._ticks
        # a clock that went back is that of another process, by the same number
        self._kernel = {pid for pid in self._kernel if ticks.get(pid, -1) >= last.get(pid, 0)}
        left = {pid: now for pid, now in ticks.items() if pid not in self._kernel}
        while True:
            busiest = _ranked(left, last, count)
            kernel = [pid for pid in busiest if self._is_of_kernel(pid)]
            if not kernel:
                return busiest
            self._kernel.update(kernel)
            for pid in kernel:
                del left[pid]

    def _is_of_kernel(self, pid: int) -> bool:
        stat = self._proc.stat(pid)
        return not isinstance(stat, Missing) and _KTHREADD in (pid, stat.ppid)


def _ranked(ticks: dict[int, int], last: dict[int, int], count: int) -> list[int]:
    """Those that used most since the last look; then those that rested, by their CPU time."""
    used = {pid: now - before if now >= (before := last.get(pid, 0)) else now
            for pid, now in ticks.items() if now != last.get(pid)}  # fmt: skip
    busy = nlargest(count, used, key=lambda pid: (used[pid], ticks[pid]))
    resting = ticks.keys() - used.keys() if len(busy) < count else ()
    return busy + nlargest(count - len(busy), resting, key=ticks.__getitem__)
