"""A job's samples from the site's Prometheus, where there is one."""

from __future__ import annotations

import ast
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import GpumonError, NotFoundError
from gpumon.model.sample import Header, Sample
from gpumon.recording.reader import Stretch
from gpumon.services.runs import Stream, progress
from gpumon.site.prometheus import Family, Prometheus
from gpumon.sources.files import Track

if TYPE_CHECKING:
    from gpumon.analysis.rundata import RunData
    from gpumon.prometheus.client import Server
    from gpumon.prometheus.transport import PrometheusTransport
    from gpumon.site import Site
    from gpumon.slurm.job import Job

#: of what it is that is missing, in a report
_PROMETHEUS = "Prometheus"
_MAX_CONFIG = 1 << 20
_URL = "GPUMON_PROMETHEUS_URL"


def server_for(site: Site, url: str | None, env: Mapping[str, str] = os.environ) -> Server | None:
    """The server that the user names, else the site's file, else the settings of its jobstats;
    None where none does. Raises UsageError.
    """
    told = url or site.prometheus.url or env.get(_URL, "") or jobstats_server()
    if not told:
        return None
    from gpumon.prometheus.access import access_to
    from gpumon.prometheus.client import Server  # a twentieth of a second

    return Server(access_to(site.prometheus, told, env))


def families_of(told: Prometheus) -> tuple[Family, ...]:
    """The site's own, then those that ship and have another name."""
    from gpumon.site.read import shipped_families

    own = {family.name for family in told.families}
    return (*told.families, *(each for each in shipped_families() if each.name not in own))


def jobstats_server() -> str:
    """PROM_SERVER in the `config.py` beside the site's `jobstats`, read and never run; else ""."""
    command = shutil.which("jobstats")
    if command is None:
        return ""
    path = os.path.join(os.path.dirname(os.path.realpath(command)), "config.py")
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(_MAX_CONFIG))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    for each in tree.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
            names = [target.id for target in each.targets if isinstance(target, ast.Name)]
            if "PROM_SERVER" in names and isinstance(each.value.value, str):
                return each.value.value
    return ""


class Found(NamedTuple):
    """What the server has of a job: a stream for each node, and what is missing, and why."""

    streams: Sequence[Stream] = ()
    missing: Mapping[str, str] = MappingProxyType({})  # what -> why
    interval_s: float = 0.0  # between scrapes

    def noted(self, run: RunData) -> RunData:
        """The run with what is missing of it."""
        run.coverage.missing = {**run.coverage.missing, **self.missing}
        return run


class Measured:
    """The samples of jobs that the site's Prometheus has. A server that fails once is not asked
    again: the reports say why, and rest on what is left.
    """

    def __init__(self, site: Site, url: str | None, *, is_quiet: bool = False) -> None:
        """`is_quiet`: a screen is shown, which lines on standard error would break. Raises
        UsageError.
        """
        self._site = site
        self._is_quiet = is_quiet
        self._server = server_for(site, url)
        self._failed = ""

    def streams(self, job: Job) -> Found:
        if self._server is None or job.is_pending or not job.nodes or job.start is None:
            return Found()
        if self._failed:
            return Found(missing={_PROMETHEUS: self._failed})
        if not self._is_quiet:
            name = job.id or job.raw_id
            progress(f"reading the samples of job {name} from {self._server.host} ...")
        try:
            return _found(self._server, job, self._site)
        except GpumonError as error:
            self._failed = str(error)
            return Found(missing={_PROMETHEUS: self._failed})

    def summarized(self, jobs: Sequence[Job]) -> tuple[list[Job], str]:
        """Many jobs with what the server has of each, means and maxima; and what was not to be had,
        else "". A few queries for all of them.
        """
        if self._server is None or self._failed:
            return list(jobs), self._failed
        from gpumon.prometheus.totals import totals

        if not self._is_quiet:
            progress(f"reading the means of {len(jobs)} jobs from {self._server.host} ...")
        try:
            found = totals(self._server, families_of(self._site.prometheus), jobs)
        except GpumonError as error:
            self._failed = str(error)
            return list(jobs), self._failed
        return [replace(job, summary=found.get(job.raw_id)) for job in jobs], ""


def _found(server: Server, job: Job, site: Site) -> Found:
    from gpumon.prometheus.samples import scraped

    assert job.start is not None
    end = job.end if job.has_ended and job.end else time.time()
    told = scraped(
        server,
        families_of(site.prometheus),
        job,
        job.start,
        max(end, job.start + 1),
        site.prometheus.interval_s,
        is_whole=True,
    )
    return Found(
        [Stream(node, items) for node, items in told.streams], told.missing, told.interval_s
    )


def transport_for(job: Job, url: str | None = None) -> PrometheusTransport | None:
    """The way to a running job by the site's server; None where there is none."""
    server = known_server(url)
    if server is None:
        return None
    from gpumon.prometheus.transport import PrometheusTransport

    site = _site()
    families, interval_s = families_of(site.prometheus), site.prometheus.interval_s
    return PrometheusTransport(job, server, families, interval_s)


def replayed(job: Job, url: str | None = None) -> list[Track]:
    """What the site's server has of a job, for a replay. Raises GpumonError, also without any."""
    server = known_server(url)
    if server is None:
        raise NotFoundError("no Prometheus server is known")
    found = _found(server, job, _site())
    tracks = [_track_of(each.node, list(each.items)) for each in found.streams]
    if not tracks:
        raise NotFoundError("; ".join(found.missing.values()))
    return tracks


def _track_of(name: str, items: Sequence[Header | Sample]) -> Track:
    """Of what is not in a file, and was never aggregated."""
    first, last = (items[0].time, items[-1].time) if items else (0.0, 0.0)
    whole = Stretch(first, last, partial(iter, items), lambda: None)

    def since(begin: float | None) -> Iterator[Header | Sample]:
        begin = -inf if begin is None else begin
        return (each for each in items if isinstance(each, Header) or each.time >= begin)

    return Track(name, since, lambda: iter([whole]), last - first)


def scraped_before(header: Header, end: float) -> Track | None:
    """What the site's server has of the header's job on its node before a moment; None where no
    server is known. Raises GpumonError.
    """
    from gpumon.slurm.job import Job, NodeAllocation, Resources

    told = header.job
    server = known_server() if told is not None and told.start is not None else None
    if server is None or told is None or told.start is None or end <= told.start:
        return None
    from gpumon.prometheus.samples import scraped

    site = _site()
    job = Job(
        raw_id=told.id, id=told.array or told.id, start=told.start, nodes=(header.node,),
        allocated=Resources(gpus=told.gpus), restarts=told.restarts,
        allocations=(NodeAllocation(header.node, gpus=told.gpus),),
    )  # fmt: skip
    families, interval_s = families_of(site.prometheus), site.prometheus.interval_s
    found = scraped(server, families, job, told.start, end, interval_s)
    items = (item for _, items in found.streams for item in items)
    return _track_of(header.node, [item for item in items if item.time < end])


def known_server(url: str | None = None) -> Server | None:
    """The site's server, without reading more of its file than there is."""
    return server_for(_site(), url)


def _site() -> Site:
    from gpumon.services.this_site import this_site
    from gpumon.site import Site
    from gpumon.toml import site_file

    return this_site() if site_file() is not None else Site()
