"""The ways to a node: their order, what is refused and why, what is tried again."""

from __future__ import annotations

import pytest

from gpumon.sources.ladder import Ladder
from gpumon.sources.local import LocalLauncher
from gpumon.sources.stream import Failure, Rung


class Way:
    def __init__(self, name, lacks=""):
        self.name = name
        self.lacks = lacks

    def open(self, node, argv):
        raise AssertionError("nothing is opened here")

    def close(self):
        self.closed = True


SSH, OPENSSH, SRUN = Way("ssh"), Way("openssh"), Way("srun")
NO_HOST = Failure("no such host", "ssh n1", final=True)
TIMED_OUT = Failure("timed out")


@pytest.fixture
def climb():
    return Ladder([SSH, OPENSSH, SRUN]).climb("n1")


def names(climb, *refusals):
    """What is tried while everything is refused."""
    found = []
    for failure in refusals:
        way = climb.next()
        found.append(way.name)
        climb.refuse(way, failure)
    return found


def test_one_after_the_other(climb):
    assert names(climb, NO_HOST, TIMED_OUT, TIMED_OUT) == ["ssh", "openssh", "srun"]
    assert climb.next() is None
    assert climb.refusals == "ssh: no such host; openssh: timed out; srun: timed out"
    assert climb.commands == ["ssh n1"]
    assert climb.taken is None


def test_what_is_final_is_not_tried_again(climb):
    names(climb, NO_HOST, TIMED_OUT, NO_HOST)
    assert climb.again()
    assert names(climb, NO_HOST) == ["openssh"]
    assert climb.next() is None
    assert not climb.again()


def test_what_worked_is_the_first_to_be_tried_again(climb):
    names(climb, TIMED_OUT, NO_HOST)
    climb.take(climb.next())
    assert climb.rungs == [Rung("srun", "it works"), Rung("ssh", "timed out"),
                           Rung("openssh", "no such host")]  # fmt: skip
    assert climb.again()
    assert names(climb, TIMED_OUT, TIMED_OUT) == ["srun", "ssh"]


def test_a_failure_may_end_the_round(climb):
    climb.refuse(climb.next(), Failure("the user pressed Esc", next_rung=False))
    assert climb.next() is None
    assert climb.again()
    assert climb.next() is SSH


def test_what_the_configuration_prefers_comes_first():
    climb = Ladder([SSH, OPENSSH, SRUN], lambda node: Rung("openssh", f"{node}: a master")).climb(
        "n1"
    )
    assert climb.next() is OPENSSH
    climb.take(OPENSSH)
    assert climb.rungs == [Rung("openssh", "n1: a master")]
    climb.refuse(OPENSSH, TIMED_OUT)
    assert climb.next() is SSH


def test_local_leads_to_this_node_only_and_there_first():
    here = LocalLauncher("n1", in_job=True)
    ladder = Ladder([here, SSH, OPENSSH], lambda node: Rung("openssh", "a master"))
    assert ladder.climb("n1").next() is here
    assert ladder.climb("n2").next() is OPENSSH
    with pytest.raises(Failure, match="not in the job"):
        LocalLauncher("n1", in_job=False).open("n1", ["true"])


def test_what_shows_a_part_waits_for_the_others(climb):
    assert climb.set_aside(climb.next(), "a part")
    assert names(climb, TIMED_OUT) == ["srun"]
    assert climb.next() is SSH
    assert not climb.set_aside(SSH, "a part")  # now it must do
    climb.take(SSH)
    assert climb.rungs == [
        Rung("ssh", "it works"), Rung("openssh", "leads where ssh does"), Rung("srun", "timed out"),
    ]  # fmt: skip


def test_the_other_ssh_leads_to_the_same_place():
    """From where one sees only a part, the other sees no more; after a loss it is tried again."""
    ladder = Ladder([SSH, OPENSSH, SRUN], lambda node: Rung("openssh", "a master"))
    climb = ladder.climb("n1")
    assert climb.next() is OPENSSH
    assert climb.set_aside(OPENSSH, "a part")
    assert climb.next() is SRUN
    climb.take(SRUN)
    assert climb.again()
    assert names(climb, TIMED_OUT, TIMED_OUT, TIMED_OUT) == ["srun", "openssh", "ssh"]
    alone = Ladder([SSH, OPENSSH]).climb("n1")
    assert not alone.set_aside(alone.next(), "a part")


def test_what_shows_a_part_may_fail_when_it_comes_back(climb):
    climb.set_aside(climb.next(), "a part")
    names(climb, TIMED_OUT)
    climb.refuse(climb.next(), TIMED_OUT)
    assert climb.next() is None
    assert climb.again()


def test_of_two_that_show_a_part_the_first_is_taken():
    climb = Ladder([SSH, Way("local"), SRUN]).climb("n1")
    assert climb.set_aside(climb.next(), "a part")
    assert climb.set_aside(climb.next(), "a part")
    assert names(climb, TIMED_OUT, TIMED_OUT) == ["srun", "ssh"]
    assert climb.next().name == "local"


def test_a_part_will_do_where_nothing_else_is_left(climb):
    names(climb, TIMED_OUT, NO_HOST)
    assert not climb.set_aside(climb.next(), "a part")


def test_what_shows_no_gpu_comes_last():
    """Behind a way that shows some, and without a place in front after a loss."""
    host, sstat = Way("srun-host", "no GPUs"), Way("sstat", "no node")
    climb = Ladder([SSH, SRUN, host, sstat]).climb("n1")
    assert climb.set_aside(climb.next(), "a part")
    assert names(climb, TIMED_OUT) == ["srun"]
    assert climb.next() is SSH
    assert not climb.set_aside(SSH, "a part")
    assert names(climb, TIMED_OUT, TIMED_OUT) == ["ssh", "srun-host"]
    climb.take(climb.next())
    assert climb.rungs[0] == Rung("sstat", "no node")
    assert climb.again()
    assert names(climb, *[TIMED_OUT] * 4) == ["ssh", "srun", "srun-host", "sstat"]


def test_closing_gives_up_what_nodes_share():
    ladder = Ladder([SSH, OPENSSH])
    ladder.close()
    assert SSH.closed
    assert OPENSSH.closed
