"""Claims: of all processes that could record a node, those do that must, and nobody is left out."""

import os
import shutil
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.sample import Device, Header, JobContext
from gpumon.recording import claims as module
from gpumon.recording.claims import Claim, Claims, is_needless
from gpumon.recording.sharing import Mark, running, send
from tests.support.examples import examples

A, B = "GPU-a", "GPU-b"


def claim(lease, devices=(A, B), since=0.0, *, asked_for=False, job="4711"):
    return Claim(job, "gpu01", lease, frozenset(devices), asked_for, since)


def header(*devices):
    found = [Device(n, n, uuid, "A100") for n, uuid in enumerate(devices)]
    return Header("gpu01", "boot", 0.0, 1.0, 1.0, "", found, job=JobContext("4711"))


@pytest.mark.parametrize(
    ("mine", "others", "needless"),
    [
        (claim("m"), [], False),
        (claim("m", since=2.0), [claim("o", since=1.0)], True),  # the first one goes on
        (claim("m", since=1.0), [claim("o", since=2.0)], False),
        (claim("m", since=1.0), [claim("o", since=2.0, asked_for=True)], True),
        (claim("m", asked_for=True), [claim("o", asked_for=True)], False),  # so does the user's
        (claim("m", since=1.0), [claim("o", [A], asked_for=True)], False),  # and the other GPU?
        (claim("m"), [claim("o", [A], asked_for=True), claim("p", [B], asked_for=True)], True),
        (claim("m", [A], since=1.0), [claim("o", since=2.0)], True),  # it has more
        (claim("m", [], since=2.0), [claim("o", since=1.0)], True),  # no GPU is seen through sstat
        (claim("m", since=2.0), [claim("o", since=1.0, job="4712")], False),
    ],
)
def test_who_need_not_record(mine, others, needless):
    assert is_needless(mine, others) is needless


GPUS = st.sets(st.sampled_from((A, B, "GPU-c")))


@given(st.lists(st.tuples(GPUS, st.booleans(), st.floats(0, 9)), min_size=1, max_size=6))
@examples(60)
def test_what_any_of_them_sees_is_recorded(found):
    those = [claim(str(n), devices, since, asked_for=asked)
             for n, (devices, asked, since) in enumerate(found)]  # fmt: skip
    recording = [one for one in those if not is_needless(one, [o for o in those if o is not one])]
    assert set().union(*(one.devices for one in recording)) == set().union(*(d for d, *_ in found))
    dashboards = [one.devices for one in recording if not one.is_asked_for]
    assert len(dashboards) == len(set(dashboards))


class Process:
    """One that records, on a machine of its own or with another one."""

    def __init__(self, tmp_path, machine, clock):
        local = tmp_path / machine
        local.mkdir(0o700, exist_ok=True)
        folder = str(tmp_path / "marks")
        self.claims = Claims(clock=lambda: clock[0])
        self.claims.open(folder, "4711", "gpu01", local=str(local))
        self.claims._look = lambda: None

    def hold(self, *devices, asked_for=True):
        self.claims.hold(
            "gpu01", self.claims.made("gpu01", header(*devices), is_asked_for=asked_for)
        )

    def is_needless(self, *devices):
        return self.claims.is_needless(
            self.claims.made("gpu01", header(*devices), is_asked_for=False)
        )


@pytest.fixture
def pair(tmp_path):
    """Two machines that share a folder, and their clock."""
    clock = [100.0]
    found = [Process(tmp_path, machine, clock) for machine in ("here", "there")]
    yield *found, clock
    for each in found:
        each.claims.close()


def pass_time(seconds, clock, *processes):
    """With what each of those that live does meanwhile."""
    for _ in range(round(seconds / module.LOOK_S)):
        clock[0] += module.LOOK_S
        for each in processes:
            each.claims.seen("gpu01", 1.0)
            each.claims.tick()


def test_a_lease_of_another_machine_holds_as_long_as_it_is_renewed(pair):
    here, there, clock = pair
    here.hold(A)
    assert there.is_needless(A)
    for _ in range(20):
        pass_time(module.TURN_S, clock, here, there)
        assert there.is_needless(A)
    pass_time(24, clock, there)  # it may only be slow
    assert there.is_needless(A)
    pass_time(46, clock, there)  # 70 s in all, as is documented
    assert not there.is_needless(A)
    assert os.path.exists(here.claims.path)
    pass_time(2 * module._RARELY * module.TURN_S, clock, here, there)
    assert there.is_needless(A)


def test_a_process_of_this_machine_is_seen_at_once_and_its_end_too(pair, tmp_path):
    here, _, clock = pair
    beside = Process(tmp_path, "here", clock)
    beside.hold(A)
    assert here.is_needless(A)
    beside.claims.close()
    pass_time(module.LOOK_S, clock, here)
    assert not here.is_needless(A)


def test_what_another_machine_left_behind_long_ago_is_none(pair):
    here, there, _ = pair
    here.hold(A)
    os.utime(here.claims.path, (time.time() - 3600,) * 2)
    assert not there.is_needless(A)
    assert os.path.exists(here.claims.path)
    os.utime(here.claims.path, (time.time() - 90_000,) * 2)
    assert running(os.path.dirname(here.claims.path), local=there.claims.local)[0].path != (
        here.claims.path
    )
    assert not os.path.exists(here.claims.path)


def test_a_claim_is_given_up_with_its_samples_and_with_its_process(pair):
    here, there, clock = pair
    here.hold(A)
    pass_time(30, clock, here, there)
    assert there.is_needless(A)
    for _ in range(20):  # without samples it goes on renewing its lease
        clock[0] += module.LOOK_S
        here.claims.tick()
        pass_time(0, clock)
        there.claims.seen("gpu01", 1.0)
        there.claims.tick()
    assert not there.is_needless(A)
    here.hold(A)
    pass_time(40, clock, here, there)
    assert there.is_needless(A)
    here.claims.close()
    pass_time(20, clock, there)
    assert not there.is_needless(A)


def test_a_claim_grows_with_its_devices(pair):
    here, there, clock = pair
    here.hold(A)
    assert not there.is_needless(A, B)
    here.hold(A, B)
    pass_time(40, clock, here, there)
    assert there.is_needless(A, B)
    here.hold(A)
    pass_time(40, clock, here, there)
    assert not there.is_needless(A, B)


def test_what_is_no_claim_is_passed_over(pair):
    here, there, _ = pair
    folder = os.path.dirname(here.claims.path)
    for number, text in enumerate(("{}", "[" * 9999, '{"claims": [7]}', "")):
        path = os.path.join(folder, f"4711,gpu01,{number}@a,0.live" if number else "x.live")
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
    assert not there.is_needless(A)


def test_a_folder_of_this_machine_that_is_wiped_comes_back(pair, tmp_path):
    """Some systems remove what users left in memory when their last session ends."""
    here, _, clock = pair
    here.hold(A)
    shutil.rmtree(tmp_path / "here")
    assert here.claims.marks() == []
    beside = Process(tmp_path, "here", clock)
    assert beside.is_needless(A)
    (spool,) = (each for each in running(here.claims.folder, local=beside.claims.local)
                if each.lease == here.claims.lease)  # fmt: skip
    assert send(spool, Mark(1_795_200_000.0, "still here"))
    assert [mark.text for mark in here.claims.marks()] == ["still here"]
    beside.claims.close()
