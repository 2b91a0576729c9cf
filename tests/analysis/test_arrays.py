"""Array rules: one verdict for all tasks, from the greatest; who is far off; what to run again."""

from dataclasses import replace

import pytest

from gpumon.analysis.findings import arrays
from gpumon.analysis.recommend import recommend
from gpumon.analysis.rules import NotEvaluable
from gpumon.analysis.summary import DeviceSummary, JobSummary, RunSummary
from gpumon.analysis.tasks import most_at_once, summary_idle_gpu_hours, waste_rank
from gpumon.model.sample import Device
from gpumon.site import Site
from gpumon.slurm.job import ExitCode, Job, Step
from tests.analysis.build import GIB, START, evidence
from tests.analysis.test_accounting import js1, js1_node
from tests.analysis.test_recommend import job

CHECK = {rule.id: rule.check for rule in arrays.RULES}


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
                      0, 0, None, None, None, "", "", False, [], 1.0)]  # fmt: skip
    return RunSummary([], START, START + 2400, 100.0, 0, devices, jobs)


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
    assert found.title == "6 tasks: memory p50 3.15 GiB, p95 4.3 GiB, max 4.4 GiB of 32 GiB"
    assert found.level == "info"
    assert found.actions[0].after == "#SBATCH --mem=6G"
    (line,) = recommend(this, [found])
    assert (line.directive, line.before, line.after) == ("--mem", "32G", "6G")


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
    assert "max 00:52:00 of 08:00:00" in found.title
    assert found.actions[0].after == "#SBATCH --time=01:15:00"
    late = task(9, state="TIMEOUT", elapsed=28_800)
    assert CHECK["array-time-over"](array([*tasks, late])) == []


def test_cores_only_where_tasks_were_recorded():
    tasks = [task(n) for n in range(6)]
    assert isinstance(CHECK["array-cpu-over"](array(tasks)), NotEvaluable)
    runs = {each.raw_id: recorded(1.1) for each in tasks}
    found = only("array-cpu-over", array(tasks, runs))
    assert "peak cores p95 1.1" in found.title
    assert found.actions[0].after == "#SBATCH --cpus-per-task=2"
    assert "6 by recording" in found.evidence
    runs = {each.raw_id: recorded(5.0) for each in tasks}
    assert CHECK["array-cpu-over"](array(tasks, runs)) == []


def test_idle_gpus_of_tasks():
    tasks = [task(n, gpus=1, elapsed=3600) for n in range(6)]
    runs = {each.raw_id: recorded(active=0.0 if n < 2 else 0.5) for n, each in enumerate(tasks)}
    found = only("array-gpu-idle", array(tasks, runs))
    assert found.title == "2 of 6 tasks never used their GPU (2.0 GPU-h)"
    assert found.level == "warning"
    assert found.waste_gpu_hours == 2
    assert "Tasks 0, 1." in found.actions[0].text
    runs = {each.raw_id: recorded(active=0.0) for each in tasks}
    assert only("array-gpu-idle", array(tasks, runs)).level == "critical"
    assert isinstance(CHECK["array-gpu-idle"](array(tasks)), NotEvaluable)
    assert CHECK["array-gpu-idle"](array([task(n) for n in range(6)])) == []


def test_idle_gpus_by_jobstats_and_mig_is_not_idle():
    tasks = [task(n, gpus=1, admin_comment=js1(a=js1_node(busy=(0,)))) for n in range(6)]
    assert only("array-gpu-idle", array(tasks)).level == "critical"
    tasks = [task(n, gpus=1, admin_comment=js1(a=js1_node(busy=(None,)))) for n in range(6)]
    assert isinstance(CHECK["array-gpu-idle"](array(tasks)), NotEvaluable)


def test_an_outlier_is_named():
    tasks = [task(n, 3.1) for n in range(11)] + [task(93, 21.0)]
    found = only("array-outlier", array(tasks))
    assert found.title == "task 93: memory 21 GiB (median 3.1 GiB)"
    assert found.actions[0].after == "less slurm-4711_93.out"


def test_a_wide_spread_has_no_outliers():
    assert CHECK["array-outlier"](array([task(n, 3.0) for n in range(12)])) == []
    wide = [task(n, 1.0 + 3 * n, elapsed=400.0 * (n + 1)) for n in range(12)]
    assert CHECK["array-outlier"](array(wide)) == []


def test_what_to_run_again():
    tasks = [task(n, submit_line="sbatch --array=0-20 my job.sh") for n in range(6)]
    tasks += [task(n, 0, 20, "OUT_OF_MEMORY") for n in (7, 8, 9, 12)]
    tasks += [task(13, state="TIMEOUT"), task(14, state="FAILED")]
    found = only("array-mixed-outcome", array(tasks))
    assert found.title == "4 OUT_OF_MEMORY, 1 TIMEOUT, 1 FAILED of 12"
    assert [each.after for each in found.actions] == [
        "sbatch --array=7-9,12 --mem=50G my",
        "sbatch --array=13 --time=16:00:00 my",
        "sbatch --array=14 my",
    ]
    assert CHECK["array-mixed-outcome"](array([task(n, state="FAILED") for n in range(6)])) == []
    assert CHECK["array-mixed-outcome"](array([task(n) for n in range(6)])) == []


def test_a_requeued_task_counts_once():
    again = task(7, elapsed=2400, start=9000)
    tasks = [task(n) for n in range(6)] + [task(7, state="PREEMPTED"), again]
    assert CHECK["array-mixed-outcome"](array(tasks)) == []


def test_hostile_script_names_are_quoted():
    for script, shown in (("$(rm)", "'$(rm)'"), ("$(rm\x1b[31m)", "SCRIPT")):
        tasks = [task(n, submit_line=f"sbatch {script}") for n in range(6)]
        found = only("array-mixed-outcome", array([*tasks, task(7, state="FAILED")]))
        assert found.actions[0].after == f"sbatch --array=7 {shown}"


def test_users_by_wasted_gpu_hours():
    rows = [
        (job(gpus=4, elapsed=3600, user="ada"), 1.0, "jobstats"),
        (job(gpus=4, elapsed=3600, user="ada"), None, ""),
        (job(gpus=1, elapsed=36_000, user="bob"), 6.0, "recording"),
    ]
    bob, ada = waste_rank(rows)
    assert (bob.name, bob.idle_percent, bob.sources) == ("bob", 60.0, ("recording",))
    assert (ada.gpu_hours, ada.known_hours, ada.idle_percent) == (8.0, 4.0, 25.0)
    assert waste_rank([(job(user="eve"), None, "")])[0].idle_percent is None
    summary = job(gpus=2, elapsed=3600, admin_comment=js1(a=js1_node(busy=(0, 50))))
    assert summary_idle_gpu_hours(summary) == 1.0
    assert summary_idle_gpu_hours(job(gpus=2, elapsed=3600)) is None
