"""Slurm as the programs of one user ask it together: an answer to one of them serves the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from gpumon.recording.runs import state_dir
from gpumon.slurm.answers import SharedAnswers
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import Runner


def shared_slurm(runner: Runner, login: str | None = None, *, timeout_s: float = 15.0) -> Slurm:
    """`login`: the host on which `runner` runs Slurm's commands, None for this machine."""
    return Slurm(runner, answers=shared_answers(login), timeout_s=timeout_s)


def shared_answers(login: str | None = None) -> SharedAnswers:
    """The answers of Slurm's commands here, or on a login host."""
    return SharedAnswers(os.path.join(_private_dir(os.environ), "answers"), login or "")


def _private_dir(environ: Mapping[str, str]) -> str:
    """The user's folder on this machine where the session has one, else that of recordings."""
    folder = environ.get("XDG_RUNTIME_DIR", "")
    try:
        status = os.lstat(folder)
    except OSError:
        return state_dir()
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return os.path.join(folder, "gpumon") if own and os.path.isabs(folder) else state_dir()
