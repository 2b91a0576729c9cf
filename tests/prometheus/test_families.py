"""Reports from a server that scraped what each family of exporters writes, beside the report from
a recording of the same run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from gpumon.prometheus.access import Access
from gpumon.prometheus.client import Server
from gpumon.prometheus.totals import totals
from gpumon.report.build import build
from gpumon.report.model import Report
from gpumon.services.prometheus import Measured
from gpumon.services.runs import run_of
from gpumon.site.read import shipped_families
from gpumon.slurm.job import Job, NodeAllocation
from tests.prometheus import exporters
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Scrape, openmetrics, scraped
from tests.simulator import accounts, judge, observe
from tests.simulator.draw import make
from tests.simulator.job import SimJob

#: of seed 5: an idle GPU, a job that never used one, one out of memory, one with a healthy pair
_JOBS = (1, 5, 9, 12)
_FAMILIES = (
    exporters.princeton, exporters.princeton_before, exporters.dcgm, exporters.dcgm_bare,
    exporters.dcgm_newer, exporters.slurm_job,
)  # fmt: skip
#: what an exporter cannot show, as it measures no process inside the GPU, no kernel counter of
#: killed processes and no activity but polls of busy; the report says which checks it skipped
_NEEDS_PROCESSES = {"alloc-all-tf", "host-stall", "suspected-hang", "smaller-gpu", "input-bound"}
_POLLED = {"gpu-never-used", "gpu-allocated-no-process", "gpus-partly-idle", "idle-tail"}
_WITH_ACTIVITY = (exporters.princeton, exporters.princeton_before)


def _job(number: int) -> tuple[SimJob, Job]:
    sim = cast("SimJob", make(5, number))
    job = accounts.slurm_job(sim)
    each = (job.gpus or 0) // len(job.nodes)
    shares = tuple(NodeAllocation(node, gpus=each) for node in job.nodes)
    return sim, replace(job, allocations=shares)


def _history(sim: SimJob, job: Job, exporter: Scrape) -> str:
    nodes = range(len(job.nodes))
    streams = [scraped(observe.stream(sim, node), exporter, job.raw_id) for node in nodes]
    return openmetrics(point for each in streams for point in each)


def _reported(url: str, job: Job) -> Report:
    site = judge.site()
    found = Measured(site, url).streams(job)
    run = found.noted(run_of(found.streams).data(job, site))
    run.coverage.source = "prometheus"
    return build(run)


@pytest.mark.parametrize("exporter", _FAMILIES)
@pytest.mark.parametrize("number", _JOBS)
def test_the_report_is_that_of_a_recording(
    prometheus: Start, exporter: Scrape, number: int
) -> None:
    sim, job = _job(number)
    report = _reported(prometheus(_history(sim, job, exporter)), job)
    recorded = judge.report_of(sim)
    assert dict(report.coverage.missing) == {}
    assert report.coverage.covered_percent == pytest.approx(100, abs=2)
    assert report.coverage.interval_s == 30
    cannot = _NEEDS_PROCESSES | (set() if exporter in _WITH_ACTIVITY else _POLLED)
    assert _ids(report) - cannot == _ids(recorded) - cannot
    for ours, theirs in zip(report.devices, recorded.devices):
        assert (ours.node, ours.device.index, ours.device.name) == (
            theirs.node,
            theirs.device.index,
            theirs.device.name,
        )
        assert ours.busy_mean == pytest.approx(theirs.busy_mean, abs=4)
        assert ours.mem_peak_bytes == pytest.approx(theirs.mem_peak_bytes, rel=0.05)
        assert ours.mem_truth != "measured"
    assert len(report.devices) == len(recorded.devices) == job.gpus
    assert report.used.cores.used == pytest.approx(recorded.used.cores.used, rel=0.05)
    assert report.used.mem.peak == pytest.approx(recorded.used.mem.peak, rel=0.05)


def _ids(report: Report) -> set[str]:
    return {each.id for each in report.findings if each.level != "info"}


def test_a_leak_asks_for_no_memory_beyond_all_bounds(prometheus: Start) -> None:
    """Its pace would need 3.5 TiB by the time limit, and no exporter tells the node's size."""
    sim, job = _job(5)
    report = _reported(prometheus(_history(sim, job, exporters.princeton)), job)
    assert "oom-killed" in _ids(report)
    assert not [each for each in report.recommendations if each.change.option == "--mem"]


def test_a_gap_in_scraping_is_a_gap(prometheus: Start) -> None:
    sim, job = _job(1)
    points = list(scraped(observe.stream(sim, 0), exporters.princeton, job.raw_id))
    assert job.start is not None
    gap = (job.start + 600, job.start + 3000)
    left = [point for point in points if not gap[0] < point[0] < gap[1]]
    one = replace(job, nodes=job.nodes[:1])
    report = _reported(prometheus(openmetrics(left)), one)
    assert report.coverage.gaps == 1
    assert report.coverage.longest_gap_s == pytest.approx(2400, abs=61)
    assert report.coverage.covered_percent < 75


def test_retention_shorter_than_the_job(prometheus: Start) -> None:
    sim, job = _job(1)
    points = list(scraped(observe.stream(sim, 0), exporters.princeton, job.raw_id))
    assert job.start is not None
    left = [point for point in points if point[0] > job.start + 4000]
    one = replace(job, nodes=job.nodes[:1])
    report = _reported(prometheus(openmetrics(left)), one)
    assert not report.coverage.from_start
    assert report.coverage.covered_percent < 60
    assert not [each for each in report.recommendations if each.change.option == "--mem"]


def test_a_server_without_this_job_leaves_the_accounting(prometheus: Start) -> None:
    sim, job = _job(1)
    url = prometheus(_history(sim, replace(job, raw_id="4712"), exporters.princeton))
    found = Measured(judge.site(), url).streams(job)
    assert not found.streams
    assert "has no samples of this job" in found.missing["Prometheus"]


def test_some_of_a_nodes_gpus_without_a_name_of_the_job_are_not_guessed(prometheus: Start) -> None:
    sim, job = _job(9)  # four GPUs on one node
    part = replace(job, allocations=(NodeAllocation(job.nodes[0], gpus=2),))
    report = _reported(prometheus(_history(sim, job, exporters.dcgm_bare)), part)
    assert not report.devices
    assert "does not show which of its 4 GPUs" in report.coverage.missing[f"GPUs of {job.nodes[0]}"]


@pytest.mark.parametrize("others", [False, True])
def test_a_gpu_that_names_no_job_is_the_jobs_where_the_node_has_no_more(
    prometheus: Start, others: bool
) -> None:
    sim, job = _job(9)  # four GPUs on one node
    told = [
        (
            at,
            point._replace(
                labels={**point.labels, "jobid": ""} if _is_first(point) else point.labels
            ),
        )
        for at, point in scraped(observe.stream(sim, 0), exporters.princeton, job.raw_id)
        if point.name != "nvidia_gpu_jobId"
    ]
    if others:  # a fifth, which is perhaps the job's
        fifth = {"ordinal": "4", "uuid": "GPU-fifth", "jobid": ""}
        told += [
            (at, point._replace(labels={**point.labels, **fifth}))
            for at, point in told
            if _is_first(point)
        ]
    report = _reported(prometheus(openmetrics(told)), job)
    assert len(report.devices) == (3 if others else 4)
    where = f"GPUs of {job.nodes[0]}"
    assert report.coverage.missing == (
        {where: "only 3 of the job's 4 GPUs are known to be its own"} if others else {}
    )


@pytest.mark.parametrize("exporter", [exporters.dcgm, exporters.slurm_job])
@pytest.mark.parametrize("later_s", [0, 7])
def test_two_servers_that_scrape_the_same_count_once(
    prometheus: Start, exporter: Scrape, later_s: float
) -> None:
    sim, job = _job(12)
    once = list(scraped(observe.stream(sim, 0), exporter, job.raw_id))
    both = [
        (at + later, point._replace(labels={**point.labels, "replica": name}))
        for name, later in (("a", 0.0), ("b", later_s))
        for at, point in once
    ]
    single = _reported(prometheus(openmetrics(once)), job)
    url = prometheus(openmetrics(both))
    report = _reported(url, job)
    assert _ids(report) == _ids(single)
    assert len(report.devices) == len(single.devices)
    for ours, theirs in zip(report.devices, single.devices):
        assert ours.busy_mean == pytest.approx(theirs.busy_mean, abs=1)
        assert ours.mem_peak_bytes == theirs.mem_peak_bytes
    assert report.used.cores.used == pytest.approx(single.used.cores.used, rel=0.05)
    ended = replace(job, state="COMPLETED")
    many, few = (
        totals(Server(Access(each)), shipped_families(), [ended])[job.raw_id]
        for each in (url, prometheus(openmetrics(once)))
    )
    assert many == few


def _is_first(point: exporters.Point) -> bool:
    return point.labels.get("ordinal") == "0"


def test_two_jobs_on_one_gpu_do_not_add_up(prometheus: Start) -> None:
    sim, job = _job(12)
    both = [
        point
        for id in (job.raw_id, "9999")
        for point in scraped(observe.stream(sim, 0), exporters.dcgm, id)
    ]
    report = _reported(prometheus(openmetrics(both)), job)
    recorded = judge.report_of(sim)
    for ours, theirs in zip(report.devices, recorded.devices):
        assert ours.mem_peak_bytes == pytest.approx(theirs.mem_peak_bytes, rel=0.05)


def test_a_server_that_fails_is_not_asked_for_the_next_job() -> None:
    _, job = _job(1)
    measured = Measured(judge.site(), "http://127.0.0.1:9")
    assert "cannot be reached" in measured.streams(job).missing["Prometheus"]
    assert "cannot be reached" in measured.streams(job).missing["Prometheus"]
