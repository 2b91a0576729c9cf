"""CPU rules: what fires, what must not, and what cannot be judged."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.sample import Process
from gpumon.slurm.job import Job, Step, Usage
from tests.analysis.build import device, evidence, node, track
from tests.analysis.rightsize.test_recommend import job, run, with_facts

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


def test_few_cores_that_launch_other_jobs_are_not_too_many():
    def launcher(cpus):
        return bare(job(elapsed=36 * 3600, cpu_s=2600.0, name="nextflow", cpus=cpus))

    assert CHECK["cpu-low"](launcher(2)) == []
    assert only("cpu-low", launcher(16)).level == "warning"


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
    step = replace(step, node_count=4)
    assert only("cpu-low", bare(replace(made, steps=(step,)))).level == "warning"


def test_a_node_that_does_far_less_than_the_others_is_named():
    assert only("cpu-low", several(0.3, 15.5, 15.5, 15.5))
    assert "used" not in only("cpu-low", several(9, 12, 12)).evidence


def test_a_program_that_still_prepares_is_not_called_serial():
    early = job("RUNNING", cpus=16)
    assert (
        only("serial-many-cores", run(cores=0.99, peak=1, cpus=16, made=early, live=True)).level
        == "info"
    )
    gpus = [device(360, busy_percent=0)]
    staging = run(cores=0.99, peak=1, cpus=16, devices=gpus, live=True)
    assert CHECK["serial-many-cores"](staging) == []


def crowded(count=90, cores=8.0, threads=34, cpus=8, pressure=None, throttled=None, **rest):
    facts = {"cpu_cores_used": cores}
    facts |= {} if pressure is None else {"cpu_pressure_percent": pressure}
    facts |= {} if throttled is None else {"cpu_throttled_percent": throttled}
    kept = {} if threads is None else {"threads": track(threads, count)}
    return evidence(
        count, nodes=[node(count, cpus=cpus, job=facts, host=rest.pop("host", {}), **kept)],
        job=job(cpus=cpus), **rest,
    )  # fmt: skip


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
    assert (found.change("--cpus-per-task") is None) is asks
    assert found.level == "warning"


# -- serial, or waiting ----------------------------------------------------------------------------


def test_several_processes_that_share_one_core_are_a_question():
    this = waiting(0.96, pressure=None)
    this.nodes[0].processes = ranks(16, 6.0)
    found = only("serial-many-cores", this)
    assert (found.level, found.title) == ("info", "16 processes together use 0.96 of 32 cores")
    assert not found.actions[0].changes


def test_serial_by_the_mean_of_accounting_is_a_question():
    found = only("serial-many-cores", bare(job(cpus=12, elapsed=36000, cpu_s=0.99 * 36000)))
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
    assert half.actions[0].after == "#SBATCH --cpus-per-task=16"
    unknown = only("cpu-low", bare(job(cpus=32, elapsed=3600, cpu_s=0.49 * 32 * 3600)))
    assert unknown.level == "info"


def near(affinity, held, place=1):
    this = run(devices=[device(360, busy_percent=50, facts={
        "cpu_affinity": affinity, "numa_node": place})])  # fmt: skip
    return with_facts(this, job_cpus=held) if held else this


def test_gpu_and_cpus_apart():
    assert only("numa-mismatch", near("32-63", "0-7")).subject == "gpu01:0"
    assert CHECK["numa-mismatch"](near("32-63", "0-7,40")) == []
    for this in (near("32-63", ""), near("32-63", "0-7", -1), near("", "0-7"), near("32-63", "x")):
        assert isinstance(CHECK["numa-mismatch"](this), NotEvaluable)
