"""The agent's answers: by the probe, by py-spy, or why there is no stack."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.proc.probed import Probed
from gpumon.collect.proc.processes import Processes
from gpumon.collect.procfs import ProcFs
from gpumon.collect.stacks import pyspy, stacks
from gpumon.collect.stacks.answers import Answers
from gpumon.model.stack import ANY, PROBE, THREADS
from gpumon.wire.stacks import parse_answer, request_line
from tests.collect.stacks.programs import standing
from tests.support.users import as_nobody

PY_SPY = str(Path(sys.executable).with_name("py-spy"))
#: what a probe writes in the program of `standing`
TOLD = [["train.py", 9, "wait_here", True], ["train.py", 13, "main", True]]


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(PY_SPY).parent))


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")


def probed(folder, child, stack, age_s=0.0):
    """The file of a probe in this process."""
    ticks = ProcFs().stat(child.pid).start_ticks
    path = folder / f"{child.pid}-{ticks}.json"
    path.write_text(json.dumps({"stack": stack, "steps": 3}))
    os.utime(path, (time.time() - age_s,) * 2)


def looker(names=()):
    probe = Probed(lambda visible, order: {})
    return stacks.Stacks(probe, Processes(probed=probe), JobCgroup(None), names)


def ask(pid, how=ANY):
    (told,) = looker().answers(pid, how)
    assert told.more == 0
    return told.stack


def test_the_probe_is_read_where_it_is_inside(tmp_path, nowhere):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, TOLD)
        found = ask(child.pid)
        assert (found.by, found.why, [list(frame) for frame in found.main]) == ("probe", "", TOLD)
        assert ask(child.pid, PROBE) == found._replace(age_s=ask(child.pid, PROBE).age_s)
        only_main = ask(child.pid, THREADS)
        assert (only_main.by, only_main.why) == ("probe", "no-py-spy")
        assert only_main.main == found.main


def test_all_threads_are_py_spys(tmp_path, on_path):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, TOLD)
        assert [each.name for each in ask(child.pid).threads] == ["MainThread"]
        found = ask(child.pid, THREADS)
        assert (found.by, [each.name for each in found.threads][1:]) == ("py-spy", ["loader"])


def test_a_probe_that_fell_silent_is_no_answer_but_py_spys_is(tmp_path, on_path):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, TOLD, age_s=60)
        assert ask(child.pid).by == "py-spy"
        os.environ["PATH"] = "/nowhere"
        found = ask(child.pid)
        assert (found.why, found.threads) == ("silent", ())
        assert found.age_s >= 60


@pytest.mark.parametrize(
    "stack",
    [[], None, 3, "x", {"a": 1}, [[1]], [[]], [None], ["abcd"], [["f", "x", "g", True]],
     [[["f"], 1, "g", True]], [["f", 1, {"g": 1}, True]], [["f", 1e308, "g", True]],
     [["f", -1, "g", True]], [["f", 10**400, "g", True]]],
)  # fmt: skip
def test_what_no_probe_writes_is_no_stack(tmp_path, nowhere, stack):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, stack)
        assert ask(child.pid, PROBE).why == "no-probe"
        assert ask(child.pid).why == "no-py-spy"


def test_what_a_hostile_program_writes_is_cut_and_cleaned(tmp_path, nowhere):
    with standing(tmp_path, GPUMON_PROBE_DIR=str(tmp_path)) as child:
        probed(tmp_path, child, [["\x1b[2J" + "x" * 200, 1, "\u202e()", "yes"]] * 90)
        frames = ask(child.pid).main
    assert len(frames) == 64
    assert {(len(f.file), f.file[:4], f.function, f.own) for f in frames} == {
        (120, "?[2J", "?()", False)
    }


def test_why_there_is_none(tmp_path, on_path):
    assert ask(2**31 - 2).why == "ended"
    assert ask(1).why == "not-python"
    with standing(tmp_path) as child:
        os.kill(child.pid, 9)
        while ProcFs().stat(child.pid).state != "Z":
            time.sleep(0.01)
        assert ask(child.pid).why == "ended"


def test_another_users_process_is_theirs(tmp_path, on_path):
    with standing(tmp_path) as child:
        assert as_nobody(lambda: ask(child.pid).why != "other-user") == 0


def test_ranks_are_numbers_and_each_says_how_many_follow(tmp_path, on_path):
    job = {"SLURM_JOB_ID": "4711", "PASSWORD": "hunter2"}
    first = standing(tmp_path, **job, RANK="1", LOCAL_RANK="1")
    second = standing(tmp_path, **job, RANK="0", LOCAL_RANK="\x1b[31m")
    with first as one, second as two, standing(tmp_path, RANK="5", SLURM_JOB_ID="4712"):
        told = list(looker({"4711"}).answers(0, ANY))
        alone = list(looker({"4711"}).answers(one.pid, ANY))
        assert list(looker({"4713"}).answers(0, ANY)) == [(None, 0)]
    assert [(each.more, each.stack.rank, each.stack.local_rank) for each in told] == [
        (1, 0, None), (0, 1, 1),
    ]  # fmt: skip
    assert [each.stack.pid for each in told] == [two.pid, one.pid]
    assert alone == [told[1]]
    assert "hunter2" not in repr(told)


def test_the_agent_answers_whole_lines_for_it_alone(tmp_path, on_path):
    written = []
    answers = Answers("gpu01", looker, written.append)
    with standing(tmp_path) as child:
        line = request_line(child.pid, ANY, "")
        answers.take(b"\n\n" + line[:7])
        assert written == []
        answers.take(line[7:] + b"@gpu02 " + line + b"@gpu01 " + line + b"stack x any \nend gpu9\n")
    assert [parse_answer(each.encode()).stack.pid for each in written] == [child.pid] * 2


def test_py_spy_may_lie_where_the_reader_has_it(tmp_path, nowhere):
    with standing(tmp_path) as child:
        (told,) = looker().answers(child.pid, ANY, PY_SPY)
    assert told.stack.by == "py-spy"
    assert pyspy.find() == ""
