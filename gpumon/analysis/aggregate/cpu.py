"""What is gathered of a node's processes: which use the CPU, their threads, and who waits; and
host memory of those on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpumon.model.batch import ColumnOf, Cut, KeyRows, cut
from gpumon.model.reading import number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Key, Process, Sample

Facts = Mapping[int, Process]

MAX_PROCESSES = 256  # of which CPU use is kept
_WORKS_PERCENT = 1.0
#: series -> the state of /proc/PID/stat that it counts (proc(5))
_STATES = (("runnable", "R"), ("blocked", "D"))


def _counts(process: Process, in_job: bool) -> bool:
    """Whether it is the job's, or without a job one's own."""
    return process.in_job or (process.own and not in_job)


class CpuAggregate:
    """The processes of one node."""

    def __init__(self, *, with_shown: bool) -> None:
        """`with_shown`: also readings that no rule asks for."""
        self._with_shown = with_shown
        self.cpu: dict[int, Rollup] = {}  # of those that were seen using it
        self.resident: dict[int, Rollup] = {}  # memory of those that were seen on a GPU; shown
        self.threads = Rollup()  # of all together
        #: how many processes run or wait for a core, and how many sleep uninterruptibly (`_STATES`)
        self.runnable, self.blocked = Rollup(), Rollup()

    def all_together(self) -> dict[str, Rollup]:
        """The series that are of no single process, by kind."""
        return {"threads": self.threads, "runnable": self.runnable, "blocked": self.blocked}

    def of_processes(self) -> dict[str, dict[int, Rollup]]:
        """The series of single processes, by kind."""
        return {"cpu": self.cpu, "resident": self.resident}

    def series_of(self, kind: str, pid: int) -> Rollup:
        """The series of one process. Raises ValueError where there can be none."""
        kept = self.of_processes()[kind]
        if not isinstance(pid, int) or (pid not in kept and len(kept) >= MAX_PROCESSES):
            raise ValueError("too many processes")
        return kept.setdefault(pid, Rollup())

    def take(
        self, index: int, samples: list[Sample], facts: Facts, in_job: bool, agent: int
    ) -> None:
        """The samples of one bin; `facts` of all processes, `in_job`: a job is watched.

        `agent`: PID of the agent, which always runs when it looks.
        """
        cpu: dict[int, list[float]] = {}
        threads: list[float] = []
        states: list[list[object]] = []  # of each sample
        for sample in samples:
            rows = sample.rows.get("process")
            if not rows:
                continue
            count, counted = 0.0, False
            seen: list[object] = []
            for pid, row in rows.items():
                known = facts.get(pid) if isinstance(pid, int) else None
                if known is None or not _counts(known, in_job):
                    continue
                if (used := number(row.get("cpu_percent"))) is not None:
                    cpu.setdefault(known.pid, []).append(used)
                if (own := number(row.get("threads"))) is not None:
                    count, counted = count + own, True
                if pid != agent:
                    seen.append(row.get("state"))
            if counted:
                threads.append(count)
            if any(isinstance(each, str) for each in seen):
                states.append(seen)
        if threads:
            self.threads.put(index, threads)
        for kind, letter in _STATES if states else ():
            self.all_together()[kind].put(index, [float(each.count(letter)) for each in states])
        for pid, values in cpu.items():
            bins = self.cpu.get(pid)
            if bins is None and max(values) >= _WORKS_PERCENT and len(self.cpu) < MAX_PROCESSES:
                bins = self.cpu[pid] = Rollup()
            if bins is not None:
                bins.put(index, values)
        self._take_memory(index, samples)

    def _take_memory(self, index: int, samples: list[Sample]) -> None:
        for key in {key for sample in samples for key in sample.rows.get("usage", ())}:
            self._watch(key)
        for pid, bins in self.resident.items():
            rows = (sample.rows.get("process", {}).get(pid, {}) for sample in samples)
            values = [used for row in rows if (used := number(row.get("rss_bytes"))) is not None]
            if values:
                bins.put(index, values)

    def _watch(self, on_gpu: Key) -> None:
        """Keep the memory of a process from now on. `on_gpu`: key of its usage of a device."""
        if self._with_shown and isinstance(on_gpu, tuple) and len(self.resident) < MAX_PROCESSES:
            self.resident.setdefault(on_gpu[1], Rollup())

    def take_columns(
        self,
        of_pid: Mapping[Key, tuple[list[Cut], KeyRows]],
        on_gpus: Iterable[Key],
        step_s: float,
        facts: Facts,
        in_job: bool,
        agent: int,
    ) -> None:
        """The same of many bins; `on_gpus`: keys of usage of devices."""
        for key in on_gpus:
            self._watch(key)
        for shown, bins in self.resident.items():
            if shown in of_pid:
                cuts, series = of_pid[shown]
                bins.put_all(cuts, series.column("rss_bytes") or [])
        threads: dict[float, float] = {}
        states: dict[float, list[object]] = {}
        for pid, (cuts, series) in of_pid.items():
            known = facts.get(pid) if isinstance(pid, int) else None
            if known is None or not _counts(known, in_job):
                continue
            for time, count in zip(series.times, series.column("threads") or ()):
                if count is not None:
                    threads[time] = threads.get(time, 0.0) + count
            for time, state in zip(series.times, series.texts("state") if pid != agent else ()):
                if isinstance(state, str):
                    states.setdefault(time, []).append(state)
            self._take_cpu(known.pid, cuts, series.column("cpu_percent") or [])
        times = sorted(threads)
        self.threads.put_all(cut(times, step_s), [threads[time] for time in times])
        times = sorted(states)
        for kind, letter in _STATES:
            counts = [float(states[time].count(letter)) for time in times]
            self.all_together()[kind].put_all(cut(times, step_s), counts)

    def _take_cpu(self, pid: int, cuts: list[Cut], values: ColumnOf) -> None:
        for at, (_, first, last) in enumerate(cuts):
            known = [value for value in values[first:last] if value is not None]
            bins = self.cpu.get(pid)
            if bins is None and known and max(known) >= _WORKS_PERCENT:
                if len(self.cpu) >= MAX_PROCESSES:
                    return
                bins = self.cpu[pid] = Rollup()
            if bins is not None:  # from here on all are kept
                bins.put_all(cuts[at:], values)
                return
