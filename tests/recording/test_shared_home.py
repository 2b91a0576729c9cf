"""A state folder on a file server: how often each recorder asks it anything."""

from __future__ import annotations

import os
import time

import pytest

from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording import Recorder, claims
from gpumon.recording.claims import Claims
from tests.support.asked import count
from tests.support.waiting import HANGS_S, until

START = 1_795_200_000.0
#: s; a frame and more
LONG_S = 640
TURNS = LONG_S / 10


def header(node):
    device = Device(0, 0, f"GPU-{node}", "A100")
    return Header(node, "boot", START, 0.0, 1.0, "", [device], job=JobContext("4711"))


def sample(second):
    return Sample(
        START + second, float(second), {"host": {"": {"cpu_percent": second % 99}}}, {}, []
    )


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """All clocks of recorders; threads that would do something by theirs never do."""
    now = [1000.0]
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for kind in (Claims, Recorder):
        monkeypatch.setitem(kind.__init__.__kwdefaults__, "clock", lambda: now[0])
    monkeypatch.setattr(claims, "LOOK_S", HANGS_S)
    return now


def pass_time(clock, seconds, add, tick):
    """A sample each second, and what the thread of claims would do every two."""
    for second in range(seconds):
        clock[0] += 1.0
        add(sample(clock[0]))
        if second % 2:
            tick()


def test_gpumon_record_asks_at_most_one_thing_in_10_s(tmp_path, clock, monkeypatch):
    """Besides writing; one of many that run at the same time."""
    folder = str(tmp_path / "state" / "marks")
    others = [Claims().open(folder, "4711", f"gpu{n:02d}") for n in range(1, 5)]
    recorder = Recorder(str(tmp_path / "state" / "a.gpumon"))
    stage = RecorderStage(Source(), folder)
    stage.asked_for = recorder
    stage.start(Silent())
    stage.header("gpu00", header("gpu00"))

    def add(one):
        stage.add("gpu00", one)

    pass_time(clock, 20, add, stage._claims.tick)
    until(lambda: not recorder.pending_bytes)
    begun = os.stat(recorder.path).st_size
    calls = count(monkeypatch, str(tmp_path / "state"))
    pass_time(clock, LONG_S, add, stage._claims.tick)
    until(lambda: not recorder.pending_bytes)
    asked = calls.copy()
    assert asked == {"utime": TURNS}
    assert os.stat(recorder.path).st_size > begun
    stage.close("done", in_haste=False)
    for each in others:
        each.close()


class Source:
    name = "local"

    def start(self, sink):
        self.sink = sink

    def stop(self):
        pass


@pytest.fixture
def strangers(tmp_path):
    """Eight recorders of another machine."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    folder = str(tmp_path / "state" / "marks")
    found = [Claims().open(folder, "9", f"far{n}", local=str(elsewhere)) for n in range(8)]
    yield found
    for each in found:
        each.close()


def watched(clock, nodes, tmp_path, monkeypatch, strangers=()):
    """What a dashboard of so many nodes asks; those strangers live."""
    names = [f"gpu{n:02d}" for n in range(nodes)]
    source = Source()
    stage = RecorderStage(source, str(tmp_path / "state" / "marks"), record=True)
    stage.start(Silent())
    for name in names:
        source.sink.header(name, header(name))

    def add(one):
        for name in names:
            source.sink.add(name, one)
        until(lambda: not any(node.recorder.pending_bytes for node in stage._nodes.values()))

    def tick():
        stage._claims.tick()
        for each in strangers if clock[0] % 10 == 0 else ():
            each.beat()

    pass_time(clock, 60, add, tick)
    calls = count(monkeypatch, str(tmp_path / "state"))
    pass_time(clock, LONG_S, add, tick)
    asked = calls.copy()
    stage.stop()
    return asked


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_dashboard_asks_at_most_one_thing_in_10_s(tmp_path, clock, monkeypatch, nodes):
    """Besides writing, and bringing whole frames to disk."""
    asked = watched(clock, nodes, tmp_path, monkeypatch)
    assert asked.pop("fdatasync", 0) <= (nodes - 1) * (LONG_S / 600 + 1)
    assert asked == {"utime": TURNS / 2, "listdir": TURNS / 2}


def test_it_looks_at_others_half_as_often(tmp_path, clock, monkeypatch, strangers):
    asked = watched(clock, 1, tmp_path, monkeypatch, strangers)
    of_theirs = len(strangers) * TURNS
    assert asked == {
        "utime": TURNS / 2 + of_theirs, "listdir": TURNS / 2, "stat": of_theirs / 2
    }  # fmt: skip


def test_it_looks_at_those_that_were_killed_rarely(tmp_path, clock, monkeypatch, strangers):
    asked = watched(clock, 1, tmp_path, monkeypatch)
    assert asked.pop("utime") + asked.pop("listdir") == TURNS
    assert asked["stat"] <= len(strangers) * (LONG_S / 300 + 3)
    assert sum(asked.values()) <= 5 * asked["stat"]


class Silent:
    def header(self, node, header):
        pass

    def add(self, node, sample, received=None):
        pass
