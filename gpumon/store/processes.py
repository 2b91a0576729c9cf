"""The processes of one node: who they are, and for how long an ended one is still listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gpumon.model.bounded import Known
from gpumon.model.fields import COURSES, OF_BOTH
from gpumon.model.sample import Event, Key, Process
from gpumon.store.row import Tables

if TYPE_CHECKING:
    from gpumon.frames.frame import Frame

#: how long an ended process is still listed
ENDED_KEPT_S = 60.0
#: two reports of one process differ in its start by less, where a clock was corrected in between
_SAME_START_S = 1.0
#: of what is known of all processes of a node: 4096 command lines of 2 KB
FACTS_BYTES = 8 << 20


class Processes:
    """What does not change of each process, and when it ended."""

    def __init__(self, tables: Tables, most: int) -> None:
        """`tables`: the node's rows; those of a forgotten process are removed there."""
        self._tables = tables
        self.known: Known[int, Process] = Known(most, FACTS_BYTES)
        self.ended: dict[int, float] = {}  # epoch s; others live

    def frozen(self, tables: Tables) -> Processes:
        """The processes as they are now, with rows of their own."""
        processes = Processes(tables, 0)
        processes.known, processes.ended = self.known.copy(), dict(self.ended)
        return processes

    def pids(self) -> set[int]:
        """Of all that anything is known of."""
        own = {key for key in self._tables.get("process", ()) if isinstance(key, int)}
        return own.union((pid for _, pid in self._tables.usages()), self.known)

    def facts(self, pid: int) -> Process:
        """What does not change of it; of one whose facts never came, its pid."""
        return self.known.get(pid) or Process(pid, "", "", "")

    def same_in(self, past: Frame) -> set[int]:
        """The numbers of those that a frame has, too: of its processes that began when they did."""
        starts = {pid: facts.start for pid, facts in past.facts.items()}
        for device in past.devices:
            starts.update((each.facts.pid, each.facts.start) for each in device.processes)
        known = ((pid, facts.start) for pid, facts in self.known.items() if pid in starts)
        return {pid for pid, start in known if abs(starts[pid] - start) < _SAME_START_S}

    def on(self, device: int) -> list[Process]:
        """Those with usage of a device."""
        usages = self._tables.usages()
        return [self.known[pid] for on, pid in usages if on == device and pid in self.known]

    def begin(self, time: float) -> None:
        """Another stream begins: it names every process that is still there."""
        for pid in self.pids():
            self.ended.setdefault(pid, time)

    def take(self, events: Sequence[Event]) -> None:
        """The events `process` and `process-end` of one sample; others are skipped."""
        seen = self.pids() if any(event.kind == "process-end" for event in events) else set()
        gone: set[int] = set()
        for event in events:
            pid = event.pid
            if pid is None:
                continue
            if event.kind == "process":
                facts, before = Process.of(event), self.known.get(pid)
                self.known.keep(pid, facts)
                self.ended.pop(pid, None)
                if before is not None and abs(before.start - facts.start) >= _SAME_START_S:
                    gone.add(pid)  # the number was used again: what was read is of the other one
            elif event.kind == "process-end" and (pid in seen or pid in self.known):
                if event.text in ("", "ended"):
                    self.ended[pid] = event.time
                else:  # it lives, but is watched no more
                    self._forget([pid])
        self._remove(gone)

    def _forget(self, pids: Collection[int]) -> None:
        for pid in pids:
            self.known.pop(pid, None)
            self.ended.pop(pid, None)
        self._remove(pids)

    def _remove(self, pids: Collection[int]) -> None:
        """What was read of them."""
        if pids:
            entities = (*COURSES, "program")
            self._tables.remove(entities, lambda key, _: pid_of(key) in pids)

    def purge(self, time: float) -> None:
        """Drop processes that ended, and usage of devices that a process has left."""
        self._forget({pid for pid, end in self.ended.items() if time - end > ENDED_KEPT_S})
        old = time - ENDED_KEPT_S
        self._tables.remove(OF_BOTH, lambda _, row: max(row.times.values()) < old)


def pid_of(key: Key) -> Key:
    """Of a row of a process, or of one on a device."""
    return key[1] if isinstance(key, tuple) else key
