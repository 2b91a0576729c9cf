"""What is gathered of a node's processes: which use the CPU, and how many threads they have."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.analysis.bins import Bins
from gpumon.model.reading import number
from gpumon.model.sample import Key, Process, Sample
from gpumon.model.ticks import ColumnOf, Cut, Series, cut

Facts = Mapping[int, Process]

MAX_PROCESSES = 256  # of which CPU use is kept
_WORKS_PERCENT = 1.0


def _counts(process: Process, in_job: bool) -> bool:
    """Whether it is the job's, or without a job one's own."""
    return process.in_job or (process.own and not in_job)


class CpuGathering:
    """The processes of one node."""

    def __init__(self) -> None:
        self.cpu: dict[int, Bins] = {}  # of those that were seen using it
        self.threads = Bins()  # of all together

    def bins_of(self, pid: int) -> Bins:
        """The series of one process. Raises ValueError where there can be none."""
        if not isinstance(pid, int) or (pid not in self.cpu and len(self.cpu) >= MAX_PROCESSES):
            raise ValueError("too many processes")
        return self.cpu.setdefault(pid, Bins())

    def take(self, index: int, samples: list[Sample], facts: Facts, in_job: bool) -> None:
        """The samples of one bin; `facts` of all processes, `in_job`: a job is watched."""
        cpu: dict[int, list[float]] = {}
        threads: list[float] = []
        for sample in samples:
            rows = sample.rows.get("process")
            if not rows:
                continue
            count, counted = 0.0, False
            for pid, row in rows.items():
                known = facts.get(pid) if isinstance(pid, int) else None
                if known is None or not _counts(known, in_job):
                    continue
                if (used := number(row.get("cpu_percent"))) is not None:
                    cpu.setdefault(known.pid, []).append(used)
                if (own := number(row.get("threads"))) is not None:
                    count, counted = count + own, True
            if counted:
                threads.append(count)
        if threads:
            self.threads.put(index, threads)
        for pid, values in cpu.items():
            bins = self.cpu.get(pid)
            if bins is None and max(values) >= _WORKS_PERCENT and len(self.cpu) < MAX_PROCESSES:
                bins = self.cpu[pid] = Bins()
            if bins is not None:
                bins.put(index, values)

    def take_columns(
        self,
        of_pid: Mapping[Key, tuple[list[Cut], Series]],
        step_s: float,
        facts: Facts,
        in_job: bool,
    ) -> None:
        """The same of many bins."""
        threads: dict[float, float] = {}
        for pid, (cuts, series) in of_pid.items():
            known = facts.get(pid) if isinstance(pid, int) else None
            if known is None or not _counts(known, in_job):
                continue
            for time, count in zip(series.times, series.column("threads") or ()):
                if count is not None:
                    threads[time] = threads.get(time, 0.0) + count
            self._take_cpu(known.pid, cuts, series.column("cpu_percent") or [])
        times = sorted(threads)
        self.threads.put_all(cut(times, step_s), [threads[time] for time in times])

    def _take_cpu(self, pid: int, cuts: list[Cut], values: ColumnOf) -> None:
        for at, (_, first, last) in enumerate(cuts):
            known = [value for value in values[first:last] if value is not None]
            bins = self.cpu.get(pid)
            if bins is None and known and max(known) >= _WORKS_PERCENT:
                if len(self.cpu) >= MAX_PROCESSES:
                    return
                bins = self.cpu[pid] = Bins()
            if bins is not None:  # from here on all are kept
                bins.put_all(cuts[at:], values)
                return
