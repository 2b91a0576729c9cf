"""CPU rules: what fires, what must not, and what cannot be judged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import BY_ID, evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.model.sample import Process
from gpumon.report.provenance import missing_text
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job, Resources, Step, Usage
from tests.analysis.build import GIB, START, device, evidence, node, track
from tests.analysis.rightsize.test_recommend import job, run, with_facts
from tests.analysis.test_accounting import js1, js1_node

CHECK = BY_ID


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
    assert "core-hours used in 1 h 00 min" in found.title
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


def test_one_idle_core_is_little_and_may_wait_for_other_jobs():
    assert only("cpu-never-used", run(cores=0.001, peak=0.01, cpus=2)).level == "info"
    assert only("cpu-never-used", run(cores=0.001, peak=0.01, cpus=4)).level == "critical"


@pytest.mark.parametrize(
    "command", ["python /opt/bin/snakemake --profile slurm", "java -jar nextflow.jar", "toil-run"]
)
def test_a_job_that_launches_others_waits_for_them(command):
    this = run(cores=0.001, peak=0.01, cpus=8)
    manager = Process(77, "ada", command, "main", in_job=True)
    this.nodes[0].processes[77] = manager, track(0.1, 360)
    assert CHECK["cpu-never-used"](this) == []


def test_few_cores_that_launch_other_jobs_are_not_too_many():
    def launcher(cpus):
        return bare(job(elapsed=36 * 3600, cpu_s=2600.0, name="nextflow", cpus=cpus))

    assert CHECK["cpu-low"](launcher(2)) == []
    assert only("cpu-low", launcher(16)).level == "warning"


def test_by_its_name_too():
    assert CHECK["cpu-never-used"](bare(job(elapsed=3600, cpu_s=2.0, name="nextflow_rna"))) == []


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (job(cpus=32, elapsed=3600, cpu_s=12 * 3600), "Compare the run time with 16 cores."),
        (job(cpus=32, elapsed=3600, cpu_s=20 * 3600), "Request as many cores as"),
        (job(cpus=32, elapsed=3600, cpu_s=5 * 3600), "Compare the run time with 8 and 16 cores."),
        (job(cpus=3, elapsed=3600, cpu_s=0.8 * 3600), "Compare the run time with 1 core."),
        (job("FAILED", cpus=32, elapsed=3600, cpu_s=20 * 3600), "Request as many cores as"),
        (job(cpus=32, elapsed=3600, cpu_s=20 * 3600, tasks=32), "Request as many cores as"),
        (job(cpus=32, nodes=2, elapsed=3600, cpu_s=40 * 3600), "Request as many cores as"),
    ],
)
def test_cores_to_compare_with_fit_the_request(made, text):
    found = only("cpu-low", bare(made))
    (action,) = found.actions
    assert action.text.startswith(text)


def test_cores_that_a_part_of_the_run_needs_are_information():
    turns = ([15.9] * 6 + [1.0] * 6) * 30
    found = only("cpu-low", run(cores=turns, peak=16, cpus=16, mean=8.45))
    assert found.level == "info"
    assert found.evidence.endswith("; all were busy for 50 % of the time")
    assert found.actions[0].text.startswith("Run the part that uses few cores")
    short = run(cores=[15.9] * 30 + [6.0] * 330, peak=16, cpus=16, mean=6.8)
    assert only("cpu-low", short).level == "warning"


def several(*means, cpus=16):
    """An hour on nodes that use so many cores."""
    nodes = [
        node(360, f"gpu{n:02d}", cpus=cpus, job={"cpu_cores_used": mean}, peak60_cores=mean,
             cpu_core_s=mean * 3600)
        for n, mean in enumerate(means, 1)
    ]  # fmt: skip
    return run(cpus=cpus, made=job(cpus=cpus, nodes=len(means)), nodes=nodes)


def test_slurm_counts_only_its_steps_so_steps_on_one_node_show_no_low_use():
    made = job(cpus=32, nodes=4, elapsed=7200, cpu_s=8.0 * 7200)
    step = Step("batch", cpu_s=8.0 * 7200, usage=Usage({"cpu": 8.0 * 7200}), node_count=1)
    alone = only("cpu-low", bare(replace(made, steps=(step,))))
    assert alone.level == "info"
    assert "sacct, of steps on 1 of 4 nodes" in alone.evidence
    assert "start it with srun" in alone.actions[0].text
    step = replace(step, node_count=4)
    assert only("cpu-low", bare(replace(made, steps=(step,)))).level == "warning"


def test_a_node_that_does_far_less_than_the_others_is_named():
    found = only("cpu-low", several(0.3, 15.5, 15.5, 15.5))
    assert found.evidence.endswith("; gpu01 used 0.3 cores")
    assert found.actions[0].text.startswith("Find out why gpu01 did less")
    assert only("cpu-low", several(2, 14.5, 14.5)).evidence.endswith("; gpu01 used 2.0 cores")
    assert "used" not in only("cpu-low", several(9, 12, 12)).evidence


def test_peak_and_mean_are_of_the_same_node():
    found = only("cpu-underused", several(2, 6))
    assert found.title == "at most 6.0 of 16 cores on a node used in any minute, mean 6.0"


def test_half_a_core_on_each_of_two_nodes_is_no_serial_program():
    assert CHECK["serial-many-cores"](several(0.5, 0.49)) == []
    assert only("serial-many-cores", several(0.95, 0.0)).level == "warning"


def test_a_program_that_still_prepares_is_not_called_serial():
    early = job("RUNNING", cpus=16)
    assert (
        only("serial-many-cores", run(cores=0.99, peak=1, cpus=16, made=early, live=True)).level
        == "info"
    )
    gpus = [device(360, busy_percent=0)]
    staging = run(cores=0.99, peak=1, cpus=16, devices=gpus, live=True)
    assert CHECK["serial-many-cores"](staging) == []


@pytest.mark.parametrize(
    ("share", "level"), [(0.41, "warning"), (0.7, "info"), (0.81, None), (0.0002, None)]
)
def test_low_cpu(share, level):
    made = job(cpus=32, elapsed=3600, cpu_s=share * 32 * 3600)
    answer = CHECK["cpu-low"](bare(made))
    assert [each.level for each in answer] == ([level] if level else [])


@pytest.mark.parametrize("told_s", [None, 15.0 * 3600])
def test_a_recording_that_ends_early_does_not_stand_for_the_whole_run(told_s):
    """15 of 16 cores worked; the recording has the first half of the hour."""
    half = Coverage("recording", 50.0, 1.0, from_start=True, to_end=False)
    cores = node(360, cpus=16, cpu_core_s=15.0 * 1800, span=(START, START + 1800))
    made = job(cpus=16, elapsed=3600, cpu_s=told_s)
    assert "cpu-low" not in ids(evidence(360, nodes=[cores], job=made, coverage=half))


def test_low_cpu_is_never_said_of_gpu_jobs_or_of_what_may_be_one():
    made = job(cpus=32, elapsed=3600, cpu_s=3600, gpus=1)
    assert CHECK["cpu-low"](bare(made)) == []
    unknown = Job(state="COMPLETED", elapsed_s=3600, cpu_s=3600, allocated=Resources(cpus=32))
    assert isinstance(CHECK["cpu-low"](bare(unknown)), NotEvaluable)


def test_few_of_many_cores():
    found = only("cpu-underused", run(cores=1.4, peak=3.1, cpus=32))
    assert found.level == "info"
    assert found.title == "at most 3.1 of 32 cores used in any minute, mean 1.4"
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
    assert "mean 10 %" in missing_text(answer)


@pytest.mark.parametrize(
    ("mean", "peak", "cpus", "fires"),
    [(0.99, 1.1, 16, True), (0.86, 1.29, 2, True), (0.84, 1.1, 16, False), (1.02, 1.1, 16, False),
     (0.99, 1.31, 16, False), (0.99, 1.1, 1, False)],
)  # fmt: skip
def test_one_core_works(mean, peak, cpus, fires):
    answer = CHECK["serial-many-cores"](run(cores=mean, peak=peak, cpus=cpus))
    assert bool(answer) == fires
    if fires:
        (found,) = answer
        assert found.actions[0].after == ("#SBATCH --cpus-per-task=1" if peak < 1.2 else "")


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
    assert found.title == "gpu01: 8.0 of 8 cores are busy, threads wait 40 % of the time"
    assert only("cpu-starved", crowded(throttled=12.0)).title.endswith(
        ", throttled in 12 % of periods"
    )


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


def test_more_cores_are_advised_only_where_a_node_has_them():
    this = with_facts(crowded(pressure=40.0), cpus_online=64)
    lines = [each.after for each in only("cpu-starved", this).actions]
    assert "#SBATCH --cpus-per-task=16" in lines
    this.nodes[0].processes.update({n: (Process(n, "ada", "app", "app"), track(200, this.count))
                                    for n in range(4)})  # fmt: skip
    lines = [each.after for each in only("cpu-starved", this).actions]
    assert lines == ["export OMP_NUM_THREADS=2", ""]  # one of the two
    full = only("cpu-starved", with_facts(crowded(pressure=40.0), cpus_online=8))
    assert not any(each.after.startswith("#SBATCH") for each in full.actions)


def test_where_gpus_wait_for_the_cores_that_is_the_finding():
    """Whose line asks for more cores: fewer threads would contradict it."""
    gpus = [device(90, busy_percent=30)]
    assert CHECK["input-bound"](crowded(pressure=40.0, devices=gpus))
    for name in ("cpu-starved", "cpu-oversubscribed"):
        assert CHECK[name](crowded(pressure=40.0, devices=gpus)) == []


def test_threads_that_wait_beside_busy_gpus_hold_nothing_back():
    gpus = [device(90, busy_percent=95)]
    this = crowded(pressure=40.0, devices=gpus)
    assert only("cpu-starved", this).level == "info"


@pytest.mark.parametrize(
    ("tasks", "processes", "export"),
    [(None, 1, 8), (None, 4, 2), (2, 0, 4), (2, 4, 2), (None, 3, 0), (16, 0, 1), (None, 16, 1)],
)
def test_threads_are_the_cores_by_the_processes(tasks, processes, export):
    this = crowded(threads=64, pressure=30.0)
    this.job = job(cpus=8, tasks=tasks)
    this.nodes[0].processes = ranks(processes, 50.0)
    line = only("cpu-oversubscribed", this).actions[0].after
    assert line == (f"export OMP_NUM_THREADS={export}" if export else "")


def ranks(count, percent, bins=90):
    return {
        pid: (Process(pid, "ada", f"solver --rank {pid}", "solver", in_job=True),
              track(percent, bins))
        for pid in range(100, 100 + count)
    }  # fmt: skip


# -- cpu-binding -----------------------------------------------------------------------------------


def waiting(cores=1.0, pressure=90.0, runnable=None, cpus=32, count=90, **rest):
    facts = {"cpu_cores_used": cores} | ({} if pressure is None else {
        "cpu_pressure_percent": pressure})  # fmt: skip
    kept = {} if runnable is None else {"runnable": track(runnable, count)}
    peak = max(cores) if isinstance(cores, list) else cores
    nodes = [node(count, cpus=cpus, job=facts, peak60_cores=peak, cpu_core_s=peak * count * 10,
                  **kept, **rest)]  # fmt: skip
    return evidence(count, nodes=nodes, job=job(cpus=cpus, elapsed=count * 10))


@pytest.mark.parametrize(
    "this",
    [
        waiting(),
        waiting(2.0),  # both hardware threads of a core
        waiting(pressure=None, runnable=32),
        waiting([0.2] * 6 + [1.0] * 84, pressure=[0.0] * 6 + [95.0] * 84, cpus=4),
    ],
)
def test_many_ranks_on_one_core_are_pinned_and_not_serial(this):
    found = only("cpu-binding", this)
    assert found.level == "warning"
    assert ids(this) & {"serial-many-cores", "cpu-low", "cpu-underused", "cpu-mostly-idle"} == set()


def test_a_variable_that_slurm_may_not_have_set_is_not_copied():
    assert not any(each.after for each in only("cpu-binding", waiting()).actions)
    asked = waiting()
    asked.job = job(cpus=32, cpus_per_task=32)
    assert only("cpu-binding", asked).actions[0].after.startswith("export SRUN_CPUS_PER_TASK=")
    asked.job = job(cpus=32, cpus_per_task=32, steps=(Step("batch"),))
    assert not any(each.after for each in only("cpu-binding", asked).actions)


@pytest.mark.parametrize(("threads", "pressure", "asks"), [(32, None, True), (32, 0.0, False),
                                                           (4, None, False)])  # fmt: skip
def test_threads_that_may_be_bound_to_one_core_are_a_question(threads, pressure, asks):
    this = waiting(pressure=pressure, count=360)
    this.job = job(cpus=32, cpus_per_task=32, elapsed=3600)
    this.nodes[0].threads = track(threads, 360)
    found = only("serial-many-cores", this)
    assert ("of a program with 32 threads" in found.title) is asks
    assert (found.change("--cpus-per-task") is None) is asks
    assert found.level == "warning"


def test_what_a_pinned_run_used_is_not_what_it_needs():
    evaluation = evaluate(waiting())
    assert [each.id for each in evaluation.raised] == ["cpu-binding"]
    assert not [each for each in recommend(waiting(), evaluation.raised) if each.change.option]


@pytest.mark.parametrize(
    "this",
    [
        waiting(pressure=3.0),  # serial: nobody waits
        waiting(pressure=None, runnable=1),
        waiting(15.7, pressure=None, runnable=17),  # half of the cores, one process on each
        waiting([0.5, 7.5] * 45),  # bursts of more threads than cores
        waiting(1.5),  # at no whole number of cores
        waiting(20.0),
        waiting(0.3),  # waits for something else
        waiting([1.0] * 15 + [20.0] * 75),
    ],
)
def test_near_misses_of_pinned(this):
    assert CHECK["cpu-binding"](this) == []


def test_pinned_needs_to_know_who_waits():
    assert isinstance(CHECK["cpu-binding"](waiting(pressure=None)), NotEvaluable)


# -- serial, or waiting ----------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["pressure", "blocked"])
def test_blocked_on_io_is_not_serial(sign):
    this = waiting(0.95, pressure=1.0)
    assert only("serial-many-cores", this)
    this = waiting(0.95, pressure=1.0)
    if sign == "pressure":
        this.nodes[0].job["io_pressure_percent"] = track(60, 90)
    else:
        this.nodes[0].blocked = track(8, 90)
    assert CHECK["serial-many-cores"](this) == []
    assert CHECK["cpu-underused"](this) == []
    found = only("cpu-low", this)
    assert "waited for I/O" in found.actions[0].text
    copies = "copy the data" in found.actions[0].text
    assert copies is (sign == "blocked")  # `swap-io` says so by the pressure
    assert not found.actions[0].changes


def test_several_processes_that_share_one_core_are_a_question():
    this = waiting(0.96, pressure=None)
    this.nodes[0].processes = ranks(16, 6.0)
    found = only("serial-many-cores", this)
    assert (found.level, found.title) == ("info", "16 processes together use 0.96 of 32 cores")
    assert not found.actions[0].changes


def test_serial_by_the_mean_of_accounting_is_a_question():
    found = only("serial-many-cores", bare(job(cpus=12, elapsed=36000, cpu_s=0.99 * 36000)))
    assert found.title == "0.99 of 12 cores used on average: is the program serial?"
    assert (found.level, found.confidence) == ("warning", "medium")
    assert not found.actions[0].changes
    made = job(cpus=12, elapsed=36000, cpu_s=0.99 * 36000)
    assert {"cpu-low", "cpu-mostly-idle"} & ids(bare(made)) == set()
    for cpus, mean in ((12, 1.2), (12, 0.6), (1, 0.99)):
        other = bare(job(cpus=cpus, elapsed=36000, cpu_s=mean * 36000))
        assert CHECK["serial-many-cores"](other) == []


def test_one_thread_per_core_is_all_that_a_core_gives():
    this = with_facts(run(cores=15, peak=15.9, cpus=32), threads_per_core=2)
    assert ids(this) & {"cpu-underused", "cpu-low"} == set()
    half = only("cpu-underused", with_facts(run(cores=6, peak=6, cpus=32), threads_per_core=2))
    assert half.actions[0].after == "#SBATCH --cpus-per-task=14"
    unknown = only("cpu-low", bare(job(cpus=32, elapsed=3600, cpu_s=0.49 * 32 * 3600)))
    assert unknown.level == "info"


def test_more_threads_than_cores():
    found = only("cpu-oversubscribed", crowded(threads=64, pressure=30.0))
    assert found.title == "gpu01: 64 threads on 8 cores"
    assert CHECK["cpu-oversubscribed"](crowded(threads=64, pressure=30.0, cores=4.0)) == []
    assert CHECK["cpu-oversubscribed"](crowded(threads=64, pressure=1.0)) == []  # they sleep
    assert CHECK["cpu-oversubscribed"](crowded(threads=9, pressure=30.0)) == []
    assert isinstance(CHECK["cpu-oversubscribed"](crowded(threads=64)), NotEvaluable)


def test_without_pressure_processes_that_wait_count_and_the_nodes_load_never():
    this = with_facts(crowded(threads=None, host={"load1": 40.0}), cpus_online=8)
    assert isinstance(CHECK["cpu-oversubscribed"](this), NotEvaluable)
    this.nodes[0].runnable = track(20, 90)
    found = only("cpu-oversubscribed", this)
    assert found.title == "gpu01: 20 processes that run or wait on 8 cores"


SHARE = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))


def test_more_cores_than_a_gpus_share():
    gpus = [device(360, busy_percent=80)]
    this = run(cores=4, peak=5.2, cpus=32, devices=gpus, site=SHARE)
    found = only("cores-per-gpu-high", this)
    assert found.title == "32 cores for 1 GPU (fair share: 16 per GPU), at most 5.2 used"
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
