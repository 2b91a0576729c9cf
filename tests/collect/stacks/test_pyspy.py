"""The real py-spy on real programs: what it tells, and why it tells nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.collect.stacks import pyspy
from tests.collect.stacks.programs import standing
from tests.support.users import as_nobody

PY_SPY = str(Path(sys.executable).with_name("py-spy"))


@pytest.fixture
def program(tmp_path):
    with standing(tmp_path) as child:
        yield child.pid


def imitation(folder, text):
    """A program that stands in py-spy's place."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_found_in_the_path_else_where_it_is_said_to_be(tmp_path):
    path = imitation(tmp_path, "")
    assert pyspy.find(path="/nowhere") == ""
    assert pyspy.find(path=f"relative:{tmp_path}") == path
    assert pyspy.find(path, path="/nowhere") == path
    assert pyspy.find("/bin/sh", path="/nowhere") == ""
    os.chmod(path, 0o644)
    assert pyspy.find(path, path=str(tmp_path)) == ""


def test_all_threads_the_main_one_first_and_no_more_than_names_and_lines(program):
    told = pyspy.dump(PY_SPY, program)
    main, beside = told.threads
    assert (main.is_main, beside.is_main, beside.name) == (True, False, "loader")
    assert [(frame.file, frame.function, frame.own) for frame in main.frames] == [
        ("train.py", "wait_here", True), ("train.py", "main", True), ("train.py", "<module>", True),
    ]  # fmt: skip
    assert [frame.line for frame in main.frames] == [9, 13, 15]
    deep = beside.frames[0]
    assert (deep.file, deep.function, deep.own) == ("train.py", "beside", True)
    libraries = [frame for frame in beside.frames if not frame.own]
    assert {frame.file for frame in libraries} == {"threading.py"}
    assert "hunter2" not in repr(told)


def test_the_program_is_never_stopped(tmp_path):
    """The arguments that it is started with, by a program in its place."""
    path = imitation(tmp_path, f'echo "$@" > {tmp_path}/told; echo "[]"')
    pyspy.dump(path, os.getpid())
    said = (tmp_path / "told").read_text().split()
    assert said == ["dump", "--json", "--nonblocking", "--pid", str(os.getpid())]


@pytest.mark.parametrize(
    "name", ["\x1b[31mred.py", "x\u202ey.py", "new\nline.py", "ü" * 60 + ".py"]
)
def test_hostile_names_are_cleaned(tmp_path, name):
    with standing(tmp_path, file=name, function="f" * 500, thread="\x1b]0;title\x07") as child:
        told = pyspy.dump(PY_SPY, child.pid)
    assert told.why == ""
    frames = [frame for each in told.threads for frame in each.frames]
    texts = [text for frame in frames for text in (frame.file, frame.function)]
    for text in [*texts, *(each.name for each in told.threads)]:
        assert text.isprintable()
        assert len(text) <= 120


def test_a_process_that_has_ended_or_is_no_python(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert pyspy.dump(PY_SPY, gone.pid) == pyspy.Dump(why="ended")
    other = subprocess.Popen(["sleep", "1000"])
    try:
        assert pyspy.dump(PY_SPY, other.pid) == pyspy.Dump(why="not-python")
    finally:
        other.kill()
        other.wait()


def test_another_users_process_is_refused(program, tmp_path, monkeypatch):
    scope = tmp_path / "scope"
    monkeypatch.setattr(pyspy, "_SCOPE", str(scope))

    def told():
        found = pyspy.dump(PY_SPY, program)
        scope.write_text("1\n")
        again = pyspy.dump(PY_SPY, program)
        refused = (pyspy.Dump(why="refused"), pyspy.Dump(why="ptrace", detail="1"))
        return 0 if (found, again) == refused else 1

    tmp_path.chmod(0o777)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o011)
    assert as_nobody(told) == 0


@pytest.mark.parametrize(
    ("text", "why", "detail"),
    [
        ("exec sleep 1000", "timeout", ""),
        ("exec 1>&- 2>&-; exec sleep 1000", "failed", "no output"),
        ("echo '[{\"frames\": 3}]'", "failed", "no output"),
        ("echo '[]'", "failed", "no thread with a Python stack"),
        ("printf 'Error: a \\033[31mred one\\nmore' >&2; exit 1", "failed", "a ?[31mred one"),
        ("yes | head -c 20000000", "failed", "no output"),
        ("kill -9 $$", "failed", "no output"),
    ],
)
def test_one_that_fails_or_hangs_is_ended_and_said(tmp_path, monkeypatch, text, why, detail):
    monkeypatch.setattr(pyspy, "_PATIENCE_S", 1.0)
    found = pyspy.dump(imitation(tmp_path, text), os.getpid())
    assert found == pyspy.Dump(why=why, detail=detail)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_one_that_cannot_be_started(tmp_path):
    path = tmp_path / "py-spy"
    path.write_text("no program")
    path.chmod(0o755)
    found = pyspy.dump(str(path), os.getpid())
    assert found.why == "failed"
    assert found.detail.endswith("Exec format error")
