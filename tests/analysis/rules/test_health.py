"""Rules on hardware: heat, power, faults, links."""

from array import array
from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import health
from gpumon.model.reading import Missing
from gpumon.model.sample import Event, Mig
from gpumon.slurm.job import Job
from tests.analysis.build import START, device, evidence, track
from tests.analysis.rules.test_gpu_idle import only

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
    assert found.title == "GPU 0: hardware thermal slowdown in 34 % of 10 min, up to 89 °C"
    assert found.actions[0].kind == "staff"
    assert "software" in only(health.throttle_thermal(throttled(sw_thermal=0.1))).title


def test_a_slowdown_of_a_cool_gpu_is_not_called_heat():
    run = throttled(hw_thermal=0.34)
    run.devices[0].tracks["temperature_c"] = track(62, COUNT)
    title = only(health.throttle_thermal(run)).title
    assert title.endswith("up to 62 °C; the GPU itself was not hot: perhaps its memory was")
    run.devices[0].device.facts["temperature_slowdown_c"] = 70.0
    assert only(health.throttle_thermal(run)).title.endswith("up to 62 °C")


def several(one, **differ):
    """Four devices as this run's one; `differ`: of the last one."""
    devices = [replace(one.devices[0], device=one.devices[0].device._replace(
        index=n, cuda_index=n)) for n in range(4)]  # fmt: skip
    devices[3] = replace(devices[3], **differ)
    return evidence(one.count, devices, live=one.live)


def test_gpus_that_are_throttled_alike_are_one_finding():
    made = throttled(hw_thermal=0.34)
    throttle = {**made.devices[0].throttle, "hw_thermal": track(0.2, COUNT)}
    found = only(health.throttle_thermal(several(made, throttle=throttle)))
    assert found.title == "GPUs 0–3: hardware thermal slowdown in 20–34 % of 10 min, up to 89 °C"
    assert found.devices == tuple(f"gpu01:{n}" for n in range(4))
    assert str(found.actions[0].after).startswith("node gpu01: GPUs 0–3: hardware")
    made = throttled(power=210, hw_power_brake=0.04)
    throttle = {**made.devices[0].throttle, "hw_power_brake": track(0.03, COUNT)}
    found = only(health.throttle_power(several(made, throttle=throttle)))
    assert "GPUs 0–3: power brake in 3–4 % of 10 min" in found.title


def test_gpus_with_the_same_fault_are_one_finding():
    found = only(health.gpu_health(several(faulty(["79"], ["lost"]))))
    assert found.title == "GPUs 0–3: lost; Xid 79 (fell off the bus)"
    assert found.numbers["xids"] == 4
    two = health.gpu_health(several(faulty(["79"], ["lost"]), xids=[]))
    assert [each.title.partition(":")[0] for each in two] == ["GPUs 0–2", "GPU 3"]


def test_a_gpu_whose_newest_reading_is_lost_is_lost():
    found = only(health.gpu_health(faulty(busy_percent=Missing("lost"))))
    assert (found.level, found.title) == ("critical", "GPU 0: lost")


def test_links_that_fare_alike_are_one_finding():
    made = linked(width=8, replays=2)
    found = only(health.pcie_degraded(several(made, counters={"pcie_replays": 5})))
    what = "x8 of x16 at Gen4 of Gen4 under load for 10 min; 2–5 PCIe replays"
    assert found.title == f"GPUs 0–3: PCIe link degraded: {what}"


def test_heat_in_a_small_part_of_the_run_is_information():
    found = only(health.throttle_thermal(throttled(count=600, hw_thermal=[0.25] * 50 + [0] * 550)))
    assert found.level == "info"
    assert "in 2 % of 1 h 40 min" in found.title


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
    assert "power brake in 4 % of 10 min at 210 W of 400 W" in found.title
    assert health.throttle_power(throttled(hw_power_brake=0.009)) == []


def test_a_thermal_hardware_slowdown_is_not_one_of_power():
    assert health.throttle_power(throttled(hw_slowdown=0.3, hw_thermal=0.3)) == []
    assert only(health.throttle_power(throttled(hw_slowdown=0.3)))


# -- gpu-health ------------------------------------------------------------------------------------


def faulty(xids=(), states=(), errors=0, state="COMPLETED", **last):
    one = device(COUNT, busy_percent=90)
    one.last = last
    one.counters = {"ecc_uncorrected": errors}
    one.xids = [Event(START + 60, "xid", 0, text=text) for text in xids]
    one.states = [Event(START + 60, "device", 0, text=text) for text in states]
    return evidence(COUNT, [one], job=Job(raw_id="4711", id="4711", state=state))


def test_a_healthy_device_is_clear():
    assert health.gpu_health(faulty()) == []


def test_xid_of_the_hardware():
    found = only(health.gpu_health(faulty(["79"], ["lost"])))
    assert found.level == "critical"
    assert "GPU 0: lost; Xid 79 (fell off the bus)" in found.title
    assert found.start == START + 60
    assert found.actions[0].after == "node gpu01: GPU 0: lost, Xid 79 (fell off the bus)"
    assert found.actions[1].after == "#SBATCH --exclude=gpu01"


def test_xid_of_the_program_gets_its_own_advice():
    found = only(health.gpu_health(faulty(["31", "31"])))
    assert found.level == "warning"
    assert [action.after for action in found.actions] == ["compute-sanitizer python train.py"]
    assert only(health.gpu_health(faulty(["31", "48"]))).actions[0].kind == "staff"


@pytest.mark.parametrize("xids", [["13"], ["31", "43"], ["45"], ["68"], ["63"], ["109"]])
def test_xids_that_do_not_prove_a_faulty_node_are_a_warning_at_most(xids):
    assert only(health.gpu_health(faulty(xids))).level == "warning"


def test_an_xid_that_nobody_classified_is_not_called_the_programs():
    found = only(health.gpu_health(faulty(["109"])))
    assert "program" not in found.evidence
    assert found.actions[0].kind == "staff"


@pytest.mark.parametrize(
    ("state", "level"),
    [("TIMEOUT", "info"), ("CANCELLED", "info"), ("FAILED", "warning"), ("", "warning")],
)
def test_the_cleanup_behind_a_killed_process_is_no_fault(state, level):
    assert only(health.gpu_health(faulty(["45"], state=state))).level == level


def test_memory_errors_count_if_they_came_during_the_job():
    found = only(health.gpu_health(faulty(errors=2)))
    assert (found.level, found.confidence) == ("critical", "high")
    assert "2 uncorrectable memory errors during the job" in found.title
    assert health.gpu_health(faulty(ecc_uncorrected=7)) == []  # of an earlier job


@pytest.mark.parametrize(
    ("name", "value", "words", "level"),
    [
        ("remap_pending", 1, "a row remap needs a GPU reset", "warning"),
        ("remap_failed", 1, "row remapping failed", "critical"),
        ("retired_pending", 1, "page retirement", "warning"),
        ("recovery_action", 2, "the driver requests a reboot", "critical"),
    ],
)
def test_faults(name, value, words, level):
    found = only(health.gpu_health(faulty(**{name: value})))
    assert words in found.title
    assert found.level == level


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
    bursts = linked(gen=3)
    bursts.devices[0].track("pcie_gen").high[:] = array("f", COUNT * [4])
    assert health.pcie_degraded(bursts) == []  # it rises where it is needed


def test_pcie_needs_the_link():
    assert isinstance(health.pcie_degraded(linked(width=None, gen=None)), NotEvaluable)


def test_a_slice_has_its_parents_power():
    run = throttled(power=100, sw_power_cap=0.5)
    run.devices[0].device = run.devices[0].device._replace(mig=Mig("GPU-p", 1, 0, "1g.10gb"))
    assert health.throttle_power(run) == []
