"""Bells, notifications and titles: the bytes for each terminal, and when they are sent."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config import NOTIFY, Settings
from gpumon.pipeline.notices import Notice
from gpumon.pipeline.pipeline import Pipeline
from gpumon.slurm.job import ExitCode, Job
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.notify import Notifier, notification, text_of
from tests.tui.test_app import Still
from tests.tui.test_attached import Known, settled

FAILED = Job(id="4711", name="train", state="FAILED", exit_code=ExitCode(1))
LEFT = Notice("time", FAILED)


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b]99;i=gpumon;over\x1b\\"),
        ({"TERM": "foot"}, "\x1b]777;notify;gpumon;over\a"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "\x1b]9;over\a"),
        ({"TERM": "xterm-256color"}, "\x1b]9;over\a\x1b]777;notify;gpumon;over\a"),
        ({"TERM": "linux"}, "\a"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0", "LC_TERMINAL": "iTerm2"},
         "\a\x1bPtmux;\x1b\x1b]9;over\a\x1b\\"),
        ({"TERM": "screen", "STY": "1.pts"},
         "\a\x1bP\x1b]9;over\a\x1b\\\x1bP\x1b]777;notify;gpumon;over\a\x1b\\"),
    ],
)  # fmt: skip
def test_each_terminal_gets_what_it_takes(environ, sent):
    assert notification("desktop", "over", environ) == sent
    assert notification("bell", "over", environ) == "\a"
    assert notification("off", "over", environ) == ""


@given(st.text(), st.sampled_from(NOTIFY), st.sampled_from(["xterm", "xterm-kitty", "foot"]))
def test_no_text_breaks_out_of_its_sequence(text, how, term):
    sent = notification(how, text, {"TERM": term})
    inside = re.fullmatch(r"\a?(\x1b\]([^\x00-\x1f\x7f-\x9f]*)(\a|\x1b\\))*", sent)
    assert inside, repr(sent)
    plain = {"xterm": 3, "xterm-kitty": 2, "foot": 3}[term]
    assert how != "desktop" or all(
        each.count(";") <= plain for each in re.findall(r"\x1b\]([^\a\x1b]*)", sent)
    )


def test_words():
    assert text_of([Notice("end", FAILED)]) == "4711 train: FAILED, exit code 1"
    assert text_of([LEFT]) == "4711 train: 10 minutes left"
    assert text_of([Notice("finding", None, "GPU 0 is lost")]) == "gpumon: GPU 0 is lost"
    both = [LEFT, Notice("end", FAILED)]
    assert text_of(both) == "4711 train: FAILED, exit code 1 (and 1 more)"


def test_the_command_gets_the_job_and_no_task_of_an_array():
    ended = []
    waiting = [[Notice("task", FAILED)], [Notice("end", FAILED)], []]
    notifier = Notifier(lambda: waiting.pop(0), "bell", {}, ended.append)
    assert [notifier.look() for _ in range(3)] == ["\a", "\a", ""]
    assert ended == [FAILED]


def test_a_title_has_no_control_characters_and_a_bare_terminal_none():
    job = Job(id="4711", name="a\x1b]0;x\a", state="RUNNING")
    notifier = Notifier(list, "off", {"TERM": "xterm"}, None)
    assert notifier.title(job) == "4711 a?]0,x? RUNNING - gpumon"
    assert notifier.title(None) == ""
    assert Notifier(list, "off", {"TERM": "linux"}, None).title(job) == ""


@pytest.mark.parametrize("key", ["", "space", "question_mark"])
async def test_the_end_is_told_whatever_is_on_the_screen(key, monkeypatch):
    """Also while it is frozen, or a dialog is open."""
    ended, looks = [], []
    job = Known(Job(id="4711", name="train", state="RUNNING"))
    pipeline = Pipeline(Still(0.0, "ssh"), job=job, store=Store())
    app = GpumonApp(pipeline, Settings(notify="bell"), on_end=ended.append)
    look = app._notifier.look

    def counted():
        looks.append(look())
        return looks[-1]

    monkeypatch.setattr(app._notifier, "look", counted)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: looks)  # it was seen while it ran
        if key:
            await pilot.press(key)
        job.known = FAILED
        await settled(pilot, lambda: ended)
        after = len(looks)
        await settled(pilot, lambda: len(looks) > after)
    assert ended == [FAILED]


def test_a_recording_tells_nothing():
    assert not Notifier(None, "bell", {}, None).is_due(0.0)
