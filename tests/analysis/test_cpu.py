"""CPU rules: what fires, what must not, and what cannot be judged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.evidence import Coverage
from gpumon.analysis.findings import cpu
from gpumon.analysis.rules import NotEvaluable
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job, Resources
from tests.analysis.build import GIB, device, evidence, node, track
from tests.analysis.test_accounting import js1, js1_node
from tests.analysis.test_recommend import job, run, with_facts

CHECK = {rule.id: rule.check for rule in cpu.RULES}


def ids(this):
    found = {name: check(this) for name, check in CHECK.items()}
    return {name for name, answer in found.items() if isinstance(answer, list) and answer}


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def bare(made, count=360):
    """Accounting alone."""
    this = evidence(count, job=made)
    this.nodes.clear()
    return this


def test_nothing_ran():
    found = only("cpu-never-used", run(cores=0.001, peak=0.01))
    assert "core-hours used in 01:00:00" in found.title
    assert "slurm-4711.out" in found.actions[0].after


@pytest.mark.parametrize(
    "this",
    [
        run(cores=0.5, peak=1),
        run(cores=0.001, peak=0.01, devices=[device(360, busy_percent=30)]),
        run(cores=0.001, peak=0.01, made=job(nodes=2)),
    ],
)
def test_near_misses_of_nothing_ran(this):
    assert CHECK["cpu-never-used"](this) == []


@pytest.mark.parametrize(
    "this",
    [
        run(cores=None, peak=None, made=job("RUNNING")),
        run(cores=0.001, peak=0.01, devices=[device(360)]),  # nobody knows whether the GPU worked
        run(count=20, cores=0.001),
        bare(Job(state="RUNNING", cpu_s=0.0)),
        bare(job("CANCELLED", elapsed=3600, cpu_s=1.0)),
    ],
)
def test_nothing_ran_is_not_said_of_what_is_unknown(this):
    assert isinstance(CHECK["cpu-never-used"](this), NotEvaluable)


def test_nothing_ran_by_accounting_alone():
    assert only("cpu-never-used", bare(job(elapsed=3600, cpu_s=2.0))).confidence == "medium"
    assert isinstance(
        CHECK["cpu-never-used"](bare(job(elapsed=3600, cpu_s=2.0, gpus=2))), NotEvaluable
    )


@pytest.mark.parametrize(
    ("share", "level"), [(0.41, "warning"), (0.7, "info"), (0.81, None), (0.0002, None)]
)
def test_low_cpu(share, level):
    made = job(cpus=32, elapsed=3600, cpu_s=share * 32 * 3600)
    answer = CHECK["cpu-low"](bare(made))
    assert [each.level for each in answer] == ([level] if level else [])


def test_low_cpu_is_never_said_of_gpu_jobs_or_of_what_may_be_one():
    made = job(cpus=32, elapsed=3600, cpu_s=3600, gpus=1)
    assert CHECK["cpu-low"](bare(made)) == []
    unknown = Job(state="COMPLETED", elapsed_s=3600, cpu_s=3600, allocated=Resources(cpus=32))
    assert isinstance(CHECK["cpu-low"](bare(unknown)), NotEvaluable)


def test_few_of_many_cores():
    found = only("cpu-underused", run(cores=1.4, peak=3.1, cpus=32))
    assert found.level == "info"
    assert found.title == "peak 3.1 of 32 cores (60 s), mean 1.4"
    assert found.actions[0].after == "#SBATCH --cpus-per-task=4"


@pytest.mark.parametrize(
    "this",
    [
        run(cores=1.4, peak=17, cpus=32),  # a short preprocessing needs them
        run(cores=0.3, peak=0.6, cpus=2),
        run(cores=1, peak=1.4, cpus=4, devices=[device(360, n, busy_percent=9) for n in range(3)]),
        run(cores=0.99, peak=1.1, cpus=16),  # serial-many-cores
    ],
)
def test_near_misses_of_few_of_many_cores(this):
    assert CHECK["cpu-underused"](this) == []


@pytest.mark.parametrize(
    "this",
    [
        run(count=60, cores=1, peak=2, cpus=32),
        run(cores=1, peak=None, cpus=32),
        run(cores=1, peak=1, cpus=32, made=job(cpus=32, nodes=2)),
        run(cores=1, peak=1, cpus=32, coverage=Coverage("live", 30.0, 1.0)),
    ],
)
def test_few_of_many_cores_needs_the_peak(this):
    assert isinstance(CHECK["cpu-underused"](this), NotEvaluable)


def test_a_mean_by_accounting_says_only_that_it_is_a_mean():
    comment = js1(a=js1_node(cpu_s=0.099 * 24 * 3600), b=js1_node(cpu_s=0.099 * 24 * 3600))
    made = job(cpus=24, nodes=2, gpus=2, elapsed=3600, admin_comment=comment)
    answer = CHECK["cpu-underused"](bare(made))
    assert isinstance(answer, NotEvaluable)
    assert "mean 10 %" in answer.reason


@pytest.mark.parametrize(
    ("mean", "peak", "cpus", "fires"),
    [(0.99, 1.1, 16, True), (0.86, 1.29, 2, True), (0.84, 1.1, 16, False), (1.02, 1.1, 16, False),
     (0.99, 1.31, 16, False), (0.99, 1.1, 1, False)],
)  # fmt: skip
def test_one_core_works(mean, peak, cpus, fires):
    answer = CHECK["serial-many-cores"](run(cores=mean, peak=peak, cpus=cpus))
    assert bool(answer) == fires
    if fires:
        assert answer[0].actions[0].after == "#SBATCH --cpus-per-task=1"


def test_one_core_that_feeds_a_gpu():
    gpus = [device(360, busy_percent=90)]
    found = only("serial-many-cores", run(cores=0.99, peak=1.1, cpus=16, devices=gpus))
    assert found.level == "info"
    assert found.actions[0].after == "#SBATCH --cpus-per-task=2"


def crowded(count=90, cores=8.0, threads=34, cpus=8, pressure=None, throttled=None, **rest):
    facts = {"cpu_cores_used": cores}
    facts |= {} if pressure is None else {"cpu_pressure_percent": pressure}
    facts |= {} if throttled is None else {"cpu_throttled_percent": throttled}
    kept = {} if threads is None else {"threads": track(threads, count)}
    return evidence(
        count, nodes=[node(count, cpus=cpus, job=facts, host=rest.pop("host", {}), **kept)],
        job=job(cpus=cpus), **rest,
    )  # fmt: skip


def test_cores_are_the_limit():
    found = only("cpu-starved", crowded(pressure=40.0))
    assert "8/8 cores" in found.title
    assert "34 threads" in found.title
    assert found.actions[0].after == "#SBATCH --cpus-per-task=16"
    assert only("cpu-starved", crowded(throttled=12.0)).title.endswith("throttled 12 % of periods")


@pytest.mark.parametrize(
    "this",
    [
        crowded(pressure=10.0),
        crowded(cores=7.0, pressure=40.0),
        crowded(threads=8, pressure=40.0),
        crowded(cores=[8.0] * 20 + [1.0] * 70, pressure=40.0),
    ],
)
def test_near_misses_of_cores_as_the_limit(this):
    assert CHECK["cpu-starved"](this) == []


@pytest.mark.parametrize("this", [crowded(), crowded(threads=None, pressure=40.0)])
def test_waiting_threads_must_be_known(this):
    assert isinstance(CHECK["cpu-starved"](this), NotEvaluable)


def test_all_on_one_cpu():
    this = crowded(cores=1.0, threads=64, cpus=64)
    with_facts(this, cpus=1)
    assert "pinned to one CPU" in only("cpu-starved", this).title


def test_more_threads_than_cores():
    assert (
        "64 threads on 8 cores (8.0×)"
        in only("cpu-oversubscribed", crowded(threads=64, pressure=30.0)).title
    )
    assert CHECK["cpu-oversubscribed"](crowded(threads=64, pressure=1.0)) == []  # they sleep
    assert CHECK["cpu-oversubscribed"](crowded(threads=9, pressure=30.0)) == []
    assert isinstance(CHECK["cpu-oversubscribed"](crowded(threads=64)), NotEvaluable)


def test_the_nodes_load_counts_only_on_a_whole_node():
    this = crowded(threads=None, host={"load1": 40.0})
    assert isinstance(CHECK["cpu-oversubscribed"](this), NotEvaluable)
    with_facts(this, cpus_online=8)
    assert "40 threads on 8 cores" in only("cpu-oversubscribed", this).title


SHARE = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))


def test_more_cores_than_a_gpus_share():
    gpus = [device(360, busy_percent=80)]
    this = run(cores=4, peak=5.2, cpus=32, devices=gpus, site=SHARE)
    found = only("cores-per-gpu-high", this)
    assert found.title == "32 cores for 1 GPU (share is 16 each), peak 5.2"
    assert (
        CHECK["cores-per-gpu-high"](run(cores=4, peak=17, cpus=32, devices=gpus, site=SHARE)) == []
    )
    assert (
        CHECK["cores-per-gpu-high"](run(cores=4, peak=5, cpus=16, devices=gpus, site=SHARE)) == []
    )
    whole = run(cores=4, peak=5, cpus=128, devices=gpus, site=SHARE)
    assert CHECK["cores-per-gpu-high"](whole) == []
    unknown = run(cores=4, peak=5.2, cpus=32, devices=gpus)
    assert isinstance(CHECK["cores-per-gpu-high"](unknown), NotEvaluable)


def near(affinity, held, place=1):
    this = run(devices=[device(360, busy_percent=50, facts={
        "cpu_affinity": affinity, "numa_node": place})])  # fmt: skip
    return with_facts(this, job_cpus=held) if held else this


def test_gpu_and_cpus_apart():
    assert only("numa-mismatch", near("32-63", "0-7")).subject == "gpu01:0"
    assert CHECK["numa-mismatch"](near("32-63", "0-7,40")) == []
    for this in (near("32-63", ""), near("32-63", "0-7", -1), near("", "0-7"), near("32-63", "x")):
        assert isinstance(CHECK["numa-mismatch"](this), NotEvaluable)


def test_thresholds_are_the_sites():
    site = Site(thresholds={"cpu-underused.share": 0.05})
    assert CHECK["cpu-underused"](run(cores=1.4, peak=3.1, cpus=32, site=site)) == []


@given(
    st.lists(st.none() | st.floats(0, 200), min_size=40, max_size=40),
    st.none() | st.floats(0, 200),
    st.none() | st.integers(1, 256),
)
def test_no_rule_fails_and_none_fires_without_signals(cores, peak, cpus):
    this = evidence(
        40, nodes=[node(40, cpus=cpus, job={"cpu_cores_used": cores}, peak60_cores=peak)],
        job=Job(state="COMPLETED", elapsed_s=400.0, allocated=Resources(cpus=cpus)),
    )  # fmt: skip
    fired = ids(this)
    if peak is None:
        assert not fired & {"cpu-underused", "serial-many-cores", "cores-per-gpu-high"}
    assert not ids(evidence(40, [device(40)], job=Job()))
