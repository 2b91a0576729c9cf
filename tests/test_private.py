"""Folders for what only this machine needs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from gpumon import private


def used(run, **more):
    return private.local_folder({"XDG_RUNTIME_DIR": str(run), **more})


@pytest.fixture
def others(monkeypatch, tmp_path):
    """Other places than those of all users; gives the one that is used after $XDG_RUNTIME_DIR."""
    shm = tmp_path / "shm"
    shm.mkdir()
    os.chmod(shm, 0o1777)
    name = f"gpumon-{os.geteuid()}"
    monkeypatch.setattr(private, "_SHARED_BY_ALL", (str(tmp_path / "none"), str(shm)))
    return str(shm / name)


def test_the_first_folder_that_is_private_and_local_is_used(tmp_path, others, monkeypatch):
    run = tmp_path / "run"
    assert used(run) == others  # it is not there
    run.mkdir(0o700)
    assert used(run) == str(run / "gpumon")
    assert stat.S_IMODE(os.stat(run / "gpumon").st_mode) == 0o700
    assert used("run") == used("") == others
    run.chmod(0o777)
    assert used(run) == others
    run.chmod(0o700)
    monkeypatch.setattr(private, "_file_system", lambda status: "nfs4")
    assert used(run) is None


@pytest.mark.parametrize("what", ["a link", "a file", "open to others"])
def test_what_was_planted_is_not_used(tmp_path, others, what):
    if what == "a link":
        os.symlink(tmp_path, others)
    elif what == "a file":
        open(others, "w").close()
    else:
        os.mkdir(others)
        os.chmod(others, 0o777)
    assert used("") is None


def test_its_file_system_is_found_out():
    assert private._file_system(os.stat("/proc")) == "proc"
    assert private._file_system(os.stat("/dev/shm")) == "tmpfs"


def test_a_session_of_another_user_is_left_alone(tmp_path, others, monkeypatch):
    """Under `sudo -E` and `su` the variable is still the other user's."""
    run = tmp_path / "run"
    run.mkdir(0o700)
    if os.geteuid() == 0:
        os.chown(run, 54_321, 54_321)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert used(run) != str(run / "gpumon")
    assert not os.listdir(run)


def test_programs_of_one_user_share_answers_there(tmp_path):
    script = "from gpumon.services.asking import shared_answers; print(shared_answers()._folder)"
    run = tmp_path / "run"
    run.mkdir(0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(run), "GPUMON_STATE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == f"{run}/gpumon/answers\n"
