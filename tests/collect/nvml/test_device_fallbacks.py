"""A second way to a reading is taken only where the first does not exist."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from gpumon.model.reading import Missing
from tests.collect.collected import collect
from tests.nvml.emulator import Emulated, Proc, Scenario
from tests.support.examples import examples

#: nvmlReturn_t of errors that pass: unknown, timeout, in use, no data, insufficient resources, …
PASSING = (2, 8, 10, 11, 17, 19, 20, 21, 23, 27, 29, 999)
#: and of a function or struct version that this driver does not have
ABSENT = (3, 13, 25)
USED, RESERVED = 20000 << 20, 904 << 20


def a100():
    procs = [Proc("self", 900, sm=40), Proc(1, 300, type="G")]
    return Scenario().gpu(
        0, model="A100-SXM4-80GB", util=60, mem_mib=20000, power_w=300, procs=procs
    )


def h200():
    return Scenario().gpu(0, model="H200", util=60, pcie_tx=300_000, nvlink_tx=5_000_000)


def used(got):
    return [tick.device[0]["mem_used_bytes"] for tick in got.ticks]


@pytest.mark.parametrize("code", [*PASSING, 4])
def test_memory_does_not_jump_by_the_reserve_on_a_passing_error(code):
    fault = f"[system]\nrule = nvmlDeviceGetMemoryInfo_v2 fail {code}\n"
    with Emulated(a100()) as gpus:
        got = collect(gpus, 4, 0.05, after={0: [fault], 1: ["[system]\n"]})
    assert used(got)[0] == USED
    assert isinstance(used(got)[1], Missing)
    if code != 4:
        assert used(got)[3] == USED


@pytest.mark.parametrize("code", ABSENT)
def test_without_the_newer_call_memory_counts_the_reserve(code):
    with Emulated(a100().rule("nvmlDeviceGetMemoryInfo_v2", fail=code)) as gpus:
        row = collect(gpus).ticks[0].device[0]
    assert row["mem_used_bytes"] == USED + RESERVED
    assert row["mem_reserved_bytes"] == Missing("unsupported")


@pytest.mark.parametrize("code", ABSENT)
def test_a_call_that_has_answered_is_not_replaced(code):
    fault = f"[system]\nrule = nvmlDeviceGetMemoryInfo_v2 fail {code}\n"
    with Emulated(a100()) as gpus:
        got = collect(gpus, 3, 0.05, after={0: [fault]})
    assert used(got) == [USED, Missing("unsupported"), Missing("unsupported")]


def test_power_of_the_instant_does_not_stand_in_for_the_mean():
    scenario = a100().rule("nvmlDeviceGetFieldValues", fail=999)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 2)
        assert "nvmlDeviceGetPowerUsage" not in gpus.stats()
        assert "nvmlDeviceGetTotalEnergyConsumption" not in gpus.stats()
    assert got.ticks[1].device[0]["power_w"] == Missing("error")
    assert got.told["devices"][0]["facts"]["power_kind"] == Missing("error")


def test_gpm_does_not_stand_in_for_counters_that_fail():
    fault = "[system]\nrule = nvmlDeviceGetFieldValues fail 999\n"
    with Emulated(h200()) as gpus:
        got = collect(gpus, 4, 0.3, everything=True, after={1: [fault]})
    rates = [tick.device[0]["pcie_tx_bytes_per_s"] for tick in got.ticks]
    assert isinstance(rates[1], float)
    assert rates[2:] == [Missing("error")] * 2


def test_a_part_of_the_processes_is_not_their_count():
    """The compute list fails, the graphics list answers; then the reverse."""
    for name in ("nvmlDeviceGetComputeRunningProcesses*", "nvmlDeviceGetGraphicsRunningProcesses*"):
        fault = f"[system]\nrule = {name} fail 999\n"
        with Emulated(a100()) as gpus:
            got = collect(gpus, 3, everything=True, after={0: [fault], 1: ["[system]\n"]})
        assert got.ticks[0].device[0]["processes"] == 2
        assert got.ticks[1].device[0]["processes"] == Missing("error")
        assert got.ticks[1].usage == {}
        assert got.ticks[2].device[0]["processes"] == 2


FUNCTIONS = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGet*RunningProcesses*",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetEncoderUtilization",
)
#: that grow, or are measured between two reads
_MOVING = ("energy_j", "throttle_power_s", "busy_gap_s", "mem_peak_bytes")


@pytest.mark.slow
@examples(12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.sampled_from(FUNCTIONS), st.sampled_from(PASSING), st.floats(0.2, 1.0))
def test_an_error_that_passes_changes_no_number(function, code, probability):
    scenario = a100()
    fault = f"[system]\nrule = {function} fail {code} prob={probability:.2f}\n"
    with Emulated(scenario) as gpus:
        got = collect(gpus, 6, 0.05, everything=True, after={1: [fault], 4: ["[system]\n"]})
    true = {**got.ticks[1].device[0], **got.ticks[0].device[0]}
    for tick in got.ticks[2:]:
        for name, value in tick.device[0].items():
            if name in _MOVING or name.endswith("_per_s") or isinstance(value, Missing):
                continue
            assert value == true[name], name
        for key, row in tick.usage.items():
            assert row["mem_bytes"] == got.ticks[0].usage[key]["mem_bytes"]
            assert row["type"] == got.ticks[0].usage[key]["type"]
