"""What the device collector measures while clocks are set and calls are slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from gpumon.model.reading import Missing
from tests.collect.collected import collect
from tests.nvml.emulator import Emulated, Proc, Scenario
from tests.support.examples import examples

pytestmark = pytest.mark.slow

BUSY, SM, PCIE_TX, POWER = 60, 40, 300_000, 500.0
_few = examples(3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def steady():
    """One device whose true readings never change."""
    metrics = {"util": BUSY, "pcie_tx": PCIE_TX, "pcie_rx": PCIE_TX, "power_w": POWER}
    procs = [Proc("self", 900, sm=SM)]
    return Scenario(system={"sample_period": 0.05}).gpu(0, model="H200", procs=procs, **metrics)


def tell(got):
    """Per tick: SM of the process, mean busy of the burst, PCIe rate."""
    for tick in got.ticks:
        ((_, usage),) = tick.usage.items()
        row = tick.device[0]
        yield usage["sm_percent"], row["busy_mean_percent"], row["pcie_tx_bytes_per_s"]


def assert_true_or_missing(got):
    rows = list(tell(got))
    for sm, busy, rate in rows:
        assert sm == SM or isinstance(sm, Missing)
        assert busy == BUSY or isinstance(busy, Missing)
        assert rate == pytest.approx(PCIE_TX * 1024, rel=0.25) or isinstance(rate, Missing)
    for column in zip(*rows):  # the first one measures; after a fault, two periods at most
        values = [not isinstance(value, Missing) for value in column]
        assert all(any(values[at : at + 3]) for at in range(len(values) - 2)), column
    assert not any(isinstance(value, Missing) for value in rows[-1])


def gap_s(got):
    return sum(
        gap for tick in got.ticks if not isinstance(gap := tick.device[0]["busy_gap_s"], Missing)
    )


@pytest.mark.parametrize("step_s", [-3600.0, -0.4, 86400.0])
def test_readings_go_on_when_the_wall_clock_is_set(step_s):
    with Emulated(steady(), start_s=20, settable_clock=True) as gpus:
        got = collect(gpus, 7, 1.2, everything=True, clock={1: step_s})
    assert_true_or_missing(got)
    assert gap_s(got) < 2.0  # no gap of an hour in a buffer of seconds


@_few
@given(
    st.dictionaries(
        st.integers(0, 2), st.floats(-1e5, 1e5, allow_nan=False), min_size=1, max_size=3
    )
)
def test_any_schedule_of_steps(clock):
    with Emulated(steady(), start_s=20, settable_clock=True) as gpus:
        assert_true_or_missing(collect(gpus, 5, 1.2, everything=True, clock=clock))


SLOW = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetComputeRunningProcesses*",
    "nvmlGpmSampleGet",
)


@_few
@given(st.sampled_from(SLOW), st.floats(0.3, 2.0), st.integers(1, 2))
def test_one_slow_call_spoils_no_rate(function, delay_s, at):
    scenario = steady()
    slow = f"[system]\nrule = {function} delay {delay_s * 1e6:.0f}\n"
    with Emulated(scenario, start_s=20) as gpus:
        got = collect(gpus, 6, 1.2, everything=True, after={at: [slow], at + 1: ["[system]\n"]})
    assert_true_or_missing(got)
