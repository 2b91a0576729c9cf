"""Means and maxima of many jobs at once: a few queries for all of them, not a few for each.

The server reduces the series of every job over one window for all; a job's series exist only while
it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

from gpumon.prometheus.client import Series, Server
from gpumon.prometheus.gathered import Gpu, gpu_of
from gpumon.prometheus.promql import job_ids, node_in, quoted, selector
from gpumon.site.prometheus import Family, Metric
from gpumon.slurm.js1 import GpuSummary, NodeSummary, Summary

if TYPE_CHECKING:
    from gpumon.slurm.job import Job

#: of one query: 500 numbers are 4 KB
_MOST_IDS = 500
#: of a run that scrapes must cover, or its mean is not known
_LEAST_SHARE = 0.9
#: readings of which a job's summary is made
_BUSY, _USED, _TOTAL = "device.busy_percent", "device.mem_used_bytes", "fact.mem_total_bytes"
_CPU, _ANON, _SHMEM = "job.cpu_s", "job.mem_anon_bytes", "job.mem_shmem_bytes"
#: how the server reduces the series of each
_REDUCED = {
    _BUSY: ("sum_over_time", "count_over_time"),
    _USED: ("max_over_time",),
    _TOTAL: ("last_over_time",),
    _CPU: ("max_over_time",),
    _ANON: ("max_over_time",),
    _SHMEM: ("max_over_time",),
}

#: (function, reading) -> value; of several series their sum
Figures = dict[tuple[str, str], float]


def totals(server: Server, families: Sequence[Family], jobs: Sequence[Job]) -> dict[str, Summary]:
    """The summary of each job that the server knows, by its number. Jobs that have not started or
    not ended are left out. Raises PrometheusError.
    """
    known = {job.raw_id: job for job in jobs if job.start and job.end and job.has_ended}
    if not known:
        return {}
    ids = job_ids(known)
    start = min(job.start or 0.0 for job in known.values())
    end = max(job.end or 0.0 for job in known.values())
    found: dict[str, _Gathered] = {}
    there = _there(server, families, start, end)
    for family in families:
        for first in range(0, len(ids) if family.job else 0, _MOST_IDS):
            some = ids[first : first + _MOST_IDS]
            for metric, function, each in _series(server, family, some, start, end, there):
                job = known.get(each.labels.get(family.job, ""))
                if job is not None:
                    gathered = found.setdefault(job.raw_id, _Gathered(job))
                    gathered.take(family, metric, function, each)
    interval_s = _interval_of(found.values())
    return {id: each.summary(interval_s) for id, each in found.items()}


def _there(server: Server, families: Sequence[Family], start: float, end: float) -> set[str]:
    """Which of the metrics that make up a summary the server has."""
    names = [
        metric.name
        for family in families
        for metric in family.metrics
        if metric.reading in _REDUCED
    ]
    return set(server.values("__name__", selector(names, server.labels), start, end))


def _series(
    server: Server,
    family: Family,
    ids: Sequence[str],
    start: float,
    end: float,
    there: Collection[str],
) -> Iterator[tuple[Metric, str, Series]]:
    like = {family.job: quoted("|".join(ids))}
    range_s = max(1, ceil(end - start))
    for metric in family.metrics:
        if metric.name not in there:
            continue
        for function in _REDUCED.get(metric.reading, ()):
            equal = {**server.labels, **metric.where}
            query = f"{function}({selector([metric.name], equal, like)}[{range_s}s])"
            if metric.unless:
                other = selector([metric.unless], server.labels, like)
                labels = ",".join(filter(None, (family.job, family.uuid, family.index)))
                query = f"{query} unless on ({labels}) count_over_time({other}[{range_s}s])"
            for each in server.series(query, end):
                yield metric, function, each


class _Gathered:
    """One job's figures; the first family that has a reading of a node or a GPU gives it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._of: dict[tuple[str, Gpu | None], dict[str, Figures]] = defaultdict(dict)

    def take(self, family: Family, metric: Metric, function: str, series: Series) -> None:
        node = node_in(series.labels, family.node, self.job.nodes)
        if node is None:
            return
        place = (node, gpu_of(family, series.labels))
        figures = self._of[place].setdefault(family.name, {})
        value = series.values[-1]
        value *= 1.0 if function == "count_over_time" else metric.scale
        name = (function, metric.reading)
        if function == "max_over_time" and not metric.part:  # its labels changed meanwhile
            figures[name] = max(value, figures.get(name, 0.0))
        else:
            figures[name] = figures.get(name, 0.0) + value

    def _figure(self, place: tuple[str, Gpu | None], reading: str) -> float | None:
        name = (_REDUCED[reading][0], reading)
        return next((each[name] for each in self._of[place].values() if name in each), None)

    def _gpus(self, node: str) -> list[Gpu]:
        here = [gpu for at, gpu in self._of if at == node and gpu is not None]
        return sorted(here, key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.mig, gpu.uuid))

    # -- busy

    def counts(self) -> list[float]:
        """How many scrapes there are of each GPU."""
        return [
            count
            for families in self._of.values()
            for figures in families.values()
            if (count := figures.get(("count_over_time", _BUSY)))
        ]

    def _busy(self, place: tuple[str, Gpu | None], interval_s: float) -> tuple[float | None, str]:
        """The mean over the run, or why it is not known."""
        for figures in self._of[place].values():
            count = figures.get(("count_over_time", _BUSY), 0.0)
            if count:
                share = count * interval_s / max(self.job.elapsed_s or 0.0, interval_s)
                if share < _LEAST_SHARE:
                    return None, f"Prometheus has samples of {100 * share:.0f} % of the run"
                return figures["sum_over_time", _BUSY] / count, ""
        return None, "Prometheus has no utilization of it"

    # -- the result

    def summary(self, interval_s: float) -> Summary:
        nodes = {node: self._node(node, interval_s) for node in self.job.nodes}
        known = {name: each for name, each in nodes.items() if each is not None}
        return Summary(self.job.elapsed_s, known, "prometheus")

    def _node(self, node: str, interval_s: float) -> NodeSummary | None:
        if not any(at == node for at, _ in self._of):
            return None
        anon = self._figure((node, None), _ANON)
        used = None if anon is None else anon + (self._figure((node, None), _SHMEM) or 0.0)
        gpus = self._merged(node, interval_s)
        return NodeSummary(None, self._figure((node, None), _CPU), None, _whole(used), gpus)

    def _merged(self, node: str, interval_s: float) -> Mapping[str, GpuSummary]:
        found = {}
        for place, gpu in enumerate(self._gpus(node)):
            busy, why = self._busy((node, gpu), interval_s)
            index = str(gpu.index if gpu.index is not None else place)
            found[f"{index}.{gpu.mig}" if gpu.mig else index] = GpuSummary(
                _whole(self._figure((node, gpu), _TOTAL)),
                _whole(self._figure((node, gpu), _USED)),
                busy,
                {"busy_percent": why} if why else {},
            )
        return found


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _interval_of(found: Iterable[_Gathered]) -> float:
    """Seconds between scrapes, as most GPUs show: most jobs are covered as a whole."""
    spans = [(each.job.elapsed_s or 0.0, each.counts()) for each in found]
    steps = [elapsed_s / count for elapsed_s, counts in spans for count in counts if elapsed_s]
    return median(steps) if steps else 30.0
