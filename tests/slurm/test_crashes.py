"""Slurm's commands that crash: gpumon names them and how they ended, as an ordinary error."""

from __future__ import annotations

import os

import pytest

from tests.e2e.program import environment, gpumon

pytestmark = pytest.mark.slow


@pytest.fixture
def crashing(tmp_path):
    """An environment in which every command of Slurm ends with SIGSEGV."""
    for name in ("sacct", "scontrol", "sinfo", "squeue", "srun", "sstat"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\nkill -SEGV $$\n")
        path.chmod(0o755)
    return environment(PATH=f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["report", "4711"], "squeue"),
        (["report", "--user", "alice", "--since", "now-1days"], "sacct"),
        (["attach", "4711"], "squeue"),
    ],
)
def test_a_crash_is_an_error_of_one_line(crashing, args, command):
    done = gpumon(*args, env=crashing)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{command} failed: killed by SIGSEGV" in line


def test_doctor_names_what_crashed(crashing):
    done = gpumon("doctor", env=crashing)
    assert "killed by SIGSEGV" in done.stdout
    assert "internal error" not in done.stdout + done.stderr
