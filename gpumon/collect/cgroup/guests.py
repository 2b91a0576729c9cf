"""gpumon's own processes in a job, whose memory is not the job's: of all who watch it.

They are known by the name that they give themselves (`collect.guest`). A reading that cannot be
had counts as nothing: what is shown of the job is then too much by some MiB, never too little.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Callable

from gpumon.collect.guest import NAME
from gpumon.collect.procfs import look
from gpumon.model.reading import Missing

_PERIOD_S = 5.0
#: a process that was not marked when it was looked at so often is somebody else's
_LOOKS = 2
#: pages of its own; those shared with its forks are counted once. Kernels before 5.4 lack the first
_OWN = re.compile(r"^(Pss_Anon|Private_Dirty): +(\d+) kB$", re.M)


class Guests:
    """What gpumon's processes hold of a job's memory."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._due = 0.0
        self._others: dict[int, int] = {}  # PID -> how often it was looked at
        self._guests: dict[int, int] = {}  # PID -> bytes
        self.held_bytes = 0
        self._kernel: int | None = None  # the kernel's peak, when it was last looked at
        self._peak = 0  # of the job alone
        self._most = 0  # held since then

    def look(self, pids: Iterable[int]) -> None:
        """`pids`: of the job; new ones are looked at now, those that are known every 5 s."""
        now = self._clock()
        is_due = now >= self._due
        if is_due:
            self._due = now + _PERIOD_S
        others, guests = {}, {}
        for pid in pids:
            looks = self._others.get(pid, 0)
            known = self._guests.get(pid)
            if (is_due and looks < _LOOKS) or (not looks and known is None):
                known = self._held(pid) if self._is_guest(pid) else None
                looks += 1
            if known is None:
                others[pid] = looks
            else:
                guests[pid] = known
        self._others, self._guests = others, guests
        self.held_bytes = sum(guests.values())
        self._most = max(self._most, self.held_bytes)

    def peak_without(self, kernel: int, charged: int) -> int:
        """The job's own peak, by the kernel's and what is charged now, both with guests.

        Where the kernel's has risen, guests were in it with the most that they held meanwhile. One
        from before the first look had them in it if it is no further above what is charged now.
        """
        alone = max(0, charged - self.held_bytes)
        if self._kernel is None:
            is_ours = kernel <= charged + self.held_bytes
            self._peak = kernel - self.held_bytes if is_ours else kernel
        elif kernel > self._kernel:
            self._peak = max(self._peak, kernel - self._most)
        self._kernel, self._most = kernel, self.held_bytes
        self._peak = max(self._peak, alone)
        return self._peak

    def _is_guest(self, pid: int) -> bool:
        return look(f"{self._proc}/{pid}/comm") == f"{NAME}\n"

    def _held(self, pid: int) -> int:
        text = look(f"{self._proc}/{pid}/smaps_rollup")
        found = {} if isinstance(text, Missing) else dict(_OWN.findall(text))
        return 1024 * int(found.get("Pss_Anon", found.get("Private_Dirty", 0)))
