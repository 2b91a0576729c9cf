"""Whether Slurm's figures leave room for a step."""

import time

import pytest

from gpumon.collect.cgroup import room as limits
from gpumon.slurm.job import Job, NodeAllocation, Resources, Step, Usage
from gpumon.slurm.runner import SlurmError
from gpumon.slurm.scontrol import Config
from gpumon.transport.room import JobRoom

MIB = 1 << 20


class FakeSlurm:
    """Answers as Slurm does; or, without steps, not at all."""

    def __init__(self, *steps, gathered_by="cgroup/v1", version="22.05.8"):
        self.steps, self.asked = steps, 0
        self._config = Config(version=version, gathered_by=gathered_by)

    def config(self):
        return self._config

    def usage(self, ids):
        self.asked += 1
        if not self.steps:
            raise SlurmError("sstat: no answer")
        return dict.fromkeys(ids, self.steps)


def step(id, nodes, mib, tasks=1, largest=None):
    most = (mib if largest is None else largest) * MIB
    usage = Usage(total={"mem": float(mib * MIB)})
    return Step(id, node_list=nodes, tasks=tasks, max_rss_bytes=most, usage=usage)


def job(*nodes, mib=300):
    shares = tuple(NodeAllocation(node, mem_bytes=mib * MIB) for node in nodes)
    whole = Resources(mem_bytes=mib * MIB * len(nodes))
    return Job(raw_id="7", nodes=nodes, allocations=shares, allocated=whole)


ONE = [
    ([step("batch", "n1", 200)], set()),
    ([step("batch", "n1", 237)], {"n1"}),
    ([step("batch", "n1", 100), step("0", "n1", 100), step("1", "n1", 60)], {"n1"}),
    ([step("0", "n[1-2]", 400, tasks=2)], {"n1", "n2"}),
    ([step("0", "n[1-2]", 250, tasks=8, largest=40)], set()),
    ([step("0", "n[1-2]", 400, tasks=8, largest=40)], set()),  # 4 tasks of 40 on each
    ([step("batch", "n1", 50), step("0", "n2", 299)], {"n2"}),
    ([step("extern", "n[1-2]", 299), step("batch", "n1", 50)], set()),  # nobody knows where
]


@pytest.mark.parametrize(("steps", "full"), ONE)
def test_the_nodes_on_which_no_step_starts(steps, full):
    found = JobRoom(job("n1", "n2"), FakeSlurm(*steps)).lacking(["n1", "n2"])
    assert set(found) == full
    assert all(limits.NO_ROOM in why for why in found.values())


def test_only_nodes_that_are_asked_about():
    slurm = FakeSlurm(step("0", "n[1-2]", 590, tasks=2))
    assert set(JobRoom(job("n1", "n2"), slurm).lacking(["n2"])) == {"n2"}


UNKNOWN = [
    FakeSlurm(),
    FakeSlurm(step("0", "n1", 299), gathered_by="cgroup/v2", version="24.11.7"),  # with page cache
    FakeSlurm(step("0", "n1", 299), version=""),
]


@pytest.mark.parametrize("slurm", UNKNOWN)
def test_what_slurm_does_not_tell_is_left_to_the_step(slurm):
    assert JobRoom(job("n1"), slurm).lacking(["n1"]) == {}


def test_without_a_limit_nobody_is_asked():
    slurm = FakeSlurm(step("0", "n1", 299))
    assert JobRoom(Job(raw_id="7", nodes=("n1",)), slurm).lacking(["n1"]) == {}
    assert slurm.asked == 0


def test_what_a_steps_shell_found_stands_for_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    known = JobRoom(job("n1", "n2"), FakeSlurm())
    known.note(["n1"], limits.lacking(11 * MIB))
    known.note(["n2"], "Requested nodes are busy")
    assert known.lacking(["n1", "n2"]) == {"n1": limits.lacking(11 * MIB)}
    now[0] += 599
    assert set(known.lacking(["n1", "n2"])) == {"n1"}
    now[0] += 2
    assert known.lacking(["n1", "n2"]) == {}
