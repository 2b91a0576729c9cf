"""Tasks of every day, and with how many keys from the start each is done.

To compare the last two runs, see `runs/test_runs.py`.
"""

import os
import re
import time

import pytest

from gpumon import demos
from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.report.advice import box_of
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.tui.app import GpumonApp
from gpumon.tui.dialogs.signals import SignalDialog
from tests.support.waiting import HANGS_S
from tests.tui.dialogs.test_signals import watched
from tests.tui.runs.made import MadeLibrary
from tests.tui.screens.test_report import evaluation, ready  # noqa: F401
from tests.tui.test_app import Still, text

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.fixture
def app(story):
    """An app on the recorded story: GPU 1 is hot, GPU 2 reserved by TensorFlow, GPU 3 idle."""
    store, now = story
    return GpumonApp(
        Pipeline(Still(now), store=store), Settings(theme="dark"), library=MadeLibrary()
    )


async def reached(pilot, holds):
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < deadline, text(pilot.app)
        await pilot.pause(0.01)


async def after(app, *keys, size=(120, 40)):
    """The text of the screen after these keys."""
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        return text(app)


@pytest.mark.parametrize("size", SIZES)
async def test_no_key_names_the_idle_gpu_the_slow_one_and_whose_memory_it_is(app, size):
    seen = await after(app, size=size)
    assert re.search(r"GPU 3\b.*idle", seen)
    assert re.search(r"GPU 1\b.*throttled \(heat\)", seen)
    assert re.search(r"21525 +ada +2 .*77.4 GiB .*python evaluate.py", seen)


async def test_two_keys_show_the_last_hour(app):
    assert "Zoom 1 h" in await after(app, "minus", "minus")


async def test_one_key_sorts_by_cpu(app):
    seen = await after(app, "P")
    cpu = [int(each) for each in re.findall(r"(\d+) % +\d+ min  python", seen)]
    assert len(cpu) > 3
    assert cpu == sorted(cpu, reverse=True)


@pytest.mark.parametrize(("user", "lines"), [("ada", 7), ("eve", 0)])
async def test_a_key_a_word_and_enter_filter_by_user(app, user, lines):
    seen = await after(app, "slash", *f"user={user}", "enter")
    assert len(re.findall(r"^.\s+\d+ +ada\b", seen, re.M)) == lines


async def test_four_keys_end_a_process(monkeypatch):
    sent = []
    monkeypatch.setattr("gpumon.tui.dialogs.signals.send_signal", lambda *a: sent.append(a))
    app = watched(os.getpid(), os.getuid())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("3", "k")
        assert isinstance(app.screen, SignalDialog)
        await pilot.press("down", "enter")
        await reached(pilot, lambda: sent)


async def test_two_keys_copy_what_to_do_first(app, evaluation, monkeypatch):  # noqa: F811
    copied = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("5")
        ready(app, evaluation)
        await pilot.press("y")
    assert copied == [f"{box_of(evaluation.report).steps[0].copied}\n"]


async def test_a_key_keeps_the_screen_as_a_picture_that_asks_nobody(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await after(app, "S")
    (picture,) = tmp_path.glob("gpumon-*.svg")
    body = picture.read_text()
    assert "finetune-llama" in body
    assert not re.search(r"""url\((?!#)|href=["'](?!#)|@import""", body)


async def test_one_key_goes_to_the_next_event():
    source = ReplaySource(tracks_of([demos.path("finetune")]), ahead_s=100)
    app = GpumonApp(Pipeline(source, player=source), Settings(theme="dark"))
    async with app.run_test(size=(120, 40)) as pilot:
        source.moments = [source.origin + 300]  # when a finding begins
        await pilot.press("space", "n")
        await reached(pilot, lambda: "what a finding is about begins here" in text(app))
        assert source.now() == source.origin + 300
