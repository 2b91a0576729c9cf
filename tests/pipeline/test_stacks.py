"""Stacks for the screen: asked in time, and not more often."""

from __future__ import annotations

import threading

import pytest

from gpumon.model.stack import ANY, PROBE, Frame, Stack, ThreadStack, Told
from gpumon.pipeline import stacks
from gpumon.pipeline.stacks import Stacks

THREADS = (ThreadStack("MainThread", True, (Frame("train.py", 7, "main", True),)),)
OF_PROBE = Stack(11, by="probe", threads=THREADS)


class Nodes:
    """A source; `asked` is what reached it."""

    def __init__(self):
        self.asked = []

    def ask_stacks(self, name, pid, how):
        self.asked.append((name, pid, how))
        return True


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: thread.run())
    nodes, clock = Nodes(), [100.0]
    return nodes, Stacks(nodes, lambda: clock[0]), clock


def test_a_probe_is_asked_again_while_it_answers(world):
    nodes, seen, clock = world
    for _ in range(3):
        assert seen.look("n1", 11) is None
    assert nodes.asked == [("n1", 11, PROBE)]
    nodes.tell("n1", Told(OF_PROBE, 0))
    assert seen.look("n1", 11) == (OF_PROBE, 100.0)
    assert len(nodes.asked) == 1
    clock[0] += 2.5
    seen.look("n1", 11)
    seen.look("n1", 11)
    assert len(nodes.asked) == 2
    clock[0] += 5  # no answer yet: it is waited for
    seen.look("n1", 11)
    assert len(nodes.asked) == 2
    clock[0] += 30
    seen.look("n1", 11)
    assert len(nodes.asked) == 3


def test_py_spy_is_asked_by_a_person_alone(world):
    nodes, seen, clock = world
    seen.look("n1", 11)
    nodes.tell("n1", Told(Stack(11, why="no-probe"), 0))
    clock[0] += 100
    assert seen.look("n1", 11).stack.why == "no-probe"
    assert not seen.is_awaited("n1", 11)
    seen.ask("n1", 11)
    assert seen.is_awaited("n1", 11)
    assert [how for _, _, how in nodes.asked] == [PROBE, ANY]
    clock[0] += 0.1
    nodes.tell("n1", Told(OF_PROBE._replace(by="py-spy"), 0))
    assert not seen.is_awaited("n1", 11)
    clock[0] += 100
    assert seen.look("n1", 11).stack.by == "py-spy"
    assert len(nodes.asked) == 2


def test_only_what_was_asked_for_is_kept_and_of_few(world):
    nodes, seen, _ = world
    nodes.tell("n1", Told(OF_PROBE, 0))
    nodes.tell("n1", Told(None, 0))
    assert seen.look("n1", 11) is None
    for pid in range(100, 140):
        seen.ask("n1", pid)
        nodes.tell("n1", Told(OF_PROBE._replace(pid=pid), 0))
    assert len(seen._seen) == len(seen._asked) == stacks.MAX_STACKS
    assert seen.look("n1", 139).stack.pid == 139


def test_without_room_for_a_thread_it_is_asked_later(world, monkeypatch):
    nodes, seen, clock = world

    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert seen.look("n1", 11) is None
    monkeypatch.setattr(threading.Thread, "start", lambda thread: thread.run())
    clock[0] += 31
    seen.look("n1", 11)
    assert nodes.asked == [("n1", 11, PROBE)]
