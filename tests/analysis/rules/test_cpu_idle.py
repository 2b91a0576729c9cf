"""Time in which a CPU job computed nothing: where it lies, what is no idle time, what follows."""

from dataclasses import replace

import pytest

from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.sample import Process
from tests.analysis.build import evidence, node, track
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


@pytest.mark.parametrize(
    ("cores", "where", "advice"),
    [
        (WORK + WAIT, "at the end", "let it end"),
        (WAIT + WORK, "at the start", "when it is available"),
        (WORK + WAIT + WORK, "between work", "around these times"),
    ],
)
def test_where_the_cpu_was_idle(cores, where, advice):
    found = only("cpu-idle-time", run(cores))
    assert found.level == "warning"
    assert f"the CPU was idle for 4 h 00 min of {len(cores) // HOURS} h 00 min, " in found.title
    assert found.title.endswith(where)
    assert "64 core-hours" in found.evidence
    assert advice in found.actions[0].text


def test_the_mean_of_the_cores_does_not_span_the_wait():
    assert BY_ID["cpu-low"](run(WORK + WAIT)) == []
    half = only("cpu-low", run([4.0] * (2 * HOURS) + WAIT))
    assert "CPU 25 % of 16 cores over 2 h 00 min in which it computed" in half.evidence


def test_of_a_job_that_hardly_worked_the_mean_is_of_all_its_time():
    hardly = run([0.05] * (8 * HOURS) + [1.0] * 60)
    assert BY_ID["cpu-idle-time"](hardly) == []
    assert "over 8 h 10 min (recorded, mean)" in only("cpu-low", hardly).evidence
    ended = run([1.0] * 60 + [0.05] * (8 * HOURS), "TIMEOUT")
    assert only("timed-out", ended).change("--time") is None


def test_a_use_about_the_threshold_is_not_cut_into_idle_time_and_work():
    about = run([0.08] * (3 * HOURS) + [0.13] * HOURS + [0.09] * (2 * HOURS) + [0.12] * HOURS)
    assert BY_ID["cpu-idle-time"](about) == []
    assert "over 7 h 00 min (recorded, mean)" in only("cpu-low", about).evidence


def test_an_idle_end_needs_no_longer_limit():
    found = only("timed-out", run(WORK + WAIT, "TIMEOUT"))
    assert "its processes hardly computed for the last 4 h 00 min" in found.title
    assert found.change("--time") is None
    found = only("timed-out", run(WAIT + WORK, "TIMEOUT"))
    assert "computed" not in found.title
    assert found.change("--time")


def test_one_or_two_idle_cores_are_information():
    assert only("cpu-idle-time", run([0.9] * HOURS + WAIT, cpus=1)).level == "info"


def test_what_is_no_idle_time():
    cores = WORK + WAIT
    at_work = [0.0] * len(WORK) + [1.0] * len(WAIT)
    moves = [rate * 5e6 for rate in at_work]
    nextflow = run(cores)
    nextflow.nodes[0].processes[1] = (
        Process(1, user="ada", command="nextflow run", name="java", own=True, in_job=True),
        track(0.1, len(cores)),
    )
    session = run(cores)
    session.job = replace(session.job, submit_line="salloc --cpus-per-task=16", name="interactive")
    suspended = run(cores)
    suspended.job = replace(
        suspended.job, start=suspended.start, end=suspended.end, elapsed_s=4 * 3600.0
    )
    cases = [
        suspended,
        run(cores, gpus=1),
        run(cores, job_facts={"read_bytes_per_s": moves}),
        run(cores, job_facts={"io_pressure_percent": [50 * each for each in at_work]}),
        run(WORK + WAIT[: HOURS // 3]),  # 20 min
        run(WORK + [0.5] * len(WAIT)),
        run(WAIT),  # `cpu-never-used` says it
        run(cores, nodes=2),  # one was not recorded
        nextflow,
        session,
    ]
    for this in cases:
        assert BY_ID["cpu-idle-time"](this) == [], this.job


def test_levels_of_use_are_named_apart():
    found = only("cpu-low", run([4.0] * (2 * HOURS) + [15.8] * (2 * HOURS)))
    assert found.title == "4.0 of 16 cores used for 2 h 00 min, then 15.8 for 2 h 00 min"
    assert "; CPU 62 % of 16 cores over 4 h 00 min (recorded, mean)" in found.evidence
    assert "job of its own" in found.actions[0].text
    found = only("cpu-low", run([1.0] * (3 * HOURS) + [15.8] * 30))
    assert "more than three quarters of them for 5 min" in found.evidence


def test_a_warning_of_cores_always_has_something_to_do():
    for state, tasks in (("FAILED", 1), ("COMPLETED", 16)):
        found = only("cpu-low", run([5.0] * (2 * HOURS), state, tasks=tasks))
        assert found.level == "warning"
        assert found.actions[0].text or found.actions[0].changes
