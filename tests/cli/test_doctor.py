"""What `gpumon doctor` says of attach and report; the real Slurm's part is in tests/slurm."""

from __future__ import annotations

import os

import pytest

from gpumon.collect.stacks import pyspy
from gpumon.services import connectivity as reaching
from gpumon.services import diagnosis
from gpumon.slurm.runner import Result, SlurmTimeoutError

CONFIG = b"SLURM_VERSION = 22.05.8\nClusterName = alpha\x1b[2J\n"


class Commands:
    """Stands for Slurm's commands: program -> result, or what is raised."""

    def __init__(self, **answers):
        self._answers = answers

    def run(self, argv, *, env, timeout_s):
        fields = b"JobID JobIDRaw State\n" if "--helpformat" in argv else b""
        answer = self._answers.get(argv[0], Result(0, fields, ""))
        if isinstance(answer, Exception):
            raise answer
        return answer


def path_with(folder, *programs):
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def found(environ, **answers):
    answers = {"scontrol": Result(0, CONFIG, ""), **answers}
    checks = reaching.checks(environ, Commands(**answers))
    return {check.name: (check.result, check.detail) for check in checks}


ALL = ("squeue", "scontrol", "srun", "sstat", "sacct", "ssh")


def test_everything_is_there(tmp_path):
    agent = tmp_path / "agent"
    agent.touch()
    assert found({**path_with(tmp_path, *ALL), "SSH_AUTH_SOCK": str(agent)}) == {
        "Slurm's commands": ("ok", "squeue, scontrol, srun, sstat, sacct"),
        "Slurm's controller": ("ok", "Slurm 22.05.8, cluster alpha?[2J"),
        "accounting": ("ok", "sacct works"),
        "ssh": ("ok", "agent and key files"),
    }


def test_nothing_is_there(tmp_path):
    told = found(path_with(tmp_path))
    assert set(told) == {"Slurm's commands", "ssh"}
    assert told["Slurm's commands"] == (
        "absent", "squeue and scontrol not found; use gpumon attach JOBID --login HOST",
    )  # fmt: skip
    assert told["ssh"][0] == "limited"


def test_what_is_lost_without_a_command_is_said(tmp_path):
    result, detail = found(path_with(tmp_path, "squeue", "scontrol", "sacct"))["Slurm's commands"]
    assert result == "limited"
    assert detail.startswith("squeue, scontrol, sacct; no srun: ")


@pytest.mark.parametrize(
    ("answers", "name", "result", "says"),
    [
        ({"sacct": Result(1, b"", "Slurm accounting storage is disabled\n")}, "accounting",
         "absent", "accounting is disabled"),
        ({"sacct": Result(1, b"", "sacct: error: no database\n")}, "accounting", "limited",
         "no database"),
        ({"scontrol": SlurmTimeoutError("Slurm does not answer")}, "Slurm's controller", "limited",
         "does not answer"),
        ({"squeue": Result(1, b"", "squeue: error: denied\n")}, "Slurm's controller", "limited",
         "denied"),
    ],
)  # fmt: skip
def test_what_does_not_answer_is_said_with_its_reason(tmp_path, answers, name, result, says):
    told = found(path_with(tmp_path, *ALL), **answers)
    assert told[name][0] == result
    assert says in told[name][1]


@pytest.mark.parametrize(
    ("there", "scope", "uid", "result", "words"),
    [
        (True, 0, 1000, "ok", "your Python programs, by py-spy (/x/py-spy)"),
        (True, 2, 0, "ok", "every user's Python programs"),
        (True, 3, 0, "limited", "ptrace_scope is 3"),
        (True, 1, 1000, "limited", "only programs started with 'gpumon record --probe --'"),
        (False, 0, 1000, "absent", "pip install 'gpumon-slurm[stacks]'"),
    ],
)
def test_whether_stacks_can_be_had(monkeypatch, there, scope, uid, result, words):
    monkeypatch.setattr(pyspy, "find", lambda beside: "/x/py-spy" if there else "")
    monkeypatch.setattr(pyspy, "ptrace_scope", lambda: scope)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    check = diagnosis._stacks()
    assert (check.name, check.result) == ("stacks", result)
    assert words in check.detail
