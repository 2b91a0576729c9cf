"""Signals to processes: confirmed, to one's own alone, and never to another of that number."""

import os
import signal
import subprocess
import time

import pytest

from gpumon.config import Settings
from gpumon.model.sample import Device, Header, Sample
from gpumon.pipeline.pipeline import Pipeline
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.signals import SignalDialog, Target, send_signal
from tests.support.waiting import HANGS_S
from tests.tui.by_hand import NOW
from tests.tui.test_app import Still, text


def watched(pid, uid, source="local"):
    """An app that shows one process of that owner."""
    store = Store()
    store.header("gpu01", Header("gpu01", "b", NOW, 0, 1, "0", [Device(0, 0, "GPU-0", "A100")]))
    start = os.stat(f"/proc/{pid}").st_ctime
    from gpumon.model.sample import Event

    facts = {"user": "x", "command": "sleep", "name": "sleep", "uid": uid, "start": start}
    sample = Sample(
        NOW,
        0,
        {"usage": {(0, pid): {"mem_bytes": 1}}},
        {},
        [Event(NOW, "process", pid=pid, data=facts)],
    )
    store.add("gpu01", sample)
    return GpumonApp(Pipeline(Still(NOW, source), store=store), Settings(theme="dark"))


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "60"])
    time.sleep(0.05)
    yield child
    child.kill()
    child.wait()


async def test_a_signal_is_sent_after_it_was_chosen(sleeper):
    app = watched(sleeper.pid, os.getuid())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("3", "k")
        assert isinstance(app.screen, SignalDialog)
        await pilot.press("enter")  # the first choice is to cancel
        assert sleeper.poll() is None
        await pilot.press("k", "down", "enter")
        assert sleeper.wait(HANGS_S) == -signal.SIGTERM
        assert f"sent SIGTERM to {sleeper.pid}" in text(app)


@pytest.mark.parametrize(
    ("uid", "source", "words"),
    [(os.getuid() + 1, "local", "belongs to"), (os.getuid(), "replay", "this node, live")],
)
async def test_no_signal_to_others_or_into_a_recording(sleeper, uid, source, words):
    app = watched(sleeper.pid, uid, source)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("3", "k")
        assert not isinstance(app.screen, SignalDialog)
        assert words in text(app)


def test_another_process_with_the_same_number_gets_nothing(sleeper):
    words = send_signal(Target(sleeper.pid, time.time() - 5000, "old"), signal.SIGKILL)
    assert "another process" in words
    assert sleeper.poll() is None


def test_a_process_that_has_ended_is_said():
    child = subprocess.Popen(["true"])
    child.wait()
    assert "has ended" in send_signal(Target(child.pid, time.time(), "true"), signal.SIGTERM)
