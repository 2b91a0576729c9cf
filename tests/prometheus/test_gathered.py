"""Series of exporters as the readings that they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.prometheus.client import Series
from gpumon.prometheus.gathered import Column, Gpu, NodeColumns, rates
from gpumon.site.prometheus import Family, Metric
from gpumon.site.read import shipped_families

_SHIPPED = {family.name: family for family in shipped_families()}
_TIMES = [100.0, 130.0, 160.0]


def _series(metric: str, values: list[float], /, **labels: str) -> Series:
    return Series({"__name__": metric, **labels}, _TIMES[: len(values)], values)


def _taken(family: str, *series: Series) -> NodeColumns:
    node = NodeColumns("gpu01")
    node.take(_SHIPPED[family], series)
    return node


def test_a_sum_is_of_all_its_parts_or_unknown() -> None:
    gpu = {"UUID": "GPU-1", "gpu": "0"}
    node = _taken(
        "dcgm",
        _series("DCGM_FI_DEV_FB_USED", [1000, 2000], **gpu),
        _series("DCGM_FI_DEV_FB_FREE", [79000], **gpu),
        _series("DCGM_FI_DEV_FB_RESERVED", [920, 920], **gpu),
    )
    assert node.gpus[0].facts == {"mem_total_bytes": (1000 + 79000 + 920) * 2**20}
    assert node.gpus[0].columns["mem_used_bytes"] == {100.0: 1000 * 2**20, 130.0: 2000 * 2**20}


def test_memory_in_use_of_the_host_is_a_difference() -> None:
    node = _taken(
        "node",
        _series("node_memory_MemTotal_bytes", [100.0, 100.0]),
        _series("node_memory_MemAvailable_bytes", [60.0, 55.0]),
    )
    assert node.columns["host"]["mem_used_bytes"] == {100.0: 40.0, 130.0: 45.0}


def test_steps_of_a_job_are_not_counted_again() -> None:
    node = _taken(
        "cgroup",
        _series("cgroup_memory_rss_bytes", [10.0], jobid="1", step="", task=""),
        _series("cgroup_memory_rss_bytes", [7.0], jobid="1", step="0", task=""),
        _series("cgroup_memory_rss_bytes", [7.0], jobid="1", step="0", task="0"),
    )
    assert node.columns["job"]["mem_anon_bytes"] == {100.0: 10.0}


def test_an_older_exporter_without_steps_counts() -> None:
    node = _taken("cgroup", _series("cgroup_memory_rss_bytes", [10.0], jobid="1"))
    assert node.columns["job"]["mem_anon_bytes"] == {100.0: 10.0}


def test_sm_activity_is_never_called_busy() -> None:
    gpu = {"slurmjobid": "1", "gpu": "0", "gpu_type": "A100"}
    nvml = _taken("slurm-job", _series("slurm_job_utilization_gpu", [90.0], **gpu))
    assert set(nvml.gpus[0].columns) == {"busy_percent"}
    by_dcgm = _taken(
        "slurm-job",
        _series("slurm_job_utilization_gpu", [90.0], **gpu),
        _series("slurm_job_sm_occupancy_gpu", [40.0], **gpu),
    )
    assert set(by_dcgm.gpus[0].columns) == {"sm_active_percent", "sm_occupancy_percent"}


def test_power_of_the_whole_gpu_is_not_an_instances() -> None:
    mig = {"uuid": "MIG-1", "ordinal": "0", "GPU_I_ID": "3", "name": "A100 MIG 1g.10gb"}
    node = _taken(
        "jobstats",
        _series("nvidia_gpu_power_usage_milliwatts", [300000.0], **mig),
        _series("nvidia_gpu_memory_used_bytes", [5.0], **mig),
    )
    assert set(node.gpus[0].columns) == {"mem_used_bytes"}
    assert node.gpus[0].gpu == Gpu("MIG-1", 0, "3")


def test_an_implausible_value_is_missing() -> None:
    gpu = {"uuid": "GPU-1", "ordinal": "0"}
    node = _taken("jobstats", _series("nvidia_gpu_duty_cycle", [50.0, 4e9, -1.0], **gpu))
    assert node.gpus[0].columns["busy_percent"] == {100.0: 50.0}


def test_two_families_describe_one_gpu_by_its_uuid() -> None:
    node = _taken("jobstats", _series("nvidia_gpu_duty_cycle", [50.0], uuid="GPU-1", ordinal="3"))
    dcgm = _series("DCGM_FI_DEV_GPU_UTIL", [51.0, 52.0], UUID="GPU-1", gpu="0")
    node.take(_SHIPPED["dcgm"], [dcgm, _series("DCGM_FI_DEV_GPU_TEMP", [60.0], UUID="GPU-1")])
    assert len(node.gpus) == 1
    assert node.gpus[0].columns["busy_percent"] == {100.0: 50.0, 130.0: 52.0}
    assert node.gpus[0].columns["temperature_c"] == {100.0: 60.0}


def test_a_site_declares_its_own() -> None:
    metric = Metric("my_gpu_busy_ratio", "device.busy_percent", scale=100)
    family = Family("mine", "ours", (metric,), uuid="id")
    node = NodeColumns("gpu01")
    node.take(family, [_series("my_gpu_busy_ratio", [0.25], id="GPU-1")])
    assert node.gpus[0].columns["busy_percent"] == {100.0: 25.0}


# -- rates


def test_a_rate_is_unknown_across_a_reset_and_a_gap() -> None:
    counter = {0.0: 100.0, 30.0: 130.0, 60.0: 5.0, 90.0: 35.0, 400.0: 345.0, 430.0: 375.0}
    assert rates(counter) == {30.0: 1.0, 90.0: 1.0, 430.0: 1.0}


@given(st.dictionaries(st.floats(0, 1e9), st.floats(0, 1e12), max_size=20))
def test_rates_are_never_negative(counter: Column) -> None:
    assert all(value >= 0 for value in rates(counter).values())


@pytest.mark.parametrize("counter", [{}, {1.0: 5.0}])
def test_one_point_has_no_rate(counter: Column) -> None:
    assert rates(counter) == {}
