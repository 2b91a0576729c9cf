"""Servers whose clock is not Slurm's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.prometheus.client import Series
from gpumon.prometheus.clocks import ahead_s
from tests.prometheus import exporters
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Scrape, openmetrics, scraped
from tests.prometheus.test_families import _job, _reported
from tests.simulator import judge, observe


@pytest.mark.parametrize("exporter", [exporters.princeton, exporters.dcgm_bare])
@pytest.mark.parametrize("ahead", [60, -60])
def test_a_clock_that_is_a_minute_off(prometheus: Start, exporter: Scrape, ahead: int) -> None:
    sim, job = _job(12)
    points = [
        (at + ahead, point)
        for node in range(len(job.nodes))
        for at, point in scraped(observe.stream(sim, node), exporter, job.raw_id)
    ]
    report = _reported(prometheus(openmetrics(points)), job)
    recorded = judge.report_of(sim)
    (what, why), *others = report.coverage.missing.items()
    assert others == []
    assert what == "clock"
    words = why.split()
    assert words[1:3] == ["is", "about"]
    assert int(words[3]) == pytest.approx(60, abs=15)
    assert ("ahead of Slurm" if ahead > 0 else "behind Slurm") in why
    assert report.coverage.covered_percent == pytest.approx(100, abs=2)
    assert report.coverage.from_start
    assert report.coverage.to_end
    for ours, theirs in zip(report.devices, recorded.devices):
        assert ours.busy_mean == pytest.approx(theirs.busy_mean, abs=4)


def _scrapes(first: float, last: float) -> list[Series]:
    times = [first + 30 * n for n in range(int((last - first) // 30) + 1)]
    return [Series({}, times, [0.0] * len(times))]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (10, 3580),  # as it should be
        (2000, 3590),  # retention is shorter
        (10, 1000),  # scraping ended
        (10, 3670),  # the cgroup stays a while after the end
        (-100, 3590),  # an earlier attempt's are there, too
        (-25, 3590),  # less than an interval
    ],
)
def test_clocks_that_may_agree(first: float, last: float) -> None:
    assert ahead_s(_scrapes(first, last), 0.0, 3600.0) == 0


@pytest.mark.parametrize("ahead", [-115, -60, -45, 55, 60, 115])
def test_clocks_that_do_not(ahead: float) -> None:
    found = ahead_s(_scrapes(10 + ahead, 3580 + ahead), 0.0, 3600.0)
    assert found == pytest.approx(ahead, abs=15)


def test_one_scrape_is_too_little() -> None:
    assert ahead_s([Series({}, [1800.0], [0.0])], 0.0, 3600.0) == 0
    assert ahead_s([], 0.0, 3600.0) == 0


def test_a_job_that_ran_again_is_taken_by_slurms_clock(prometheus: Start) -> None:
    """Scrapes before its start are of the attempt before."""
    sim, job = _job(12)
    points = [
        (at - 60, point)
        for at, point in scraped(observe.stream(sim, 0), exporters.princeton, job.raw_id)
    ]
    report = _reported(prometheus(openmetrics(points)), replace(job, restarts=1))
    assert "clock" not in report.coverage.missing
