"""What a server has: families, labels, pace and retention; for `gpumon doctor --prometheus`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from gpumon.prometheus.client import Series, Server
from gpumon.prometheus.promql import selector
from gpumon.site.prometheus import Family

_HOUR_S, _DAY_S = 3600.0, 86_400.0
#: days back at which samples are looked for
_AGES_D = (1, 7, 14, 30, 90, 365)


class Found(NamedTuple):
    """One family on a server."""

    family: Family
    metrics: int  # of the declared ones, how many there are
    series: int
    nodes: int
    job: str  # by what a job is found: a label, a metric, "node", or "" for not at all
    interval_s: float | None
    oldest_d: int | None  # samples were found so many days back


class Survey:
    """Asks a server once."""

    def __init__(self, server: Server, families: Sequence[Family]) -> None:
        self._server, self._families = server, families
        self._now = time.time()

    def found(self) -> Iterator[Found]:
        """The families of which there is anything in the last hour. Raises PrometheusError."""
        names = {metric.name for family in self._families for metric in family.metrics}
        every = selector(sorted(names), self._server.labels)
        there = set(self._server.values("__name__", every, self._now - _HOUR_S, self._now))
        for family in self._families:
            here = [name for name in dict.fromkeys(m.name for m in family.metrics) if name in there]
            if here:
                yield self._family(family, here)

    def _family(self, family: Family, names: Sequence[str]) -> Found:
        one = self._points(names[0])
        labels = [each.labels for each in one]
        hosts = {next((of[name] for name in family.node if name in of), "") for of in labels}
        return Found(
            family, len(names), len(one), len(hosts), self._job(family, one), _interval_of(one),
            self._oldest_d(names[0]),
        )  # fmt: skip

    def _points(self, name: str) -> list[Series]:
        """Of ten minutes; a label such as the job's may be absent now, as nothing runs."""
        return self._server.series(f"{selector([name], self._server.labels)}[10m]", self._now)

    def _job(self, family: Family, series: Sequence[Series]) -> str:
        if not family.job and not family.job_metric:
            return "node"
        if any(each.labels.get(family.job) for each in series):
            return f"label {family.job}"
        if family.job_metric and self._points(family.job_metric):
            return f"metric {family.job_metric}"
        return ""

    def _oldest_d(self, name: str) -> int | None:
        oldest = None
        for days in _AGES_D:
            query = f"count({selector([name], self._server.labels)})"
            if self._server.series(query, self._now - days * _DAY_S):
                oldest = days
        return oldest


def _interval_of(series: Sequence[Series]) -> float | None:
    steps = [b - a for each in series[:50] for a, b in zip(each.times, each.times[1:])]
    return float(round(median(steps))) if steps else None


def site_section(url: str, found: Sequence[Found]) -> str:
    """What to put into the site's file."""
    intervals = [each.interval_s for each in found if each.interval_s]
    lines = ["[prometheus]", f"url = {json.dumps(url)}"]
    if intervals:
        lines.append(f"interval_s = {median(intervals):g}")
    return "\n".join(lines) + "\n"
