"""What a scrape of the emulated driver holds."""

from __future__ import annotations

import re
import subprocess

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.exporter.conftest import Start

pytestmark = pytest.mark.slow


def _values(text: str, name: str) -> dict[str, float]:
    """By the number of the GPU."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {each.labels.get("gpu", ""): each.value for each in samples if each.name == name}


@pytest.mark.parametrize("scenario", ["h200", "mig", "lost", "na", "no_driver", "hostile_text"])
@pytest.mark.parametrize("more", [(), ("--processes",)])
def test_promtool_finds_nothing(exporter: Start, scenario: str, more: tuple[str, ...]) -> None:
    text = exporter(scenario, *more).scrape()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert "\x1b" not in text


def test_units_are_base_units(exporter: Start) -> None:
    text = exporter("h200").until(lambda text: "sm_active" in text)
    assert all(0 <= value <= 1 for value in _values(text, "gpumon_gpu_busy_ratio").values())
    assert _values(text, "gpumon_gpu_sm_clock_hertz")["0"] > 1e9
    assert _values(text, "gpumon_gpu_memory_total_bytes")["0"] > 100e9
    assert _values(text, "gpumon_gpu_energy_joules_total")["0"] > 0
    assert 0 < _values(text, "gpumon_gpu_sm_active_ratio")["0"] <= 1


def test_what_is_missing_is_absent(exporter: Start) -> None:
    text = exporter("lost").until(lambda text: 0.0 in _values(text, "gpumon_gpu_up").values())
    up = _values(text, "gpumon_gpu_up")
    (lost,) = [gpu for gpu, value in up.items() if value == 0]
    # the last values before it was lost grow old, and go
    assert len(up) > 1
    assert all(value == 1 for gpu, value in up.items() if gpu != lost)


def test_a_lost_gpus_readings_end(exporter: Start) -> None:
    def is_gone(text: str) -> bool:
        lost = {gpu for gpu, value in _values(text, "gpumon_gpu_up").items() if value == 0}
        return bool(lost) and not lost & set(_values(text, "gpumon_gpu_power_watts"))

    exporter("lost").until(is_gone)


def test_scrapes_cost_no_calls(exporter: Start) -> None:
    """One loop reads: between two samples every scrape is the same text."""
    started = exporter("a100x4", "--interval", "30")
    texts = {started.scrape() for _ in range(50)}
    assert len(texts) == 1


def test_openmetrics_where_the_server_accepts_it(exporter: Start) -> None:
    text = exporter("h200").scrape("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert list(openmetrics_families(text))


def test_names_that_other_dashboards_expect(exporter: Start) -> None:
    """Grafana's 12239 reads the first six, jobstats' the rest."""
    text = exporter("h200", "--names", "dcgm", "--names", "jobstats").until(
        lambda text: "TENSOR" in text
    )
    for name in (
        "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "nvidia_gpu_duty_cycle", "nvidia_gpu_memory_used_bytes", "nvidia_gpu_memory_total_bytes",
    ):  # fmt: skip
        assert re.search(rf"^{name}\{{", text, re.M), name
    busy = _values(text, "gpumon_gpu_busy_ratio")["0"]
    assert _values(text, "DCGM_FI_DEV_GPU_UTIL")["0"] == pytest.approx(100 * busy)
    used = _values(text, "DCGM_FI_DEV_FB_USED")["0"] * 2**20
    assert used == pytest.approx(_values(text, "gpumon_gpu_memory_used_bytes")["0"])


def test_processes_are_there_on_request_alone(exporter: Start) -> None:
    assert "gpumon_process_gpu" not in exporter("h200").scrape()
    text = exporter("h200", "--processes").until(lambda text: "gpumon_process_gpu" in text)
    assert 'command="sleeper"' in text
