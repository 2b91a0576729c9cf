"""GPM on whole devices and MIG instances, and where it is refused."""

from __future__ import annotations

import pytest

from gpumon.collect.nvml.gpm import PERCENT_METRICS, admin_only
from gpumon.model.reading import MEASURING, MIG, Missing
from tests.collect.collected import collect
from tests.nvml.emulator import Emulated, Scenario

NAMES = tuple(PERCENT_METRICS.values())
VALUES = {
    "gpm_sm": 52,
    "gpm_occ": 31,
    "gpm_tensor": 27,
    "gpm_dram": 44,
    "gpm_fp64": 1,
    "gpm_fp32": 9,
    "gpm_fp16": 5,
    "gpm_int": 11,
}


def gpm_rows(got, key):
    """The GPM readings of each tick that has any."""
    rows = ({n: tick.device[key][n] for n in NAMES if n in tick.device[key]} for tick in got.ticks)
    return [row for row in rows if row]


def h200(**metrics):
    return Scenario().gpu(0, model="H200", util=60, **metrics)


def test_the_first_read_measures_the_second_tells():
    with Emulated(h200(**VALUES)) as gpus:
        got = collect(gpus, 3)
    first, second, third = gpm_rows(got, 0)
    assert set(first.values()) == {MEASURING}
    assert second == third == dict(zip(NAMES, VALUES.values()))
    assert got.told["devices"][0]["facts"]["gpm"] == 1


def test_one_sample_and_one_evaluation_for_each_read():
    with Emulated(h200()) as gpus:
        collect(gpus, 5)
        stats = gpus.stats()
    assert stats["nvmlGpmSampleGet"].calls == 5
    assert stats["nvmlGpmMetricsGet"].calls == 4


def test_reads_that_follow_too_soon_say_nothing():
    with Emulated(h200(**VALUES)) as gpus:
        got = collect(gpus, 4, 0.02, hurry=True)
        assert gpus.stats()["nvmlGpmSampleGet"].calls < 4
    rows = gpm_rows(got, 0)
    assert set(rows[0].values()) == {MEASURING}
    assert all(row == dict(zip(NAMES, VALUES.values())) for row in rows[1:])


@pytest.mark.parametrize("model", ["A100-SXM4-80GB", "V100-SXM2-32GB", "T4", "L40S"])
def test_older_devices_have_none(model):
    with Emulated(Scenario().gpu(0, model=model, util=60)) as gpus:
        got = collect(gpus, 2)
        assert "nvmlGpmSampleGet" not in gpus.stats()
    for row in gpm_rows(got, 0):
        assert {(v.reason, v.detail) for v in row.values()} == {
            ("unsupported", "needs Hopper or later")
        }


def test_a_driver_without_gpm():
    with Emulated(h200(), driver="470") as gpus:
        got = collect(gpus)
    reading = got.ticks[0].device[0]["sm_active_percent"]
    assert reading.reason == "unsupported"
    assert reading.detail.startswith("driver ")


def test_refused_for_want_of_permission_says_the_parameter(tmp_path):
    (tmp_path / "driver" / "nvidia").mkdir(parents=True)
    params = tmp_path / "driver" / "nvidia" / "params"
    for text, detail in (
        ("Mobile: 4294967295\nRmProfilingAdminOnly: 1\n", "RmProfilingAdminOnly is 1"),
        ("RmProfilingAdminOnly: 0\n", ""),
    ):
        params.write_text(text)
        with Emulated(h200().rule("nvmlGpmSampleGet", fail=4)) as gpus:
            got = collect(gpus, 3, proc=str(tmp_path))
            assert gpus.stats()["nvmlGpmSampleGet"].calls == 1  # not again and again
        for row in gpm_rows(got, 0):
            assert {(v.reason, v.detail) for v in row.values()} == {("no-permission", detail)}
        assert got.ticks[0].device[0]["busy_percent"] == 60


def test_repeated_errors_end_it():
    with Emulated(h200().rule("nvmlGpmMetricsGet", fail=999)) as gpus:
        got = collect(gpus, 12, 0.15)
        stats = gpus.stats()
    assert stats["nvmlGpmMetricsGet"].calls == 3
    rows = [tick.device[0] for tick in got.ticks]
    last = [row["sm_active_percent"] for row in rows if "sm_active_percent" in row][-1]
    assert (last.reason, last.detail) == ("error", "Unknown Error")
    assert got.ticks[-1].device[0]["busy_percent"] == 60


def test_one_metric_that_is_missing_does_not_hide_the_others():
    with Emulated(h200(**{**VALUES, "gpm_tensor": "na"})) as gpus:
        got = collect(gpus, 2)
    row = gpm_rows(got, 0)[-1]
    assert row.pop("tensor_active_percent") == Missing("unsupported")
    assert row["sm_active_percent"] == 52
    assert row["dram_active_percent"] == 44


def mig_h200(**metrics):
    return Scenario().gpu(0, model="H200", mig=["1 0 3g.71gb", "2 0 3g.71gb"], **metrics)


def test_mig_instances_have_their_own():
    with Emulated(mig_h200(**VALUES)) as gpus:
        got = collect(gpus, 2)
    assert set(gpm_rows(got, 0)[-1].values()) == {MIG}
    for key in (1, 2):
        assert gpm_rows(got, key)[-1] == dict(zip(NAMES, VALUES.values()))


def test_mig_instances_are_asked_through_their_gpu_where_the_handle_is_refused():
    scenario = mig_h200(**VALUES).rule("nvmlGpmSampleGet", fail=3, level="slice")
    with Emulated(scenario) as gpus:
        got = collect(gpus, 2)
        assert gpus.stats()["nvmlGpmMigSampleGet"].calls == 4
    assert gpm_rows(got, 2)[-1] == dict(zip(NAMES, VALUES.values()))


def test_links_take_their_rates_from_gpm_where_there_are_no_counters():
    # no field values at all: neither byte counters nor NVLink's
    metrics = {"pcie_tx": 300_000, "pcie_rx": 900_000, "nvlink_tx": 5_000_000}
    scenario = h200(nvlink_rx=6_000_000, **metrics).rule("nvmlDeviceGetFieldValues", fail=3)
    with Emulated(scenario) as gpus:
        row = collect(gpus, 2, everything=True).ticks[-1].device[0]
    assert row["pcie_tx_bytes_per_s"] == pytest.approx(300_000 * 1024)
    assert row["pcie_rx_bytes_per_s"] == pytest.approx(900_000 * 1024)
    assert row["nvlink_tx_bytes_per_s"] == pytest.approx(5_000_000 * 1024)
    assert row["nvlink_rx_bytes_per_s"] == pytest.approx(6_000_000 * 1024)


def test_admin_only():
    assert admin_only("EnableMSI: 1\nRmProfilingAdminOnly: 1\nFoo: 0\n")
    assert not admin_only("RmProfilingAdminOnly: 0\n")
    assert not admin_only("")
