"""Rules on hardware: heat, power, faults, links."""

import pytest

from gpumon.analysis.findings import health
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.sample import Event, Mig
from tests.analysis.build import START, device, evidence, track
from tests.analysis.test_gpu_idle import only

COUNT = 60
REASONS = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


def throttled(count=COUNT, power=390, live=False, **shares):
    """A device whose throttle reasons are all known; those not named are never set."""
    one = device(count, busy_percent=95, power_w=power, temperature_c=89,
                 facts={"power_limit_default_w": 400.0})  # fmt: skip
    one.throttle = {name: track(shares.get(name, 0.0), count) for name in REASONS}
    return evidence(count, [one], live=live)


# -- throttle-thermal ------------------------------------------------------------------------------


def test_thermal_slowdown():
    found = only(health.throttle_thermal(throttled(hw_thermal=0.34)))
    assert "HW thermal slowdown 34 % of 00:10:00, 89 °C" in found.title
    assert found.actions[0].kind == "staff"
    assert "SW" in only(health.throttle_thermal(throttled(sw_thermal=0.1))).title


def test_thermal_near_misses():
    assert health.throttle_thermal(throttled(hw_thermal=0.09)) == []
    assert health.throttle_thermal(throttled(count=29, hw_thermal=0.5)) == []
    assert health.throttle_thermal(throttled(hw_thermal=[0.5] * 5 + [0] * 55)) == []


def test_live_heat_must_last_until_now():
    past = [0.5] * 30 + [0] * 30
    assert health.throttle_thermal(throttled(hw_thermal=past, live=True)) == []
    assert only(health.throttle_thermal(throttled(hw_thermal=past)))
    assert only(health.throttle_thermal(throttled(hw_thermal=past[::-1], live=True)))


def test_the_counter_counts_too():
    run = throttled()
    run.devices[0].counters["throttle_thermal_s"] = 61
    assert only(health.throttle_thermal(run)).numbers["share_percent"] == pytest.approx(10.17, 0.01)
    run.live = True  # of the whole run, which says nothing of now
    assert health.throttle_thermal(run) == []
    run.live = False
    run.devices[0].counters["throttle_thermal_s"] = 59
    assert health.throttle_thermal(run) == []


def test_throttling_needs_its_reasons():
    run = evidence(COUNT, [device(COUNT, busy_percent=90)])
    for rule in (health.throttle_thermal, health.throttle_power):
        assert isinstance(rule(run), NotEvaluable)


# -- throttle-power --------------------------------------------------------------------------------


def test_the_cap_at_full_power_is_normal():
    found = only(health.throttle_power(throttled(sw_power_cap=0.9)))
    assert found.level == "info"
    assert "normal at full load" in found.title
    assert found.actions == ()


def test_the_cap_below_the_limit_is_not():
    found = only(health.throttle_power(throttled(power=210, sw_power_cap=0.5)))
    assert found.level == "warning"
    assert "at 210 W of 400 W" in found.title
    assert health.throttle_power(throttled(power=330, sw_power_cap=0.5)) == []


def test_power_brake():
    found = only(health.throttle_power(throttled(power=210, hw_power_brake=0.04)))
    assert "power brake 4 % of 00:10:00 at 210 W of 400 W" in found.title
    assert health.throttle_power(throttled(hw_power_brake=0.009)) == []


def test_a_thermal_hardware_slowdown_is_not_one_of_power():
    assert health.throttle_power(throttled(hw_slowdown=0.3, hw_thermal=0.3)) == []
    assert only(health.throttle_power(throttled(hw_slowdown=0.3)))


# -- gpu-health ------------------------------------------------------------------------------------


def faulty(xids=(), states=(), **last):
    one = device(COUNT, busy_percent=90)
    one.last = {"ecc_uncorrected": 0, **last}
    one.xids = [Event(START + 60, "xid", 0, text=text) for text in xids]
    one.states = [Event(START + 60, "device", 0, text=text) for text in states]
    return evidence(COUNT, [one])


def test_a_healthy_device_is_clear():
    assert health.gpu_health(faulty()) == []


def test_xid_of_the_hardware():
    found = only(health.gpu_health(faulty(["79"], ["lost"])))
    assert found.level == "critical"
    assert "GPU 0: lost; Xid 79 (fell off the bus)" in found.title
    assert found.start == START + 60
    assert found.actions[1].after == "#SBATCH --exclude=gpu01"


def test_xid_of_the_program_gets_its_own_advice():
    found = only(health.gpu_health(faulty(["31", "31"])))
    assert "compute-sanitizer" in found.actions[0].after
    assert only(health.gpu_health(faulty(["31", "48"]))).actions[0].kind == "staff"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ecc_uncorrected", 2, "2 uncorrectable memory errors"),
        ("remap_pending", 1, "row remapping waits for a reset"),
        ("remap_failed", 1, "row remapping failed"),
        ("retired_pending", 1, "page retirement"),
        ("recovery_action", 2, "the driver asks for a reboot"),
    ],
)
def test_faults(name, value, words):
    assert words in only(health.gpu_health(faulty(**{name: value}))).title


def test_health_needs_a_reading():
    assert isinstance(
        health.gpu_health(evidence(COUNT, [device(COUNT, busy_percent=9)])), NotEvaluable
    )


def test_a_hostile_xid_text_is_harmless():
    assert "\x1b" not in only(health.gpu_health(faulty(["\x1b[2J", "²"]))).title


# -- pcie-degraded ---------------------------------------------------------------------------------


def linked(count=COUNT, busy=90, width=16, gen=4, replays=None, **values):
    facts = {"pcie_gen_max": 4, "pcie_width_max": 16}
    one = device(count, busy_percent=busy, pcie_width=width, pcie_gen=gen, facts=facts, **values)
    if replays is not None:
        one.counters["pcie_replays"] = replays
    return evidence(count, [one])


def test_a_narrow_link():
    found = only(health.pcie_degraded(linked(width=8)))
    assert "x8 of x16 at Gen4 of Gen4 under load" in found.title
    assert only(health.pcie_degraded(linked(gen=3)))
    assert "2 PCIe replays" in only(health.pcie_degraded(linked(replays=2))).title


def test_pcie_near_misses():
    assert health.pcie_degraded(linked()) == []
    assert health.pcie_degraded(linked(busy=19, gen=1)) == []  # drops at idle by design
    assert health.pcie_degraded(linked(count=5, width=8)) == []
    assert health.pcie_degraded(linked(replays=0)) == []


def test_pcie_needs_the_link():
    assert isinstance(health.pcie_degraded(linked(width=None, gen=None)), NotEvaluable)


def test_a_slice_has_its_parents_power():
    run = throttled(power=100, sw_power_cap=0.5)
    run.devices[0].device = run.devices[0].device._replace(mig=Mig("GPU-p", 1, 0, "1g.10gb"))
    assert health.throttle_power(run) == []
