"""Why a job was started again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.services.restarts import Restarts
from gpumon.slurm import sinfo
from gpumon.slurm.job import Job, Past
from gpumon.slurm.runner import SlurmError
from gpumon.tui.jobs import restart_text

JOB = Job(raw_id="7", id="7", state="RUNNING", restarts=1, start=300.0)
FIRST = Job(raw_id="7", id="7", state="NODE_FAIL", start=100.0, end=200.0, nodes=("n1", "n2"))


class Accounting:
    """Records of a job, and nodes that are down."""

    def __init__(self, *records, down=()):
        self.records, self.down = list(records), set(down)
        self.asked = 0

    def jobs(self, job_ids, *, duplicates):
        self.asked += 1
        if not self.records:
            raise SlurmError("accounting storage is disabled")
        return self.records

    def down_nodes(self, nodes):
        return self.down


@pytest.mark.parametrize(
    ("record", "down", "text"),
    [
        (FIRST, {"n2", "n9"}, "restart 1, because n2 failed"),
        (FIRST, set(), "restart 1, because a node failed"),
        (replace(FIRST, failed_node="n1"), {"n2"}, "restart 1, because n1 failed"),
        (replace(FIRST, state="PREEMPTED"), {"n2"}, "restart 1, because it was preempted"),
        (replace(FIRST, state="REQUEUED"), set(), "restart 1"),
    ],
)
def test_the_end_of_the_attempt_before_says_why(record, down, text):
    accounting = Accounting(record, JOB, down=down)
    restarts = Restarts(accounting)
    assert restart_text(restarts.explained(JOB)) == text
    restarts.explained(JOB)
    assert accounting.asked == 1


def test_a_record_that_is_late_is_waited_for():
    accounting = Accounting(replace(FIRST, end=None, state="RUNNING"))
    restarts = Restarts(accounting)
    assert restarts.explained(JOB).past is None
    accounting.records = [FIRST, replace(FIRST, state="RESIZING", end=150.0)]
    assert restarts.explained(JOB).past == Past("NODE_FAIL")
    again = replace(JOB, restarts=2)
    assert restarts.explained(again).past is None
    second = replace(FIRST, state="PREEMPTED", end=400.0)
    accounting.records = [FIRST, second]
    assert restarts.explained(again).past == Past("PREEMPTED")


def test_without_accounting_or_a_restart_nothing_is_said():
    accounting = Accounting()
    assert restart_text(Restarts(accounting).explained(JOB)) == "restart 1"
    first = replace(JOB, restarts=0)
    assert restart_text(Restarts(accounting).explained(first)) == ""
    assert accounting.asked == 1


def test_nodes_that_are_down_by_sinfo():
    rows = [("n1", "mixed"), ("n2", "down*"), ("n3", "idle*"), ("n4", "failing"), ("n5", "drained")]
    output = "".join(f"{name};{state};\n" for name, state in rows).encode()
    assert sinfo.parse_down(output, ";") == {"n2", "n3", "n4"}
