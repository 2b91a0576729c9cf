"""Claims: of all processes that could record a node, those do that must, and nobody is left out."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.sample import Device, Header, JobContext
from gpumon.recording import claims as module
from gpumon.recording import shared
from gpumon.recording.claims import Claim, Claims, is_needless
from gpumon.recording.marks import MarkSpool
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


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Claims of two processes on two machines that share a folder, and their clock."""
    clock = [100.0]
    spools, found = [], []
    for machine in ("here", "there"):
        monkeypatch.setattr(shared, "machine", lambda machine=machine: machine)
        monkeypatch.setattr("gpumon.recording.marks.machine", lambda machine=machine: machine)
        spools.append(MarkSpool(str(tmp_path), "4711", "gpu01"))
        found.append(Claims(str(tmp_path), spools[-1], clock=lambda: clock[0]))
    yield *found, spools[0], clock
    for spool in spools:
        spool.close()


def held(claims, *devices, asked_for=True):
    claims.hold("gpu01", claims.made("gpu01", header(*devices), is_asked_for=asked_for))


def test_a_lease_of_another_machine_holds_as_long_as_it_is_renewed(pair):
    here, there, spool, clock = pair
    held(here, A)
    mine = there.made("gpu01", header(A), is_asked_for=False)
    for _ in range(10):
        clock[0] += module.BEAT_S
        os.utime(spool.path, (time.time() + clock[0] / 1e3,) * 2)  # what `beat` does, to the ms
        assert there.is_needless(mine)
    clock[0] += module.LEASE_S - 1
    assert there.is_needless(mine)
    clock[0] += 2
    assert not there.is_needless(mine)
    assert len(list(os.scandir(os.path.dirname(spool.path)))) == 3  # it may only have been stopped


def test_what_another_machine_left_behind_long_ago_is_none(pair):
    here, there, spool, _ = pair
    held(here, A)
    os.utime(spool.path, (time.time() - 3600,) * 2)
    assert not there.is_needless(there.made("gpu01", header(A), is_asked_for=False))


def test_a_claim_is_given_up_with_its_samples_and_with_its_process(pair):
    here, there, _, clock = pair
    mine = there.made("gpu01", header(A), is_asked_for=False)

    def needless():
        clock[0] += 0.5
        return there.is_needless(mine)

    here.seen("gpu01", 1.0)
    held(here, A)
    assert needless()
    clock[0] += 7.0
    here._give_up_silent()
    assert not needless()
    here.seen("gpu01", 1.0)
    held(here, A)
    assert needless()
    here.stop()
    assert not needless()


def test_a_claim_grows_with_its_devices(pair):
    here, there, _, clock = pair
    held(here, A)
    mine = there.made("gpu01", header(A, B), is_asked_for=False)
    assert not there.is_needless(mine)
    held(here, A, B)
    clock[0] += 0.5
    there._read.clear()
    assert there.is_needless(mine)


def test_what_is_no_claim_is_passed_over(pair, tmp_path):
    _, there, spool, _ = pair
    for name, text in (("x.claim", "{}"), (f"4711,gpu01,{spool.lease}.claim", "[" * 9999)):
        (tmp_path / name).write_text(text)
        os.chmod(tmp_path / name, 0o600)
    assert not there.is_needless(there.made("gpu01", header(A), is_asked_for=False))
