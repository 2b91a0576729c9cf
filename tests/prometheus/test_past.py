"""Scrapes of the time before the first sample on a screen, where nothing was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.pipeline.pipeline import Pipeline
from gpumon.services.prometheus import scraped_before
from gpumon.sources.files import Past
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Point, openmetrics
from tests.sources.test_past import START, Live, record, shown
from tests.support.waiting import until


def _scrapes() -> Iterator[tuple[float, Point]]:
    """From the job's start on, one of the node's GPUs, and another job's."""
    for second in range(0, 3600, 30):
        for job, busy in ("4711", 70.0), ("4712", 10.0):
            labels = {"instance": "gpu01:9445", "jobid": job, "ordinal": "0", "uuid": "GPU-a"}
            yield START - 30 + second, Point("nvidia_gpu_duty_cycle", labels, busy)


@pytest.fixture
def pipeline(
    prometheus: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Pipeline]:
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", prometheus(openmetrics(_scrapes())))
    made = Pipeline(Live(START + 1800, 60), past=Past(scraped=scraped_before))
    yield made
    made.stop()


def test_scrapes_are_drawn_where_nothing_was_recorded(pipeline: Pipeline) -> None:
    pipeline.start()
    pipeline.show_from(START)
    said = until(pipeline.news)
    assert said.startswith("earlier scrapes by Prometheus of this job are shown, from ")
    values = shown(pipeline, 1800, 30)
    assert values[-1] == 20
    assert values[:28] == [70] * 28


def test_a_recording_goes_before(pipeline: Pipeline) -> None:
    record(START, 200)
    pipeline.start()
    pipeline.show_from(START)
    assert until(pipeline.news).startswith("earlier recordings of this job are shown, from ")
    assert 70 not in shown(pipeline, 1800, 30)


def test_a_server_that_is_down_is_said(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROMETHEUS_URL", "http://127.0.0.1:9")
    pipeline.start()
    pipeline.show_from(START)
    assert "127.0.0.1:9 cannot be reached" in until(pipeline.news)


def test_without_a_server_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUMON_PROMETHEUS_URL", raising=False)
    monkeypatch.setenv("PATH", "")
    assert scraped_before(Live(START + 300).header, START + 300) is None
