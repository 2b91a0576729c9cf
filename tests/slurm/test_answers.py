"""Answers that several programs share: who asks, and what is believed of what lies there."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model import clock as our_clock
from gpumon.slurm import answers
from gpumon.slurm.answers import SharedAnswers
from gpumon.slurm.pace import Pace, Told
from gpumon.slurm.runner import Result, SlurmError, SlurmTimeoutError
from tests.support.waiting import until

QUESTION = ("squeue", "-h", "--jobs=4711")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "run" / "answers")


def always(told):
    return True


def never(told):
    return False


def told(out=b"answer", **more):
    return Told(our_clock.since_boot(), Result(0, out, "words"), **more)


class Asking:
    """Counts over all processes how often Slurm is asked."""

    def __init__(self, log: Path, takes_s: float = 0.0) -> None:
        self._log = log
        self._takes_s = takes_s
        log.touch()

    def __call__(self, last):
        with self._log.open("a") as file:
            file.write(".")
        time.sleep(self._takes_s)
        return told(self._log.read_bytes())

    @property
    def times(self):
        return len(self._log.read_text())


class Child:
    """Another process, which asks; its exit code is 0 where it got the answer `.`."""

    def __init__(self, folder, asking, timeout_s=60.0) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                answer = SharedAnswers(folder).ask(QUESTION, always, asking, timeout_s)
                code = 0 if answer.result == Result(0, b".", "words") else 2
            finally:
                os._exit(code)

    def code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_of_many_that_ask_at_once_one_asks(folder, tmp_path):
    asking = Asking(tmp_path / "log", takes_s=0.3)
    children = [Child(folder, asking) for _ in range(12)]
    assert [child.code() for child in children] == [0] * 12
    assert asking.times == 1


def test_what_is_not_usable_is_asked_anew_with_what_was_known(folder):
    shared = SharedAnswers(folder)
    seen = []

    def call(last):
        seen.append(last)
        return told(failures=len(seen))

    first = shared.ask(QUESTION, always, call, 1)
    second = shared.ask(QUESTION, never, call, 1)
    assert seen == [None, first]
    assert shared.ask(QUESTION, always, call, 1) == second


def test_after_one_that_was_killed_the_next_asks_at_once(folder, tmp_path):
    hanging = Asking(tmp_path / "log", takes_s=600)
    child = Child(folder, hanging)
    until(lambda: hanging.times == 1)
    os.kill(child.pid, signal.SIGKILL)
    child.code()
    SharedAnswers(folder).ask(QUESTION, always, Asking(tmp_path / "log"), 60)
    assert hanging.times == 2


def test_one_that_stands_still_holds_up_nobody_for_long(folder, tmp_path):
    hanging = Asking(tmp_path / "log", takes_s=600)
    child = Child(folder, hanging, timeout_s=0.2)
    until(lambda: hanging.times == 1)
    os.kill(child.pid, signal.SIGSTOP)
    try:
        SharedAnswers(folder).ask(QUESTION, always, Asking(tmp_path / "log"), 60)
        assert hanging.times == 2
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.code()


def test_who_waits_as_long_as_it_would_have_asked_has_waited_for_slurm(folder, tmp_path):
    hanging = Asking(tmp_path / "log", takes_s=600)
    child = Child(folder, hanging)
    try:
        until(lambda: hanging.times == 1)
        with pytest.raises(SlurmTimeoutError, match=r"squeue took over 0\.2 s"):
            SharedAnswers(folder).ask(QUESTION, always, hanging, 0.2)
        assert hanging.times == 1
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.code()


def test_on_a_login_host_nobody_waits_for_another_ones_password(folder, tmp_path):
    typing = SharedAnswers(folder, "ada@hpc")
    log = Asking(tmp_path / "log")

    def slow(last):
        SharedAnswers(folder, "ada@hpc").ask(QUESTION, always, log, 0.2)
        return told()

    typing.ask(QUESTION, always, slow, 60)
    assert log.times == 1


@pytest.mark.parametrize("damage", ["folder", "link", "other owner", "for all", "no folder"])
def test_a_folder_that_is_not_ones_own_is_not_used(folder, tmp_path, damage, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.makedirs(folder, 0o700)
    if damage == "folder":
        os.rmdir(folder)
        Path(folder).write_text("a file")
    elif damage == "link":
        os.rmdir(folder)
        os.symlink(elsewhere, folder)
    elif damage == "other owner":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    elif damage == "for all":
        os.chmod(folder, 0o777)
    else:
        folder = "/proc/gpumon"
    asking = Asking(tmp_path / "log")
    for _ in range(2):
        SharedAnswers(folder).ask(QUESTION, always, asking, 1)
    assert asking.times == 2
    assert not list(elsewhere.iterdir())


def files(folder, ending):
    return [path for path in Path(folder).iterdir() if path.name.endswith(ending)]


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("ending", [".answer", ".lock"])
def test_what_was_planted_is_neither_read_nor_written(folder, tmp_path, ending, planted):
    asking, shared = Asking(tmp_path / "log"), SharedAnswers(folder)
    shared.ask(QUESTION, always, asking, 1)
    (path,) = files(folder, ending)
    own = path.read_bytes()
    path.unlink()
    target = tmp_path / "target"
    target.write_bytes(own)
    if planted == "link":
        path.symlink_to(target)
    elif planted == "hard link":
        path.hardlink_to(target)
    elif planted == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    answer = shared.ask(QUESTION, always, asking, 1)
    assert answer.result.out == (b".." if ending == ".answer" else b".")
    assert target.read_bytes() == own


def test_files_are_the_owners_alone(folder, tmp_path):
    before = os.umask(0)
    try:
        SharedAnswers(folder).ask(QUESTION, always, Asking(tmp_path / "log"), 1)
    finally:
        os.umask(before)
    for path in [Path(folder).parent, Path(folder), *Path(folder).iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path


OWN = answers._encoded(told(b"x\x00\n{}\n" * 9, delimiter="\x1fd\x1f"), "the key")


@given(st.data())
def test_no_damage_makes_another_answer(data):
    at = data.draw(st.integers(0, len(OWN) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "repeat"]))
    damaged = {
        "cut": OWN[:at],
        "flip": OWN[:at] + bytes([OWN[at] ^ 1 << data.draw(st.integers(0, 7))]) + OWN[at + 1 :],
        "insert": OWN[:at] + b"0" + OWN[at:],
        "repeat": OWN + OWN[at:],
    }[kind]
    assert answers._decoded(damaged, "the key") is None
    assert answers._decoded(OWN, "the key") is not None
    assert answers._decoded(OWN, "another key") is None


@given(st.binary(max_size=300))
def test_any_bytes_are_no_answer(data):
    assert answers._decoded(data, "key") is None
    assert answers._decoded(answers._checksum(data) + b"\n" + data, "key") is None


@given(st.binary(max_size=30), st.text(max_size=30), st.text(max_size=9), st.floats(0, 1e9))
def test_what_was_printed_comes_back_as_it_was(out, err, delimiter, at):
    whole = Told(at, Result(-11, out, err), delimiter, 3, "late")
    assert answers._decoded(answers._encoded(whole, "key"), "key") == whole


def test_each_place_cluster_and_command_has_its_own(folder, tmp_path):
    asking = Asking(tmp_path / "log")
    places = [
        SharedAnswers(folder),
        SharedAnswers(folder, "hpc"),
        SharedAnswers(folder, "ada@hpc"),
        SharedAnswers(folder, environ={"SLURM_CONF": "/other"}),
        SharedAnswers(folder, environ={"SLURM_CLUSTERS": "b"}),
    ]
    for place in places:
        for question in (QUESTION, (*QUESTION, "-a"), ("scontrol", *QUESTION[1:])):
            place.ask(question, always, asking, 1)
            place.ask(question, always, asking, 1)
    assert asking.times == 15


def test_answers_of_another_boot_are_none(folder, tmp_path, monkeypatch):
    asking = Asking(tmp_path / "log")
    SharedAnswers(folder).ask(QUESTION, always, asking, 1)
    monkeypatch.setattr(answers, "_boot", lambda: "another")
    SharedAnswers(folder).ask(QUESTION, always, asking, 1)
    assert asking.times == 2


def test_an_answer_from_the_future_is_none(folder, tmp_path):
    asking, now = Asking(tmp_path / "log"), our_clock.since_boot()
    SharedAnswers(folder).ask(QUESTION, always, asking, 1)
    SharedAnswers(folder, clock=lambda: now - 60).ask(QUESTION, always, asking, 1)
    assert asking.times == 2


def test_the_wall_clock_makes_nothing_old(folder, tmp_path, monkeypatch):
    asking = Asking(tmp_path / "log")
    for ahead_s in (0, 1e7, -1e7):
        monkeypatch.setattr(time, "time", lambda ahead_s=ahead_s: 1e9 + ahead_s)
        SharedAnswers(folder).ask(QUESTION, always, asking, 1)
    assert asking.times == 1


def test_few_answers_are_kept_and_small_ones(folder):
    shared = SharedAnswers(folder)
    for number in range(answers.MAX_ANSWERS + 20):
        shared.ask(("squeue", str(number)), always, lambda last: told(), 1)
    assert len(files(folder, ".answer")) <= answers.MAX_ANSWERS
    assert len(list(Path(folder).iterdir())) <= 2 * answers.MAX_ANSWERS
    big = Told(our_clock.since_boot(), Result(0, b"x" * answers.MAX_ANSWER_BYTES, ""))
    before = len(list(Path(folder).iterdir()))
    assert shared.ask(("sacct",), always, lambda last: big, 1) == big
    assert len(list(Path(folder).iterdir())) == before + 1  # its lock


def test_old_ones_are_removed_and_files_of_others_stay(folder):
    shared = SharedAnswers(folder)
    shared.ask(("old",), always, lambda last: told(), 1)
    torn = Path(folder) / "0.new"
    strange = Path(folder) / "notes.txt"
    for path in (torn, strange):
        path.write_text("x")
    for path in Path(folder).iterdir():
        os.utime(path, (1, 1))
    shared.ask(("new",), always, lambda last: told(), 1)
    assert len(files(folder, ".answer")) == 1
    assert not torn.exists()
    assert strange.exists()


@pytest.mark.parametrize("call", ["flock", "rename", "pwrite"])
def test_where_something_does_not_work_each_asks_for_itself(folder, tmp_path, call, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl if call == "flock" else os, call, fails)
    asking = Asking(tmp_path / "log")
    for _ in range(2):
        assert SharedAnswers(folder).ask(QUESTION, never, asking, 1).result.code == 0
    assert asking.times == 2
    assert not files(folder, ".new")


# -- with their ages


class Programs:
    """Several programs of one user, on one clock."""

    def __init__(self, folder, number):
        self.now = 1000.0
        self.asked = []
        self.result: Result | None = Result(0, b"yes", "")  # None: it hangs
        clock = lambda: self.now  # noqa: E731
        self.paces = [Pace(clock, SharedAnswers(folder, clock=clock)) for _ in range(number)]

    def ask(self, program, period_s=30.0):
        def run():
            self.asked.append(self.now)
            if self.result is None:
                raise SlurmTimeoutError("Slurm does not answer")
            return self.result, ""

        def parse(told):
            if told.result.code:
                raise SlurmError(told.result.err)
            return told.at

        return self.paces[program].ask(QUESTION, period_s, run, parse, timeout_s=1.0)


def test_followers_ask_together_as_often_as_one(folder):
    programs = Programs(folder, 20)
    for second in range(600):
        programs.now = 1000.0 + second
        if second < 20:
            programs.ask(second)
        elif second % 3 == 0:
            for program in range(20):
                at = programs.ask(program)
                assert programs.now - at < 30
    later = [at for at in programs.asked if at >= 1060]
    assert len(later) <= 540 / 30 + 1


def test_who_starts_wants_an_answer_of_now(folder):
    programs = Programs(folder, 3)
    assert programs.ask(0) == 1000
    assert programs.ask(1) == 1000  # which has waited for it
    programs.now += 0.1
    assert programs.ask(2) == programs.now
    programs.now += 29.95
    assert programs.ask(1) == pytest.approx(programs.now - 29.95)


def test_errors_are_shared_and_asked_less_and_less(folder):
    programs = Programs(folder, 5)
    for program in range(5):
        programs.ask(program)
    programs.now += 60
    programs.result, programs.asked = None, []
    for _ in range(400):
        for program in range(5):
            with pytest.raises(SlurmError, match="does not answer"):
                programs.ask(program)
        programs.now += 1
    assert [at - 1060 for at in programs.asked] == [0, 10, 30, 70, 150, 310]


def test_the_first_that_gets_an_answer_again_ends_the_wait_of_all(folder):
    programs = Programs(folder, 3)
    programs.result = None
    for _ in range(3):
        with pytest.raises(SlurmError):
            programs.ask(0)
        with pytest.raises(SlurmError):
            programs.ask(1)
        programs.now += 100
    programs.result = Result(0, b"yes", "")
    assert programs.ask(2) == programs.now
    programs.now += 1
    assert programs.ask(0) == programs.ask(1) == programs.now - 1
