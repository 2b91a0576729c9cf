"""The table of an array's tasks: whom its figures are of."""

from gpumon.report.arrays import build_array
from gpumon.report.render.text import text
from gpumon.site import Site
from tests.analysis.rules.test_arrays import recorded, task


def text_of(tasks, runs=None):
    return text(build_array(tasks, Site(), runs))


def test_gpu_use_that_was_recorded_is_not_said_to_be_missing():
    tasks = [task(n, gpus=1) for n in range(6)]
    known = text_of(tasks, {each.raw_id: recorded(active=0.9) for each in tasks})
    assert "GPU busy" in known
    assert "no GPU usage" not in known
    assert "no GPU usage" in text_of(tasks)


def test_gpu_use_of_one_recorded_task_is_not_said_to_be_missing():
    tasks = [task(n, gpus=1) for n in range(6)]
    known = text_of(tasks, {tasks[0].raw_id: recorded(active=0.0)})
    assert "Task 0 never used its GPUs" in known
    assert "no GPU usage" not in known
    assert "source: recording for 1 task, sacct for 5 tasks" in known
    assert "accounting alone" not in known


def test_the_times_of_all_tasks_are_in_the_table():
    tasks = [task(n) for n in range(6)] + [task(7, elapsed=28_800.0, state="TIMEOUT")]
    assert "5 h 48 min 8 h 00 min 8 h 00 min" in text_of(tasks)


def test_the_table_tells_how_many_tasks_it_leaves_out():
    tasks = [task(n) for n in range(6)] + [task(7, None, state="OUT_OF_MEMORY")]
    table = text_of(tasks)
    assert "memory: known of 6 of 7 tasks" in table
    assert "elapsed: known" not in table
    assert "known of" not in text_of(tasks[:6])
