"""What is gathered of the job's cgroup on one node, beside its series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.analysis.aggregate.news import optional
from gpumon.analysis.statistics import Growth, MinutePeak
from gpumon.model.batch import KeyRows
from gpumon.model.reading import Reading, number


class JobAggregate:
    """Counters, peaks and limits; None where they never were read. Memory in bytes."""

    def __init__(self) -> None:
        self.cores = MinutePeak(1.0)
        self.cpu_s, self.oom_kills = Growth(), Growth()
        self.mem_limit: float | None = None  # the newest
        self.mem_peak: float | None = None  # without page cache
        self.mem_charged_peak: float | None = None  # the kernel's own, page cache included
        self.last: dict[str, Reading] = {}  # the newest reading or reason of each field

    def take(self, time: float, row: Mapping[str, Reading]) -> None:
        """The row of one sample."""
        self.last.update(row)
        cores = row.get("cpu_cores_used")
        if isinstance(cores, (int, float)):
            self.cores.add(time, cores)
        elif cores is not None:
            self.cores.miss(time)
        for name, growth in (("cpu_s", self.cpu_s), ("oom_kills", self.oom_kills)):
            value = number(row.get(name))
            if value is not None:
                growth.add(value, time)
        self.mem_peak = _greater(self.mem_peak, number(row.get("mem_used_bytes")))
        self.mem_charged_peak = _greater(self.mem_charged_peak, number(row.get("mem_peak_bytes")))
        limit = number(row.get("mem_limit_bytes"))
        self.mem_limit = self.mem_limit if limit is None else limit

    def take_columns(self, series: KeyRows) -> None:
        """The rows of many samples at once."""
        self.last.update(series.last)
        for time, cores in zip(series.times, series.column("cpu_cores_used") or ()):
            if cores is None:
                self.cores.miss(time)
            else:
                self.cores.add(time, cores)
        self.cpu_s.add_all(*series.points("cpu_s"))
        self.oom_kills.add_all(*series.points("oom_kills"))
        self.mem_peak = _greater(self.mem_peak, *series.known("mem_used_bytes"))
        self.mem_charged_peak = _greater(self.mem_charged_peak, *series.known("mem_peak_bytes"))
        if limits := series.known("mem_limit_bytes"):
            self.mem_limit = float(limits[-1])

    def state(self) -> dict[str, Any]:
        """To go on from; `last` apart."""
        return {
            "cores": self.cores.state(),
            "cpu_s": self.cpu_s.state(),
            "oom_kills": self.oom_kills.state(),
            "memory": [self.mem_limit, self.mem_peak, self.mem_charged_peak],
        }

    def restore(self, state: Mapping[str, Any], last: dict[str, Reading]) -> None:
        """Go on from there. Raises what Python does on what `state` never gives."""
        self.cores.restore(state["cores"])
        self.cpu_s.restore(state["cpu_s"])
        self.oom_kills.restore(state["oom_kills"])
        self.mem_limit, self.mem_peak, self.mem_charged_peak = map(optional, state["memory"])
        self.last = last


def _greater(known: float | None, *values: float | None) -> float | None:
    """The greatest of those that are known."""
    return max((float(each) for each in (known, *values) if each is not None), default=None)
