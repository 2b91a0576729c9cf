"""Where a process is, on its screen."""

from __future__ import annotations

import pytest

from gpumon.model.stack import Frame, Stack, ThreadStack
from gpumon.pipeline.stacks import Seen
from gpumon.tui.lines import plain
from gpumon.tui.screens.processes.stack import shortened, stack_rows
from tests.tui.by_hand import process
from tests.tui.screens.processes.test_process import opened

FRAMES = (
    Frame("torch/distributed/distributed_c10d.py", 2219, "all_reduce", False),
    Frame("torch/distributed/c10d_logger.py", 81, "wrapper", False),
    Frame("train.py", 131, "train", True),
    Frame("train.py", 160, "<module>", True),
)


def stack(*frames, by="probe", **more):
    threads = (ThreadStack("MainThread", True, frames),) if frames else ()
    return Stack(11, "python", by=by, threads=threads, **more)


class Answers:
    """Stands for the nodes' answers; `asked` holds what a person asked for."""

    def __init__(self, stack=None, awaited=False):
        self.stack, self.awaited, self.asked = stack, awaited, []

    def look(self, node, pid):
        return None if self.stack is None else Seen(self.stack, 50.0)

    def is_awaited(self, node, pid):
        return self.awaited

    def ask(self, node, pid):
        self.asked.append((node, pid))


def text(answers, width=100, room=30):
    return plain(stack_rows(answers, "n1", 11, 53.0, width, room))


def test_the_deepest_call_comes_first_with_its_source_and_age():
    lines = text(Answers(stack(*FRAMES, age_s=1.0))).splitlines()
    assert lines[0].split() == ["stack", "by", "the", "probe,", "4", "s", "ago"]
    assert [line.split() for line in lines[1:]] == [
        ["torch/distributed/distributed_c10d.py:2219", "all_reduce"],
        ["torch/distributed/c10d_logger.py:81", "wrapper"],
        ["train.py:131", "train"],
        ["train.py:160", "<module>"],
    ]
    by_hand = text(Answers(stack(*FRAMES, by="py-spy"))).splitlines()[0]
    assert " ".join(by_hand.split()) == "stack by py-spy, 3 s ago w reads it again"


def test_where_there_is_little_room_ones_own_lines_stay():
    lines = text(Answers(stack(*FRAMES)), room=8).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["all_reduce", "train", "<module>"]
    assert lines[4].strip() == "and 1 more call"
    assert shortened(FRAMES, 2) == ([FRAMES[0], FRAMES[2]], 2)
    assert shortened(FRAMES, 4) == (list(FRAMES), 0)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (Answers(), ""),
        (Answers(awaited=True), "reading it"),
        (Answers(stack(by="", why="not-python")), ""),
        (Answers(stack(by="", why="other-user")), ""),
        (Answers(stack(by="", why="no-probe")), "w shows it, by py-spy"),
        (Answers(stack(by="", why="no-py-spy")), "py-spy is not installed"),
        (Answers(stack(by="probe", why="silent", age_s=40.0)), "has not written for 40 s"),
    ],
)
def test_why_there_is_none(answers, words):
    found = text(answers, 300)
    assert words in found
    assert bool(found) == bool(words)


def test_it_stands_on_the_screen_of_the_process_and_w_reads_it():
    looking = opened(process(11))
    looking.pane._stacks = answers = Answers(stack(*FRAMES))
    for size in ((80, 22), (120, 38), (200, 58)):
        shown = looking.text("process", *size)
        assert "train.py:131" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        assert len(shown.splitlines()) <= size[1]
    looking.pane.action_stack()
    assert answers.asked == [("gpu01", 11)]
    looking.pane._stacks = None
    looking.pane.action_stack()
    assert "train.py:131" not in looking.text("process", 120, 38)


def test_of_a_process_that_ended_nothing_is_asked():
    looking = opened(process(11))
    looking.pane._stacks = answers = Answers(stack(*FRAMES))
    entry = looking.processes.selected(looking.moment)
    ended = entry._replace(process=entry.process._replace(ended=1.0))
    assert looking.pane._rows(ended, 100, 30) == []
    assert answers.asked == []
