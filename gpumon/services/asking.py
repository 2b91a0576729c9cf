"""Slurm as the programs of one user ask it together: an answer to one of them serves the others."""

from __future__ import annotations

import os

from gpumon import private
from gpumon.recording.runs import state_dir
from gpumon.slurm.answers import SharedAnswers
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import Runner


def shared_slurm(runner: Runner, login: str | None = None, *, timeout_s: float = 15.0) -> Slurm:
    """`login`: the host on which `runner` runs Slurm's commands, None for this machine."""
    return Slurm(runner, answers=shared_answers(login), timeout_s=timeout_s)


def shared_answers(login: str | None = None) -> SharedAnswers:
    """The answers of Slurm's commands here, or on a login host; in a folder of this machine where
    there can be one.
    """
    folder = private.local_folder() or state_dir()
    return SharedAnswers(os.path.join(folder, "answers"), login or "")
