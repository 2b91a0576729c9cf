"""Rules on hardware (heat, power, faults, links), and on what was read of it."""

import pytest

from gpumon.analysis.rules import health
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.reading import Missing
from gpumon.model.sample import Event
from gpumon.slurm.job import Job
from tests.analysis.build import START, device, evidence, track
from tests.analysis.rightsize.test_recommend import run
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


def test_heat_in_a_small_part_of_the_run_is_information():
    found = only(health.throttle_thermal(throttled(count=600, hw_thermal=[0.25] * 50 + [0] * 550)))
    assert found.level == "info"


# -- gpu-health ------------------------------------------------------------------------------------


def faulty(xids=(), states=(), errors=0, state="COMPLETED", **last):
    one = device(COUNT, busy_percent=90)
    one.last = last
    one.counters = {"ecc_uncorrected": errors}
    one.xids = [Event(START + 60, "xid", 0, text=text) for text in xids]
    one.states = [Event(START + 60, "device", 0, text=text) for text in states]
    return evidence(COUNT, [one], job=Job(raw_id="4711", id="4711", state=state))


@pytest.mark.parametrize(
    ("state", "level"),
    [("TIMEOUT", "info"), ("CANCELLED", "info"), ("FAILED", "warning"), ("", "warning")],
)
def test_the_cleanup_behind_a_killed_process_is_no_fault(state, level):
    assert only(health.gpu_health(faulty(["45"], state=state))).level == level


def test_a_gpu_that_failed_to_answer_for_a_moment_is_no_problem_and_several_are_one():
    def quiet(*labels, count):
        gpus = []
        for label in labels:
            gpu = device(60, label, busy_percent=[50] * (60 - count) + [None] * count)
            gpu.last["busy_percent"] = Missing("timeout", "")
            gpus.append(gpu)
        return BY_ID["data-stale"](run(count=60, devices=gpus))

    assert quiet(0, 1, count=2) == []
    assert len(quiet(0, 1, count=20)) == 1
