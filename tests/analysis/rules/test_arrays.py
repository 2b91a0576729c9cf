"""Array rules: one verdict for all tasks, from the greatest; who is far off; what to run again."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rightsize.tasks import most_at_once
from gpumon.analysis.rules.catalogue import FAMILIES, evaluate
from gpumon.analysis.summary import DeviceSummary, JobSummary, RunSummary
from gpumon.model.sample import Device, Header
from gpumon.site import Site
from gpumon.slurm.job import ExitCode, Job, Step
from gpumon.slurm.states import ENDED_STATES
from tests.analysis.build import GIB, START, evidence
from tests.analysis.rightsize.test_recommend import job
from tests.analysis.test_accounting import js1, js1_node

CHECK = {rule.id: rule for rule in FAMILIES["Arrays"]}


def task(n, gib=3.0, elapsed=2400.0, state="COMPLETED", mem=32 * GIB, start=0.0, **rest):
    known = {"slurm_version": "24.11.7", "acct_gather": "cgroup/v2", "limit": 28_800, **rest}
    made = job(
        state, mem=mem, elapsed=elapsed, id=f"4711_{n}", array_job_id="4711", array_task=str(n),
        start=START + start, end=START + start + elapsed,
        steps=(Step("batch", max_rss_bytes=None if gib is None else int(gib * GIB)),), **known,
    )  # fmt: skip
    return replace(made, raw_id=str(4711 + n))


def array(tasks, runs=None, site=None):
    this = evidence(240, job=tasks[0], siblings=tasks[1:], sibling_runs=runs or {}, site=site)
    this.nodes.clear()
    return this


def recorded(peak_cores=None, active=None, mem=3 * GIB):
    jobs = [JobSummary("n", 8, 1.0, peak_cores, 1.0, mem, 32 * GIB, None, 0)]
    devices = [] if active is None else [
        DeviceSummary("n", Device(0, 0, "u", "A100"), 50.0 * active, 0, 0, active, 0.0, None, None,
                      0, 0, None, None, "", "", False, [], 1.0)]  # fmt: skip
    return RunSummary([], START, START + 2400, 100.0, 0, devices, jobs)


def every(interval_s, kernel_gib, summary):
    """The same, of samples so far apart, and with the kernel's own peak."""
    header = Header("n", "boot", START, 0.0, interval_s, "0.1.0")
    (one,) = summary.jobs
    peak = one._replace(mem_charged_peak_bytes=kernel_gib * GIB)
    return summary._replace(headers=[header], jobs=[peak])


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


SIZES = [3.0, 3.1, 3.1, 3.2, 4.0, 4.4]


def test_one_memory_line_for_all_tasks():
    tasks = [task(n, gib, start=n * 10_000) for n, gib in enumerate(SIZES)]
    this = array(tasks)
    found = only("array-mem-over", this)
    assert found.title == (
        "6 tasks used at most 4.4 GiB of the requested 32 GiB (median 3.15 GiB, "
        "95th percentile 4.3 GiB)"
    )
    assert found.level == "info"
    assert found.actions[0].after == "#SBATCH --mem=6G"
    (line,) = recommend(this, [found])
    assert (line.change.option, line.change.before_line, line.change.after_line) == (
        "--mem",
        "32G",
        "6G",
    )


def test_tasks_that_ran_at_once_waste_together():
    tasks = [task(n, gib) for n, gib in enumerate(SIZES)]
    assert most_at_once(tasks) == 6
    assert only("array-mem-over", array(tasks)).level == "warning"


def test_any_task_out_of_memory_forbids_less():
    tasks = [task(n, gib) for n, gib in enumerate(SIZES)]
    dead = task(9, 0, 20, "FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125))
    assert CHECK["array-mem-over"](array([*tasks, dead])) == []


@pytest.mark.parametrize(
    "tasks",
    [
        [task(n) for n in range(4)],
        [task(n, elapsed=200) for n in range(9)],
        [task(n, gib=None) for n in range(9)],
        [task(n, state="RUNNING") for n in range(9)],
        [task(n, state="CANCELLED") for n in range(9)],
    ],
)
def test_too_few_tasks_that_count(tasks):
    assert isinstance(CHECK["array-mem-over"](array(tasks)), NotEvaluable)


def test_no_array():
    for name, check in CHECK.items():
        this = evidence(60, job=Job(state="COMPLETED"))
        assert check(this) == [], name


def test_the_greatest_task_and_the_default_bind():
    tasks = [task(n, gib) for n, gib in enumerate([*SIZES, 23.0])]
    assert CHECK["array-mem-over"](array(tasks)) == []
    site = Site(mem_default_per_core_bytes={"p": 2 * GIB})
    tasks = [task(n, gib, partition="p") for n, gib in enumerate(SIZES)]
    found = only("array-mem-over", array(tasks, site=site))
    assert found.actions[0].after == "#SBATCH --mem=16G"


def test_one_time_line_for_all_tasks():
    tasks = [task(n, elapsed=60.0 * minutes) for n, minutes in enumerate((38, 40, 40, 41, 52))]
    found = only("array-time-over", array(tasks))
    assert "took at most 52 min of their limit of 8 h 00 min" in found.title
    assert found.actions[0].after == "#SBATCH --time=01:15:00"
    late = task(9, state="TIMEOUT", elapsed=28_800)
    assert CHECK["array-time-over"](array([*tasks, late])) == []


def test_a_task_that_failed_may_need_more_of_all():
    tasks = [task(n) for n in range(12)]
    assert recommend(array(tasks), evaluate(array(tasks)).findings)
    beside = array([*tasks, task(12, elapsed=300.0, state="FAILED", exit_code=ExitCode(1))])
    assert recommend(beside, evaluate(beside).findings) == []


def test_tasks_that_differ_or_have_not_ended_show_no_limit():
    minutes = (38, 40, 40, 41, 90)
    tasks = [task(n, elapsed=60.0 * each) for n, each in enumerate(minutes)]
    answer = CHECK["array-time-over"](array(tasks))
    assert isinstance(answer, NotEvaluable)
    assert "very different times" in answer.detail
    tasks = [task(n, elapsed=2400.0) for n in range(6)]
    answer = CHECK["array-time-over"](array([*tasks, task(9, state="PENDING")]))
    assert isinstance(answer, NotEvaluable)


@pytest.mark.parametrize(
    ("interval_s", "kernel_gib", "after"),
    [(1.0, 32, "4G"), (5.0, 32, "6G"), (20.0, 4, "5G"), (20.0, 32, None)],
)
def test_a_peak_between_two_samples_of_a_task(interval_s, kernel_gib, after):
    tasks = [task(n) for n in range(6)]
    runs = {each.raw_id: every(interval_s, kernel_gib, recorded()) for each in tasks}
    this = array(tasks, runs)
    lines = {each.change.option: each.change.after_line
             for each in recommend(this, [only("array-mem-over", this)])}  # fmt: skip
    assert lines.get("--mem") == after


def test_cores_only_where_tasks_were_recorded():
    tasks = [task(n) for n in range(6)]
    assert isinstance(CHECK["array-cpu-over"](array(tasks)), NotEvaluable)
    runs = {each.raw_id: recorded(1.1) for each in tasks}
    found = only("array-cpu-over", array(tasks, runs))
    assert "used at most 1.1 of 8 cores in any minute" in found.title
    assert found.level == "warning"
    assert found.actions[0].after == "#SBATCH --cpus-per-task=2"
    assert found.evidence.endswith("; source: recording for each task")
    runs = {each.raw_id: recorded(5.0) for each in tasks}
    assert CHECK["array-cpu-over"](array(tasks, runs)) == []


def with_cores(*means, **rest):
    """Tasks that used so many cores on average, by accounting."""
    made = [task(n, **rest) for n in range(len(means))]
    return [replace(each, cpu_s=mean * each.elapsed_s) for each, mean in zip(made, means)]


@pytest.mark.parametrize("count", [1, 2, 12])
def test_a_mean_asks_about_cores_and_offers_no_line(count):
    found = only("array-cpu-over", array(with_cores(*[1.0] * count)))
    used = f"{count} task{'s' if count > 1 else ''} used 1.0 of 8 cores on average"
    assert found.title == f"{used} (is the program serial?)"
    assert found.level == "warning"
    assert "If so, request one core" in found.actions[0].text
    assert not found.actions[0].after


def test_tasks_that_need_their_cores_are_named():
    found = only("array-cpu-over", array(with_cores(*[1.2] * 38, 7.8, 7.9)))
    assert found.title == "40 tasks used 1.2–7.9 of 8 cores on average"
    assert found.actions[0].text.endswith("half of the cores; tasks 38, 39 used more.")
    assert CHECK["array-cpu-over"](array(with_cores(1.0, 7.9))) == []


@pytest.mark.parametrize(
    ("means", "rest"),
    [([1.0] * 6, {"gpus": 1}), ([3.8] * 6, {})],  # one thread on each of four cores
)
def test_cores_that_a_single_job_would_not_be_warned_of(means, rest):
    assert only("array-cpu-over", array(with_cores(*means, **rest))).level == "info"


def test_idle_gpus_of_tasks():
    tasks = [task(n, gpus=1, elapsed=3600) for n in range(6)]
    runs = {each.raw_id: recorded(active=0.0 if n < 2 else 0.5) for n, each in enumerate(tasks)}
    found = only("array-gpu-idle", array(tasks, runs))
    assert found.title == "2 of 6 tasks never used their GPUs (2.0 GPU-h)"
    assert found.level == "warning"
    assert found.waste_gpu_hours == 2
    assert "Check the output of tasks 0, 1." in found.actions[0].text
    runs = {each.raw_id: recorded(active=0.0) for each in tasks}
    assert only("array-gpu-idle", array(tasks, runs)).level == "critical"
    assert isinstance(CHECK["array-gpu-idle"](array(tasks)), NotEvaluable)
    assert CHECK["array-gpu-idle"](array([task(n) for n in range(6)])) == []


def test_one_recorded_task_is_judged_alone():
    tasks = [task(n, gpus=1, elapsed=3600) for n in range(6)]
    found = only("array-gpu-idle", array(tasks, {tasks[3].raw_id: recorded(active=0.0)}))
    assert found.title == (
        "task 3 never used its GPUs (1.0 GPU-h); GPU use is known of 1 of 6 tasks"
    )
    assert found.level == "warning"
    works = array(tasks, {tasks[3].raw_id: recorded(active=0.9)})
    assert isinstance(CHECK["array-gpu-idle"](works), NotEvaluable)


def test_idle_gpus_by_jobstats_and_mig_is_not_idle():
    tasks = [task(n, gpus=1, admin_comment=js1(a=js1_node(busy=(0,), held=0))) for n in range(6)]
    assert only("array-gpu-idle", array(tasks)).level == "critical"
    for busy in (None, 0):  # 0 of a mean that is rounded, where a process held memory
        tasks = [task(n, gpus=1, admin_comment=js1(a=js1_node(busy=(busy,)))) for n in range(6)]
        assert isinstance(CHECK["array-gpu-idle"](array(tasks)), NotEvaluable)


def test_an_outlier_is_named():
    tasks = [task(n, 3.1) for n in range(11)] + [task(93, 21.0)]
    found = only("array-outlier", array(tasks))
    assert found.title == "task 93: memory 21 GiB, median of all tasks 3.1 GiB"
    assert found.actions[0].after == "less slurm-4711_93.out"


def test_further_outliers_are_named():
    tasks = [task(n, 3.1) for n in range(11)] + [task(93, 21.0), task(94, 20.0)]
    title = only("array-outlier", array(tasks)).title
    assert title.endswith("median of all tasks 3.1 GiB; also an outlier: task 94")


def test_a_wide_spread_has_no_outliers():
    assert CHECK["array-outlier"](array([task(n, 3.0) for n in range(12)])) == []
    wide = [task(n, 1.0 + 3 * n, elapsed=400.0 * (n + 1)) for n in range(12)]
    assert CHECK["array-outlier"](array(wide)) == []


def test_what_to_run_again():
    tasks = [task(n, submit_line="sbatch --array=0-20 my job.sh") for n in range(6)]
    tasks += [task(n, 0, 20, "OUT_OF_MEMORY") for n in (7, 8, 9, 12)]
    tasks += [task(13, state="TIMEOUT"), task(14, state="FAILED", exit_code=ExitCode(1))]
    found = only("array-mixed-outcome", array(tasks))
    assert found.title == "12 tasks: 4 OUT_OF_MEMORY, 1 TIMEOUT, 1 FAILED"
    assert [each.after for each in found.actions] == [
        "sbatch --array=7-9,12 --mem=50G my",
        "sbatch --array=13 --time=16:00:00 my",
        "sbatch --array=14 my",
    ]
    assert found.actions[-1].text.startswith("Mend the cause first (see the output of task 14)")
    assert found.evidence.endswith(
        "6 COMPLETED. OUT_OF_MEMORY: tasks 7, 8, 9, 12; limit 32 GiB. "
        "TIMEOUT: task 13; limit 8 h 00 min. FAILED: task 14; exit code 1:0"
    )
    assert CHECK["array-mixed-outcome"](array([task(n) for n in range(6)])) == []


@pytest.mark.parametrize("completed", [0, 5])
@pytest.mark.parametrize("state", sorted(ENDED_STATES - {"COMPLETED", "CANCELLED", "REVOKED"}))
def test_every_bad_end_is_named_of_some_tasks_and_of_all(state, completed):
    tasks = [task(n, state=state) for n in range(8 - completed)]
    tasks += [task(n, state="COMPLETED") for n in range(8 - completed, 8)]
    found = only("array-mixed-outcome", array(tasks))
    assert found.title == f"8 tasks: {8 - completed} {state}"
    assert (", 5 COMPLETED." if completed else "; none completed.") in found.evidence
    assert found.level == "warning"
    assert f"--array=0-{7 - completed} " in found.actions[0].after


def test_cancelled_tasks_are_counted_beside_those_that_failed():
    states = ["FAILED"] * 2 + ["CANCELLED"] * 3
    tasks = [task(n, state=state, elapsed=900) for n, state in enumerate(states)]
    found = only("array-mixed-outcome", array(tasks))
    assert found.title == "5 tasks: 2 FAILED"
    assert "; none completed, 3 CANCELLED. FAILED: tasks 0, 1" in found.evidence


def test_tasks_that_somebody_else_cancelled():
    tasks = [task(n, uid=1000) for n in range(6)]
    ours = [task(n, state="CANCELLED", uid=1000, state_by="1000") for n in (6, 7)]
    assert CHECK["array-mixed-outcome"](array([*tasks, *ours])) == []
    found = only(
        "array-mixed-outcome",
        array([*tasks, *ours, task(8, state="CANCELLED", uid=1000, state_by="0")]),
    )
    assert found.title == "9 tasks: 1 CANCELLED"
    assert "task 8" in found.evidence


def test_a_requeued_task_counts_once():
    again = task(7, elapsed=2400, start=9000)
    tasks = [task(n) for n in range(6)] + [task(7, state="PREEMPTED"), again]
    assert CHECK["array-mixed-outcome"](array(tasks)) == []


def test_hostile_script_names_are_quoted():
    for script, shown in (("$(rm)", "'$(rm)'"), ("$(rm\x1b[31m)", "SCRIPT")):
        tasks = [task(n, submit_line=f"sbatch {script}") for n in range(6)]
        found = only("array-mixed-outcome", array([*tasks, task(7, state="FAILED")]))
        assert found.actions[0].after == f"sbatch --array=7 {shown}"
