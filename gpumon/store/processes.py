"""The processes of one node: who they are, and for how long an ended one is still listed."""

from __future__ import annotations

from typing import Dict, List, Optional, Set

from gpumon.model.sample import Event, Process
from gpumon.model.view import process_of
from gpumon.store.row import Table

#: how long an ended process is still listed
ENDED_KEPT_S = 60.0
#: two reports of one process differ in its start by less, where a clock was corrected in between
_SAME_START_S = 1.0


class Processes:
    """What does not change of each process, and when it ended."""

    def __init__(self, tables: Dict[str, Table], most: int) -> None:
        """`tables`: the node's rows by entity; those of a forgotten process are removed there."""
        self._tables = tables
        self._most = most
        self._facts: Dict[int, Process] = {}
        self._ended: Dict[int, float] = {}

    def frozen(self, tables: Dict[str, Table]) -> Processes:
        """The processes as they are now, with rows of their own."""
        processes = Processes(tables, self._most)
        processes._facts, processes._ended = dict(self._facts), dict(self._ended)
        return processes

    def pids(self) -> Set[int]:
        """Of all that anything is known of."""
        return {key for key in self._tables.get("process", ()) if isinstance(key, int)}.union(
            (key[1] for key in self._tables.get("usage", ()) if isinstance(key, tuple)),
            self._facts,
        )

    def facts(self, pid: int) -> Process:
        """What does not change of it; of one whose facts never came, its pid."""
        return self._facts.get(pid) or Process(pid, "", "", "")

    def ended(self, pid: int) -> Optional[float]:
        """Epoch s; None: it lives."""
        return self._ended.get(pid)

    def on(self, device: int) -> List[Process]:
        """Those with usage of a device."""
        return [
            self._facts[key[1]]
            for key in self._tables.get("usage", ())
            if isinstance(key, tuple) and key[0] == device and key[1] in self._facts
        ]

    def begin(self, time: float) -> None:
        """Another stream begins: it names every process that is still there."""
        for pid in self.pids():
            self._ended.setdefault(pid, time)

    def take(self, event: Event) -> None:
        """An event `process` or `process-end`."""
        if event.pid is None:
            return
        if event.kind == "process":
            self._appear(event, event.pid)
        elif event.pid in self.pids():
            if event.text in ("", "ended"):
                self._ended[event.pid] = event.time
            else:  # it lives, but is watched no more
                self._forget(event.pid)

    def _appear(self, event: Event, pid: int) -> None:
        facts = process_of(event)
        before = self._facts.get(pid)
        if before is not None and abs(before.start - facts.start) >= _SAME_START_S:
            self._forget(pid)  # the number was used again
        if before is not None or len(self._facts) < self._most:
            self._facts[pid] = facts
        self._ended.pop(pid, None)

    def _forget(self, pid: int) -> None:
        self._facts.pop(pid, None)
        self._ended.pop(pid, None)
        self._tables.get("process", {}).pop(pid, None)
        usage = self._tables.get("usage", {})
        for key in [key for key in usage if isinstance(key, tuple) and key[1] == pid]:
            del usage[key]

    def purge(self, time: float) -> None:
        """Drop processes that ended, and usage of devices that a process has left."""
        for pid in [pid for pid, end in self._ended.items() if time - end > ENDED_KEPT_S]:
            self._forget(pid)
        usage = self._tables.get("usage", {})
        for key in [
            key for key, row in usage.items() if time - max(row.times.values()) > ENDED_KEPT_S
        ]:
            del usage[key]
