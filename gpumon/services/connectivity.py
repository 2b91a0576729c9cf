"""What of `gpumon attach` and `report` would work here: Slurm's commands, accounting, ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.slurm.client import AccountingOffError, Slurm
from gpumon.slurm.runner import LocalRunner, Runner, SlurmError

#: what attach cannot do without, then what gives more; each with what is lost where it is not there
_NEEDED = ("squeue", "scontrol")
_USEFUL = {
    "srun": "nodes can be reached by ssh only",
    "sstat": "no figures for nodes that cannot be reached",
    "sacct": "reports use recordings only",
}
_PATIENCE_S = 5.0
OK, LIMITED, ABSENT = "ok", "limited", "absent"


class Check(NamedTuple):
    """One thing looked at. `absent` is a state of the machine, `limited` worth a word to staff."""

    name: str
    result: str
    detail: str


def checks(environ: Mapping[str, str], runner: Runner | None = None) -> list[Check]:
    """Queries Slurm, if available; takes at most a few seconds per query."""
    found = [_commands(environ)]
    if found[0].result != ABSENT:
        slurm = Slurm(runner or LocalRunner(), timeout_s=_PATIENCE_S)
        found += [_controller(slurm), _accounting(slurm)]
    return [*found, _ssh(environ)]


def _commands(environ: Mapping[str, str]) -> Check:
    path = environ.get("PATH")
    lacking = [name for name in _NEEDED if not shutil.which(name, path=path)]
    if lacking:
        detail = f"{' and '.join(lacking)} not found; use gpumon attach JOBID --login HOST"
        return Check("Slurm's commands", ABSENT, detail)
    absent = [name for name in _USEFUL if not shutil.which(name, path=path)]
    there = [*_NEEDED, *(name for name in _USEFUL if name not in absent)]
    less = [f"no {name}: {_USEFUL[name]}" for name in absent]
    return Check("Slurm's commands", LIMITED if less else OK, "; ".join([", ".join(there), *less]))


def _controller(slurm: Slurm) -> Check:
    try:
        config = slurm.config()
        slurm.queue(user="root")  # a short answer
    except SlurmError as error:
        return Check("Slurm's controller", LIMITED, str(error))
    told = f"Slurm {clean(config.version, 40) or '?'}, cluster {clean(config.cluster, 80) or '?'}"
    return Check("Slurm's controller", OK, told)


def _accounting(slurm: Slurm) -> Check:
    try:
        slurm.jobs(["1"])  # of one job, there or not
    except AccountingOffError as error:
        return Check("accounting", ABSENT, f"{error}; reports use recordings only")
    except SlurmError as error:
        return Check("accounting", LIMITED, str(error))
    return Check("accounting", OK, "sacct works")


def _ssh(environ: Mapping[str, str]) -> Check:
    agent = environ.get("SSH_AUTH_SOCK", "")
    keys = "agent and key files" if agent and os.path.exists(agent) else "key files; no agent"
    if not shutil.which("ssh", path=environ.get("PATH")):
        detail = "no ssh program here: gpumon's own goes by OpenSSH's defaults, not ~/.ssh/config"
        return Check("ssh", LIMITED, detail)
    return Check("ssh", OK, keys)
