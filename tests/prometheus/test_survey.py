"""`gpumon doctor --prometheus`: what a real server has."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gpumon.errors import UsageError
from gpumon.services.survey import examine_server
from gpumon.site.read import load_site
from tests.prometheus.conftest import Start
from tests.prometheus.exporters import Point, openmetrics


def _scrapes(**more: str) -> Iterator[tuple[float, Point]]:
    now = time.time()
    for day in 7, 1, 0:
        for second in range(600, 0, -15):
            at = now - 86_400 * day - second
            for node in "gpu01", "gpu02":
                labels = {"instance": f"{node}:9445", "uuid": f"GPU-{node}", "ordinal": "0", **more}
                yield at, Point("nvidia_gpu_duty_cycle", labels, 50.0)
                yield at, Point("nvidia_gpu_memory_used_bytes", labels, 2.0**30)


def _examined(url: str) -> tuple[dict[str, tuple[str, str]], str]:
    checks, section = examine_server(url)
    return {check.name.strip(): (check.result, check.detail) for check in checks}, section


def test_families_labels_pace_and_age(prometheus: Start) -> None:
    url = prometheus(openmetrics(_scrapes(jobid="4711")))
    checks, section = _examined(url)
    result, detail = checks["jobstats"]
    assert result == "ok"
    assert "2 nodes" in detail
    assert "every 15 s" in detail
    assert "samples up to 7 d old" in detail
    assert "jobs by label jobid" in detail
    assert "dcgm" in checks["not found"][1]
    assert f'url = "{url}"' in section
    assert "interval_s = 15" in section


def test_the_section_is_a_valid_site_file(prometheus: Start, tmp_path: object) -> None:
    _, section = _examined(prometheus(openmetrics(_scrapes(jobid="1"))))
    path = f"{tmp_path}/site.toml"
    with open(path, "w") as file:
        file.write(section)
    assert load_site(path).prometheus.interval_s == 15


def test_gpus_without_a_job_are_limited(prometheus: Start) -> None:
    checks, _ = _examined(prometheus(openmetrics(_scrapes())))
    assert checks["jobstats"][0] == "limited"


def test_a_server_with_nothing_for_us(prometheus: Start) -> None:
    checks, section = _examined(prometheus())
    assert checks["GPUs"][0] == "limited"
    assert section == ""


def test_a_server_that_is_down_is_one_check() -> None:
    checks, section = _examined("http://127.0.0.1:9")
    assert checks["Prometheus"][0] == "absent"
    assert "cannot be reached" in checks["Prometheus"][1]
    assert section == ""


def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUMON_PROMETHEUS_URL", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="no Prometheus server is known"):
        examine_server(None)
