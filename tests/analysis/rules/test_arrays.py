"""Array rules: one verdict for all tasks, from the greatest; who is far off; what to run again."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import FAMILIES
from gpumon.analysis.summary import DeviceRow, JobSummary, RunSummary
from gpumon.model.sample import Device, Header
from gpumon.slurm.job import ExitCode, Step
from gpumon.slurm.states import ENDED_STATES
from tests.analysis.build import GIB, START, evidence
from tests.analysis.rightsize.test_recommend import job

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
        DeviceRow("n", Device(0, 0, "u", "A100"), 50.0 * active, 0, 0, active, 0.0, None, None,
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


@pytest.mark.parametrize(("longest", "after"), [(45, "01:00:00"), (90, "03:00:00")])
def test_the_limit_of_tasks_that_differ_has_more_room(longest, after):
    minutes = (38, 40, 40, 41, longest)
    tasks = [task(n, elapsed=60.0 * each) for n, each in enumerate(minutes)]
    this = array(tasks)
    (line,) = recommend(this, [only("array-time-over", this)])
    assert line.change.after_line == after


def test_tasks_that_have_not_ended_show_no_limit():
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


def with_cores(*means, **rest):
    """Tasks that used so many cores on average, by accounting."""
    made = [task(n, **rest) for n in range(len(means))]
    return [replace(each, cpu_s=mean * each.elapsed_s) for each, mean in zip(made, means)]


def test_tasks_that_need_their_cores_are_named():
    assert only("array-cpu-over", array(with_cores(*[1.2] * 38, 7.8, 7.9)))
    assert CHECK["array-cpu-over"](array(with_cores(1.0, 7.9))) == []


def test_one_recorded_task_is_judged_alone():
    tasks = [task(n, gpus=1, elapsed=3600) for n in range(6)]
    found = only("array-gpu-idle", array(tasks, {tasks[3].raw_id: recorded(active=0.0)}))
    assert found.level == "warning"
    works = array(tasks, {tasks[3].raw_id: recorded(active=0.9)})
    assert isinstance(CHECK["array-gpu-idle"](works), NotEvaluable)


def test_what_to_run_again():
    tasks = [task(n, submit_line="sbatch --array=0-20 my job.sh") for n in range(6)]
    tasks += [task(n, 0, 20, "OUT_OF_MEMORY") for n in (7, 8, 9, 12)]
    tasks += [task(13, state="TIMEOUT"), task(14, state="FAILED", exit_code=ExitCode(1))]
    found = only("array-mixed-outcome", array(tasks))
    assert [each.after for each in found.actions] == [
        "sbatch --array=7-9,12 --mem=50G my",
        "sbatch --array=13 --time=16:00:00 my",
        "sbatch --array=14 my",
    ]
    assert CHECK["array-mixed-outcome"](array([task(n) for n in range(6)])) == []


@pytest.mark.parametrize("completed", [0, 5])
@pytest.mark.parametrize("state", sorted(ENDED_STATES - {"COMPLETED", "CANCELLED", "REVOKED"}))
def test_every_bad_end_is_named_of_some_tasks_and_of_all(state, completed):
    tasks = [task(n, state=state) for n in range(8 - completed)]
    tasks += [task(n, state="COMPLETED") for n in range(8 - completed, 8)]
    found = only("array-mixed-outcome", array(tasks))
    assert found.level == "warning"
    assert f"--array=0-{7 - completed} " in found.actions[0].after


def test_tasks_that_somebody_else_cancelled():
    tasks = [task(n, uid=1000) for n in range(6)]
    ours = [task(n, state="CANCELLED", uid=1000, state_by="1000") for n in (6, 7)]
    assert CHECK["array-mixed-outcome"](array([*tasks, *ours])) == []
    assert only(
        "array-mixed-outcome",
        array([*tasks, *ours, task(8, state="CANCELLED", uid=1000, state_by="0")]),
    )


def test_hostile_script_names_are_quoted():
    for script, shown in (("$(rm)", "'$(rm)'"), ("$(rm\x1b[31m)", "SCRIPT")):
        tasks = [task(n, submit_line=f"sbatch {script}") for n in range(6)]
        found = only("array-mixed-outcome", array([*tasks, task(7, state="FAILED")]))
        assert found.actions[0].after == f"sbatch --array=7 {shown}"
