"""`gpumon jobs` of jobs that nobody recorded, with a server that scraped them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.prometheus.client import Server
from gpumon.report.jobs import JobLine, Listing
from gpumon.services.jobs_overview import JobsOverview
from gpumon.site import Site
from gpumon.slurm.client import Slurm
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import openmetrics
from tests.prometheus.test_report import _scrapes
from tests.slurm.made import NOW, MadeSlurm, row

_IDS = range(4711, 4714)
_GIB = 1 << 30


@pytest.fixture
def overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobsOverview:
    """Of jobs that ended, and one that is pending; none was recorded."""
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    past = tuple(row(id, state="COMPLETED") for id in _IDS)
    made = MadeSlurm(row(4720, state="PENDING"), past=past)
    return JobsOverview(Slurm(made, now=lambda: NOW), "ada", None, Site(), lambda: NOW)


def _line(listing: Listing, id: int) -> JobLine:
    return next(each for each in listing.lines if each.id == str(id))


def test_the_server_has_the_figures(
    prometheus: Start, overview: JobsOverview, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = prometheus(openmetrics(_scrapes(_IDS[:2], lambda id, gpu: 80.0 * (id == 4711))))
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", url)
    first = overview.look()
    assert not [each for each in first.lines if each.figures.busy.used is not None]
    listing = overview.whole()
    assert listing.notes == []
    busy, idle, unknown = (_line(listing, id) for id in _IDS)
    assert busy.figures.busy.used == pytest.approx(80)
    assert busy.figures.gpu_mem.used == 20 * _GIB
    assert busy.figures.mem.used == 8 * _GIB
    assert idle.figures.busy.used == pytest.approx(0)
    assert idle.verdict.waste_gpu_hours == pytest.approx(1, rel=0.02)
    assert unknown.figures.busy.used is None
    assert unknown.figures.busy.why == "not recorded"
    assert _line(listing, 4720).group.is_pending


def test_each_job_is_asked_for_once(
    prometheus: Start, overview: JobsOverview, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = prometheus(openmetrics(_scrapes(_IDS, lambda *_: 50.0)))
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", url)
    overview.whole()
    monkeypatch.setattr(Server, "series", lambda *_: pytest.fail("asked again"))
    assert _line(overview.whole(), 4711).figures.busy.used == pytest.approx(50)


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://127.0.0.1:9", "127.0.0.1:9 cannot be reached"), ("prom", "prom")],
    ids=["down", "not a URL"],
)
def test_a_server_that_fails_is_a_note(
    overview: JobsOverview, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", url)
    for listing in (overview.whole(), overview.whole()):
        assert len(listing.lines) == 4
        assert len(listing.notes) == 1
        assert said in listing.notes[0]
