"""The processes of one node: who they are, and for how long an ended one is still listed."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Set

from gpumon.model.bounded import Known
from gpumon.model.fields import OF_BOTH
from gpumon.model.sample import Event, Process
from gpumon.model.view import process_of
from gpumon.store.row import Table

#: how long an ended process is still listed
ENDED_KEPT_S = 60.0
#: two reports of one process differ in its start by less, where a clock was corrected in between
_SAME_START_S = 1.0
#: of what is known of all processes of a node: 4096 command lines of 2 KB
FACTS_BYTES = 8 << 20


class Processes:
    """What does not change of each process, and when it ended."""

    def __init__(self, tables: Dict[str, Table], most: int) -> None:
        """`tables`: the node's rows by entity; those of a forgotten process are removed there."""
        self._tables = tables
        self._facts: Known[int, Process] = Known(most, FACTS_BYTES)
        self._ended: Dict[int, float] = {}

    def frozen(self, tables: Dict[str, Table]) -> Processes:
        """The processes as they are now, with rows of their own."""
        processes = Processes(tables, 0)
        processes._facts, processes._ended = self._facts.copy(), dict(self._ended)
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

    def same_in(self, starts: Mapping[int, float]) -> Set[int]:
        """The numbers of those that began at these times, too: what was recorded is of them."""
        return {
            pid
            for pid, facts in self._facts.items()
            if pid in starts and abs(starts[pid] - facts.start) < _SAME_START_S
        }

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

    def take(self, events: Sequence[Event]) -> None:
        """The events `process` and `process-end` of one sample."""
        known: Optional[Set[int]] = None
        gone: Set[int] = set()
        for event in events:
            pid = event.pid
            if pid is None:
                continue
            if event.kind == "process":
                if self._appear(event, pid):
                    gone.add(pid)
                continue
            known = self.pids() if known is None else known
            if pid in known or pid in self._facts:
                if event.text in ("", "ended"):
                    self._ended[pid] = event.time
                else:  # it lives, but is watched no more
                    self._facts.pop(pid, None)
                    self._ended.pop(pid, None)
                    gone.add(pid)
        self._forget(gone)

    def _appear(self, event: Event, pid: int) -> bool:
        """Whether the number was used again: what was read of the other one is then to go."""
        facts = process_of(event)
        before = self._facts.get(pid)
        self._facts.keep(pid, facts)
        self._ended.pop(pid, None)
        return before is not None and not _is_same(before, facts)

    def _forget(self, pids: Set[int]) -> None:
        """What was read of them."""
        if not pids:
            return
        for pid in pids:
            self._tables.get("process", {}).pop(pid, None)
            self._tables.get("program", {}).pop(pid, None)
        for table in (self._tables.get(entity, {}) for entity in OF_BOTH):
            for key in [key for key in table if isinstance(key, tuple) and key[1] in pids]:
                del table[key]

    @property
    def left_out(self) -> int:
        """Processes that there was no room for."""
        return self._facts.left_out

    def purge(self, time: float) -> None:
        """Drop processes that ended, and usage of devices that a process has left."""
        ended = {pid for pid, end in self._ended.items() if time - end > ENDED_KEPT_S}
        for pid in ended:
            self._facts.pop(pid, None)
            self._ended.pop(pid, None)
        self._forget(ended)
        for table in (self._tables.get(entity, {}) for entity in OF_BOTH):
            for key in [
                key for key, row in table.items() if time - max(row.times.values()) > ENDED_KEPT_S
            ]:
                del table[key]


def _is_same(one: Process, other: Process) -> bool:
    """Of two with the same number."""
    return abs(one.start - other.start) < _SAME_START_S
