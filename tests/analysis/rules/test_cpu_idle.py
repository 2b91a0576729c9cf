"""Time in which a CPU job computed nothing: where it lies, what is no idle time, what follows."""

from gpumon.analysis.rules.catalogue import BY_ID
from tests.analysis.build import evidence, node
from tests.analysis.rightsize.test_recommend import job

HOURS = 360  # bins


def run(cores, state="COMPLETED", cpus=16, job_facts=None, **rest):
    count = len(cores)
    one = node(
        count, cpus=cpus, job={"cpu_cores_used": cores, **(job_facts or {})},
        cpu_core_s=10 * sum(cores), peak60_cores=max(cores), oom_kills=0,
    )  # fmt: skip
    made = job(state, cpus=cpus, elapsed=10.0 * count, limit=10.0 * count, **rest)
    return evidence(count, nodes=[one], job=made)


def only(name, this):
    (found,) = BY_ID[name](this)
    return found


WORK, WAIT = [15.8] * (2 * HOURS), [0.0] * (4 * HOURS)


def test_an_idle_end_needs_no_longer_limit():
    found = only("timed-out", run(WORK + WAIT, "TIMEOUT"))
    assert found.change("--time") is None
    found = only("timed-out", run(WAIT + WORK, "TIMEOUT"))
    assert "computed" not in found.title
    assert found.change("--time")


def test_levels_of_use_are_named_apart():
    found = only("cpu-low", run([4.0] * (2 * HOURS) + [15.8] * (2 * HOURS)))
    assert found.title == "4.0 of 16 cores used for 2 h 00 min, then 15.8 for 2 h 00 min"
    assert "; CPU 62 % of 16 cores over 4 h 00 min (recorded, mean)" in found.evidence
    assert "job of its own" in found.actions[0].text
    found = only("cpu-low", run([1.0] * (3 * HOURS) + [15.8] * 30))
    assert "more than three quarters of them for 5 min" in found.evidence
