"""The ways to a node: their order, what is refused and why, what is tried again."""

from __future__ import annotations

import pytest

from gpumon.transport.fallback import Transports
from gpumon.transport.local import LocalTransport
from gpumon.transport.stream import Attempt, Failure


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
def fallback():
    return Transports([SSH, OPENSSH, SRUN]).fallback("n1")


def names(fallback, *refusals):
    """What is tried while everything is refused."""
    found = []
    for failure in refusals:
        way = fallback.next()
        found.append(way.name)
        fallback.refuse(way, failure)
    return found


def test_one_after_the_other(fallback):
    assert names(fallback, NO_HOST, TIMED_OUT, TIMED_OUT) == ["ssh", "openssh", "srun"]
    assert fallback.next() is None
    assert fallback.refusals == "ssh: no such host; openssh, srun: timed out"
    assert fallback.commands == ["ssh n1"]
    assert fallback.taken is None


def test_what_is_final_is_not_tried_again(fallback):
    names(fallback, NO_HOST, TIMED_OUT, NO_HOST)
    assert fallback.again()
    assert names(fallback, NO_HOST) == ["openssh"]
    assert fallback.next() is None
    assert not fallback.again()


def test_what_worked_is_the_first_to_be_tried_again(fallback):
    names(fallback, TIMED_OUT, NO_HOST)
    fallback.take(fallback.next())
    assert fallback.attempts == [Attempt("srun", "it works"), Attempt("ssh", "timed out"),
                           Attempt("openssh", "no such host")]  # fmt: skip
    assert fallback.again()
    assert names(fallback, TIMED_OUT, TIMED_OUT) == ["srun", "ssh"]


def test_a_failure_may_end_the_round(fallback):
    fallback.refuse(fallback.next(), Failure("the user pressed Esc", try_next=False))
    assert fallback.next() is None
    assert fallback.again()
    assert fallback.next() is SSH


def test_what_the_configuration_prefers_comes_first():
    fallback = Transports(
        [SSH, OPENSSH, SRUN], lambda node: Attempt("openssh", f"{node}: a master")
    ).fallback("n1")
    assert fallback.next() is OPENSSH
    fallback.take(OPENSSH)
    assert fallback.attempts == [Attempt("openssh", "n1: a master")]
    fallback.refuse(OPENSSH, TIMED_OUT)
    assert fallback.next() is SSH


def test_local_leads_to_this_node_only_and_there_first():
    here = LocalTransport("n1", in_job=True)
    transports = Transports([here, SSH, OPENSSH], lambda node: Attempt("openssh", "a master"))
    assert transports.fallback("n1").next() is here
    assert transports.fallback("n2").next() is OPENSSH
    with pytest.raises(Failure, match="not in the job"):
        LocalTransport("n1", in_job=False).open("n1", ["true"])


def test_what_shows_a_part_waits_for_the_others(fallback):
    assert fallback.set_aside(fallback.next(), "a part")
    assert names(fallback, TIMED_OUT) == ["srun"]
    assert fallback.next() is SSH
    assert not fallback.set_aside(SSH, "a part")  # now it must do
    fallback.take(SSH)
    assert fallback.attempts == [
        Attempt("ssh", "it works"),
        Attempt("openssh", "same path as ssh"),
        Attempt("srun", "timed out"),
    ]


def test_a_part_is_not_tried_beside_what_shows_all(fallback):
    fallback.set_aside(SSH, "outside the job")
    assert fallback.next() is SRUN
    assert fallback.next([SRUN]) is None
    fallback.refuse(SRUN, TIMED_OUT)
    assert fallback.next() is SSH


def test_the_other_ssh_leads_to_the_same_place():
    """From where one sees only a part, the other sees no more; after a loss it is tried again."""
    transports = Transports([SSH, OPENSSH, SRUN], lambda node: Attempt("openssh", "a master"))
    fallback = transports.fallback("n1")
    assert fallback.next() is OPENSSH
    assert fallback.set_aside(OPENSSH, "a part")
    assert fallback.next() is SRUN
    fallback.take(SRUN)
    assert fallback.again()
    assert names(fallback, TIMED_OUT, TIMED_OUT, TIMED_OUT) == ["srun", "openssh", "ssh"]
    alone = Transports([SSH, OPENSSH]).fallback("n1")
    assert not alone.set_aside(alone.next(), "a part")


def test_what_shows_a_part_may_fail_when_it_comes_back(fallback):
    fallback.set_aside(fallback.next(), "a part")
    names(fallback, TIMED_OUT)
    fallback.refuse(fallback.next(), TIMED_OUT)
    assert fallback.next() is None
    assert fallback.again()


def test_of_two_that_show_a_part_the_first_is_taken():
    fallback = Transports([SSH, Way("local"), SRUN]).fallback("n1")
    assert fallback.set_aside(fallback.next(), "a part")
    assert fallback.set_aside(fallback.next(), "a part")
    assert names(fallback, TIMED_OUT, TIMED_OUT) == ["srun", "ssh"]
    assert fallback.next().name == "local"


def test_a_part_will_do_where_nothing_else_is_left(fallback):
    names(fallback, TIMED_OUT, NO_HOST)
    assert not fallback.set_aside(fallback.next(), "a part")


def test_what_shows_no_gpu_comes_last():
    """Behind a way that shows some, and without a place in front after a loss."""
    host, sstat = Way("srun-host", "no GPUs"), Way("sstat", "no node")
    fallback = Transports([SSH, SRUN, host, sstat]).fallback("n1")
    assert fallback.set_aside(fallback.next(), "a part")
    assert names(fallback, TIMED_OUT) == ["srun"]
    assert fallback.next() is SSH
    assert not fallback.set_aside(SSH, "a part")
    assert names(fallback, TIMED_OUT, TIMED_OUT) == ["ssh", "srun-host"]
    fallback.take(fallback.next())
    assert fallback.attempts[0] == Attempt("sstat", "no node")
    assert fallback.again()
    assert names(fallback, *[TIMED_OUT] * 4) == ["ssh", "srun", "srun-host", "sstat"]


def test_closing_gives_up_what_nodes_share():
    transports = Transports([SSH, OPENSSH])
    transports.close()
    assert SSH.closed
    assert OPENSSH.closed
