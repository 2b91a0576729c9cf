"""Tasks of an array and components of a het job as the one job that was submitted."""

from __future__ import annotations

import pytest

from gpumon.slurm.groups import groups_of, task_count
from gpumon.slurm.job import Job, Resources

GPU = Resources(gpus=1)


def task(number: str, state: str, **more) -> Job:
    raw = "40" if not number.isdigit() else str(40 + int(number))
    return Job(raw_id=raw, id=f"40_{number}", array_job_id="40", array_task=number, state=state,
               allocated=GPU, **more)  # fmt: skip


def test_an_array_is_one_job():
    first = task("1", "RUNNING", nodes=("n1",), elapsed_s=60.0, time_limit_s=100.0)
    second = task("2", "RUNNING", nodes=("n1",), elapsed_s=20.0, time_limit_s=100.0)
    (group,) = groups_of([first, task("3-9:2%2", "PENDING"), second])
    assert (group.id, group.state, group.is_running) == ("40", "RUNNING", True)
    assert group.tasks == {"RUNNING": 2, "PENDING": 4}
    assert (group.nodes, group.gpus) == (1, 2)  # of what runs
    assert (group.elapsed_s(0.0), group.left_s(0.0)) == (60.0, 40.0)


def test_the_only_task_keeps_its_number():
    (group,) = groups_of([task("7", "RUNNING")])
    assert (group.id, group.tasks) == ("40_7", {})


def test_components_of_a_het_job_are_one():
    parts = [
        Job(raw_id=str(14 + n), id=f"14+{n}", het_job_id="14", het_offset=n, state="RUNNING",
            nodes=(f"n{n}",), allocated=GPU)
        for n in (0, 1)
    ]  # fmt: skip
    (group,) = groups_of(parts)
    assert (group.id, group.nodes, group.gpus, group.tasks) == ("14", 2, 2, {})


def test_what_is_not_known_of_a_part_is_not_known_of_the_whole():
    (group,) = groups_of([task("1", "RUNNING"), Job(raw_id="42", array_job_id="40", array_task="2",
                                                    state="RUNNING")])  # fmt: skip
    assert group.gpus is None
    assert group.nodes is None
    assert group.left_s(0.0) is None


@pytest.mark.parametrize(
    ("tasks", "count"),
    [
        ("3", 1),
        ("1-9", 9),
        ("1-9:2%2", 5),
        ("0,4-5,9", 4),
        ("", 1),
        ("1-", 1),
        ("9-1", 1),
        ("x", 1),
    ],
)
def test_how_many_tasks(tasks, count):
    assert task_count(tasks) == count
