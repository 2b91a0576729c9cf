"""What the series of one node tell, by the readings that they are: one column each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpumon.model.fields import FIELDS
from gpumon.prometheus.client import Series
from gpumon.site.prometheus import Family, Metric

#: a rate over more intervals than that is of a gap
_RATE_INTERVALS = 3.0

#: epoch s -> value
Column = dict[float, float]


@dataclass(frozen=True)
class Gpu:
    """What identifies a GPU, or a MIG instance of it, in one family's labels."""

    uuid: str = ""
    index: int | None = None
    mig: str = ""  # number of the GPU instance

    def is_same(self, other: Gpu) -> bool:
        """By UUID where both have one, else by index."""
        if self.mig != other.mig:
            return False
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return self.index is not None and self.index == other.index


class GpuColumns:
    """One GPU's readings; `gpu` gets more known with every family that has it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.name = self.mig_profile = ""
        self.columns: dict[str, Column] = {}
        self.facts: dict[str, float] = {}

    def learn(self, gpu: Gpu, family: Family, labels: Mapping[str, str]) -> None:
        index = self.gpu.index if self.gpu.index is not None else gpu.index
        self.gpu = Gpu(self.gpu.uuid or gpu.uuid, index, gpu.mig)
        self.name = self.name or labels.get(family.gpu_name, "")
        self.mig_profile = self.mig_profile or labels.get(family.mig_profile, "")


class NodeColumns:
    """One node's readings. A reading that an earlier family has is not taken from a later one."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.gpus: list[GpuColumns] = []
        self.columns: dict[str, dict[str, Column]] = {"job": {}, "host": {}}
        self.facts: dict[str, float] = {}

    def take(self, family: Family, series: Iterable[Series]) -> None:
        """All series of a family on this node, of one window of time after another."""
        of_owner: dict[Gpu | None, list[Series]] = defaultdict(list)
        for each in series:
            of_owner[gpu_of(family, each.labels)].append(each)
        for gpu, found in of_owner.items():
            self._take_owner(family, gpu, found)

    def _take_owner(self, family: Family, gpu: Gpu | None, series: list[Series]) -> None:
        names = {each.name for each in series}
        groups: dict[str, list[tuple[Metric, Series]]] = defaultdict(list)
        for metric in family.metrics:
            if (metric.beside and metric.beside not in names) or metric.unless in names:
                continue
            if metric.whole and gpu is not None and gpu.mig:
                continue
            for each in series:
                if each.name == metric.name and _has(each.labels, metric.where):
                    groups[metric.reading].append((metric, each))
        for reading, parts in groups.items():
            entity, _, name = reading.partition(".")
            if (entity in ("device", "fact")) != (gpu is not None):
                continue
            owner = self._gpu(gpu, family, series[0].labels) if gpu is not None else None
            self._keep(entity, name, _column(parts), owner)

    def _gpu(self, gpu: Gpu, family: Family, labels: Mapping[str, str]) -> GpuColumns:
        found = next((each for each in self.gpus if each.gpu.is_same(gpu)), None)
        if found is None:
            found = GpuColumns(gpu)
            self.gpus.append(found)
        found.learn(gpu, family, labels)
        return found

    def _keep(self, entity: str, name: str, column: Column, gpu: GpuColumns | None) -> None:
        if not column:
            return
        if entity in ("fact", "host_fact"):
            facts = gpu.facts if gpu is not None else self.facts
            facts[name] = column[max(column)]
            return
        columns = gpu.columns if gpu is not None else self.columns[entity]
        field = FIELDS[entity][name]
        plausible = {at: value for at, value in column.items() if field.low <= value <= field.high}
        known = columns.setdefault(name, {})
        for at, value in plausible.items():
            known.setdefault(at, value)


def gpu_of(family: Family, labels: Mapping[str, str]) -> Gpu | None:
    """None: the series is not of a GPU."""
    uuid, index = labels.get(family.uuid, ""), labels.get(family.index, "")
    mig = labels.get(family.mig, "")
    if index.startswith("MIG-"):  # slurm-job-exporter names an instance so
        uuid, index = index, ""
    if not uuid and not index:
        return None
    return Gpu(uuid, int(index) if index.isdecimal() and len(index) < 6 else None, mig)


def _has(labels: Mapping[str, str], where: Mapping[str, str]) -> bool:
    return all(labels.get(name, "") == value for name, value in where.items())


def _column(parts: list[tuple[Metric, Series]]) -> Column:
    """The values of one reading: of one series, or the sum of its parts where all are there."""
    if any(metric.part for metric, _ in parts):
        return _sum(parts)
    found: Column = {}
    for metric, series in parts:
        values = [value * metric.scale for value in series.values]
        points = dict(zip(series.times, values))
        for at, value in (rates(points) if metric.rate else points).items():
            found.setdefault(at, value)
    return found


def _sum(parts: list[tuple[Metric, Series]]) -> Column:
    sums: Column = defaultdict(float)
    counts: Counter[float] = Counter()
    for metric, series in parts:
        factor = metric.scale * metric.part
        for at, value in zip(series.times, series.values):
            sums[at] += value * factor
            counts[at] += 1
    most = max(counts.values(), default=0)
    return {at: value for at, value in sums.items() if counts[at] == most}


def rates(counter: Column) -> Column:
    """By how much a counter grew per second, at each point but the first. What lies between two
    points that are further apart than others, and where the counter began anew, is not known.
    """
    times = sorted(counter)
    steps = [later - earlier for earlier, later in zip(times, times[1:])]
    if not steps:
        return {}
    longest = _RATE_INTERVALS * median(steps)
    found = {}
    for earlier, later in zip(times, times[1:]):
        grown = counter[later] - counter[earlier]
        if grown >= 0 and 0 < later - earlier <= longest:
            found[later] = grown / (later - earlier)
    return found
