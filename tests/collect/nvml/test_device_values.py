"""Numbers that a device cannot have never become readings; those that it can have do."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from gpumon.collect.rates import Growth, Moment, Rate
from gpumon.model.plausible import ceilings
from gpumon.model.reading import MEASURING, Missing
from tests.collect.collected import collect
from tests.nvml.emulator import Emulated, Proc, Scenario
from tests.support.examples import examples

#: of an A100: reading, the emulated metric, what it may be, and what it cannot be
A100 = (
    ("busy_percent", "util", (0, 60, 100), (101, 37100, 4e9)),
    ("mem_controller_percent", "memutil", (0, 100), (101, 4e9)),
    ("power_w", "power", (50, 400, 430, 700), (900, 15_000, 4e6)),
    ("temperature_c", "temp", (20, 92, 110), (130, 6553)),
    ("mem_temperature_c", "mtemp", (20, 95, 120), (170, 6553)),
    ("sm_clock_mhz", "smclk", (210, 1410, 1500), (2200, 15_000, 4e9)),
    ("mem_clock_mhz", "memclk", (1215, 1593), (2500, 40_000)),
    ("mem_used_bytes", "mem", (0, 20_000, 81_016), (163_840, 9e10)),
    ("encoder_percent", "enc", (0, 100), (101, 65_535)),
)


@st.composite
def boards(draw):
    """Metrics of one board, and which readings they make impossible."""
    metrics, wrong = {}, set()
    for reading, metric, good, bad in A100:
        is_wrong = draw(st.booleans())
        metrics[metric] = draw(st.sampled_from(bad if is_wrong else good))
        wrong |= {reading} if is_wrong else set()
    return metrics, wrong


@pytest.mark.slow
@examples(15, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(boards(), st.sampled_from((100, 80_000, 1 << 20, 10**9)))
def test_only_what_a_board_can_have_becomes_a_number(board, process_mib):
    metrics, wrong = board
    procs = [Proc("self", process_mib, sm=10)]
    with Emulated(Scenario().gpu(0, model="A100-SXM4-80GB", clamp=0, procs=procs, **metrics)) as it:
        (tick,) = collect(it).ticks
    row = tick.device[0]
    for reading, _, _, _ in A100:
        if reading in wrong:
            assert row[reading] == Missing("implausible"), reading
            assert any(digit.isdigit() for digit in row[reading].detail)
        else:
            assert isinstance(row[reading], (int, float)), (reading, row[reading])
    (usage,) = tick.usage.values()
    assert (usage["mem_bytes"] == Missing("implausible")) == (process_mib > 81_920)


def test_the_raw_value_is_kept_for_people():
    procs = [Proc("self", 1 << 20)]
    scenario = Scenario().gpu(0, model="A100-SXM4-80GB", clamp=0, power_w=15_000, procs=procs)
    with Emulated(scenario) as gpus:
        tick = collect(gpus).ticks[0]
    assert tick.device[0]["power_w"].detail == "15000 W"
    (usage,) = tick.usage.values()
    assert usage["mem_bytes"].detail == f"{1 << 40} B"


def test_traffic_and_energy_beyond_what_the_links_and_the_supply_carry():
    """PCIe 5.0 x16 carries 64 GB/s; 15 kW is not what a board of 700 W took."""
    metrics = {"pcie_tx": 2e8, "pcie_rx": 5e7, "nvlink_tx": 1e10, "nvlink_rx": 4e8}
    with Emulated(Scenario().gpu(0, model="H200", clamp=0, power_w=15_000, **metrics)) as gpus:
        rows = [tick.device[0] for tick in collect(gpus, 4, 0.6, everything=True).ticks]
    for row in rows[1:]:
        assert row["pcie_tx_bytes_per_s"] == Missing("implausible")
        assert row["pcie_rx_bytes_per_s"] == pytest.approx(5e7 * 1024, rel=0.3)
        assert row["nvlink_tx_bytes_per_s"] == Missing("implausible")
        assert row["nvlink_rx_bytes_per_s"] == pytest.approx(4e8 * 1024, rel=0.3)
    assert any(row["energy_j"] == Missing("implausible") for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["H200", "H100-SXM5-80GB", "A100-SXM4-40GB", "A40", "L40S",
                                   "V100-SXM2-32GB", "T4", "RTX3090", "GB10"])  # fmt: skip
def test_a_board_at_its_limits_is_believed(model):
    """Everything at full load, and power by half above the limit as in a transient."""
    with Emulated(Scenario().gpu(0, model=model, util=100)) as gpus:
        limit = collect(gpus).told["devices"][0]["facts"]["power_limit_max_w"]
    scenario = Scenario().gpu(0, model=model, util=100, power_w=1.5 * limit, fan=100)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 3, 0.4, everything=True)
    assert not [
        (name, value)
        for tick in got.ticks
        for name, value in tick.device[0].items()
        if value == Missing("implausible")
    ]


def test_facts_that_are_missing_or_nonsense_narrow_nothing():
    assert ceilings({}) == {}
    assert ceilings({"power_limit_max_w": 0, "mem_total_bytes": Missing("unsupported")}) == {}


# -- counters ----------------------------------------------------------------------------------
def test_a_counter_that_goes_back_a_little_is_no_wrap():
    rate = Rate(wraps=True)
    rate.update(1_000_000, Moment(0.0))
    assert rate.update(999_990, Moment(2.0)) == Missing("implausible")
    assert rate.update(1_001_990, Moment(4.0)) == 1000


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**40), st.floats(0.5, 10), st.floats(1e6, 64e9))
def test_a_counter_that_goes_back_is_a_wrap_only_near_the_end_and_if_the_link_can(
    before, back, seconds, most
):
    rate = Rate(wraps=True)
    after = max(0, before - back)
    rate.update(before, Moment(0.0))
    got = rate.update(after, Moment(seconds), most=most)
    if isinstance(got, Missing) or after == before:
        return
    assert before >= 3 * 2**30
    assert after < 2**30
    assert got <= most


@given(
    st.lists(st.floats(0, 700), min_size=4, max_size=30),
    st.dictionaries(st.integers(1, 29), st.floats(-1e6, 1e9)),
)
def test_growth_shows_no_jump_and_loses_at_most_two_readings(watts, jumps):
    """An energy counter read every 2 s on a board of 700 W, with readings that are off."""
    growth, joules, since_good = Growth(), 5e6, 0
    shown = []
    for number, watt in enumerate(watts):
        joules += watt * 2
        off = jumps.get(number, 0.0)
        got = growth.check(joules + off, 2.0 * number, 1400)
        since_good = 0 if not isinstance(got, Missing) else since_good + 1
        shown.append(got)
        quiet = all(number - back not in jumps for back in range(3))
        assert since_good <= 1 or not quiet
    for one, other in zip(shown, shown[1:]):
        if not isinstance(one, Missing) and not isinstance(other, Missing):
            assert other - one <= 1400 * 4 + 1e-3


def test_a_counter_that_began_anew_is_measured_anew():
    growth = Growth()
    assert growth.check(5e9, 0, 1400) == 5e9
    assert growth.check(100.0, 2, 1400) == Missing("implausible")
    assert growth.check(300.0, 4, 1400) == 300.0


def test_a_rate_whose_times_are_unsure_is_measured_anew():
    rate = Rate(wraps=True)
    rate.update(0, Moment(10.0, 0.001))
    assert rate.update(100, Moment(17.0, 5.0)) == MEASURING  # read somewhere between 12 and 17
    assert rate.update(120, Moment(19.0, 0.001)) == MEASURING
    assert rate.update(140, Moment(21.0, 0.001)) == 10


# -- identity ----------------------------------------------------------------------------------
def test_devices_with_one_uuid_stay_apart():
    scenario = Scenario().gpu("0-3", model="A100-SXM4-80GB")
    for number in range(4):
        uuid = "GPU-twin" if number in (1, 2) else f"GPU-{number}"
        scenario.gpu(number, util=10 * (number + 1), uuid=uuid)
    with Emulated(scenario) as gpus:
        got = collect(gpus, 3)
    devices = got.told["devices"]
    assert [device["key"] for device in devices] == [0, 1, 2, 3]
    assert [device["uuid"] for device in devices] == ["GPU-0", "GPU-twin", "", "GPU-3"]
    (note,) = got.told["notes"]
    assert note == "GPUs 1 and 2 report the same UUID, GPU-twin; GPU 2 is shown without it."
    for tick in got.ticks:
        assert [tick.device[key]["busy_percent"] for key in range(4)] == [10, 20, 30, 40]
