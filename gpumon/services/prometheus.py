"""A job's samples from the site's Prometheus, where there is one."""

from __future__ import annotations

import ast
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import GpumonError
from gpumon.services.runs import Stream
from gpumon.site.prometheus import Family, Prometheus

if TYPE_CHECKING:
    from gpumon.analysis.rundata import RunData
    from gpumon.prometheus.client import Server
    from gpumon.site import Site
    from gpumon.slurm.job import Job

#: of what it is that is missing, in a report
_PROMETHEUS = "Prometheus"
_MAX_CONFIG = 1 << 20


def server_for(site: Site, url: str | None, env: Mapping[str, str] = os.environ) -> Server | None:
    """The server that the user names, else the site's file, else the settings of its jobstats;
    None where none does. Raises UsageError.
    """
    told = url or site.prometheus.url or env.get("GPUMON_PROMETHEUS_URL", "") or jobstats_server()
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

    def noted(self, run: RunData) -> RunData:
        """The run with what is missing of it."""
        run.coverage.missing = {**run.coverage.missing, **self.missing}
        return run


class Measured:
    """The samples of jobs that the site's Prometheus has. A server that fails once is not asked
    again: the reports say why, and rest on what is left.
    """

    def __init__(self, site: Site, url: str | None) -> None:
        """Raises UsageError."""
        self._site = site
        self._server = server_for(site, url)
        self._failed = ""

    def streams(self, job: Job) -> Found:
        if self._server is None or job.is_pending or not job.nodes or job.start is None:
            return Found()
        if self._failed:
            return Found(missing={_PROMETHEUS: self._failed})
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

        try:
            found = totals(self._server, families_of(self._site.prometheus), jobs)
        except GpumonError as error:
            self._failed = str(error)
            return list(jobs), self._failed
        return [replace(job, summary=found.get(job.raw_id)) for job in jobs], ""


def _found(server: Server, job: Job, site: Site) -> Found:
    from gpumon.prometheus.fetch import Fetch, Wanted
    from gpumon.prometheus.samples import interval_of, stream

    assert job.start is not None
    end = job.end if job.has_ended and job.end else time.time()
    shares = {each.node: each.gpus for each in job.allocations}
    if len(job.nodes) == 1:
        shares.setdefault(job.nodes[0], job.gpus)
    ids = tuple(each for each in (job.raw_id, job.sluid) if each)
    wanted = Wanted(ids, job.nodes, job.start, max(end, job.start + 1), shares, job.gpus != 0)
    fetch = Fetch(server, families_of(site.prometheus), wanted)
    nodes = fetch.run()
    missing = dict(fetch.missing)
    if not nodes:
        missing.setdefault(_PROMETHEUS, f"{server.host} has no samples of this job")
    elif job.gpus and not any(node.gpus for node in nodes):
        missing.setdefault("GPUs", f"{server.host} has no GPU samples of this job")
    interval_s = site.prometheus.interval_s or interval_of(nodes)
    return Found([Stream(each.node, stream(each, job, interval_s)) for each in nodes], missing)
