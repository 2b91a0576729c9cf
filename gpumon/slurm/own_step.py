"""A step of gpumon's own on every node of the job around us, which leaves no mark in the books.

srun passes hardly any signal on: SIGTERM, SIGINT and SIGHUP make it kill its tasks, and the step is
CANCELLED 0:9, in the job's DerivedExitCode, too. So srun is never signalled. Its tasks read our
pipe by its standard input, and end by themselves, with 0, once that ends: at `end`, or with us.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from gpumon.errors import UsageError
from gpumon.slurm import hostlist
from gpumon.slurm.job import OWN_STEP

#: what describes the job; other variables of Slurm's are options of the step around us
_KEPT = ("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT", "SLURM_JOB_", "SLURM_ARRAY_")
#: what srun replaces: by the step's name, and by nothing in a component of a het job
_OF_THE_JOB = ("SLURM_JOB_NAME", "SLURM_CLUSTER_NAME")
#: Slurm sends what `sbatch --signal` asks for to each step, and SIGTERM at the end of the job. They
#: would end a task that is just starting, so they wait until it has started
_START = """import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})
os.execvp("env", ["env", *sys.argv[1:]])
"""


class OwnStep:
    """One srun for the job; for a het job one for each component."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], unblock: Collection[int] = ()
    ) -> None:
        """Start it; `unblock`: signals that are blocked here and not in srun.

        Raises UsageError outside of a job, OSError where there is no srun.
        """
        kept = {
            name: value
            for name, value in environ.items()
            if not name.startswith(("SLURM_", "SRUN_")) or name.startswith(_KEPT)
        }
        named = (f"{name}={environ.get(name, '')}" for name in _OF_THE_JOB)
        argv = [sys.executable, "-I", "-S", "-c", _START, *named, *argv]
        self._sruns = [
            subprocess.Popen(
                [*srun_words(environ["SLURM_JOB_ID"], nodes, group), *argv],
                env=kept,
                stdin=subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is for us
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, unblock),
            )
            for group, nodes in _components(environ)
        ]

    def end(self) -> None:
        """Let its tasks end; they may take a while."""
        for each in self._sruns:
            assert each.stdin is not None
            with suppress(OSError):
                each.stdin.close()

    def has_ended(self) -> bool:
        return all([each.poll() is not None for each in self._sruns])

    @property
    def failed(self) -> bool:
        """Of a step that has ended."""
        return any(each.returncode for each in self._sruns)


def _components(environ: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The nodes of the job, by component of a het job ("" for any other)."""
    count = environ.get("SLURM_HET_SIZE", "")
    groups = [str(n) for n in range(int(count))] if count.isdecimal() else [""]
    names = ["SLURM_JOB_NODELIST" + (group and f"_HET_GROUP_{group}") for group in groups]
    try:
        return [(n, hostlist.expand(environ[name])) for n, name in zip(groups, names)]
    except (KeyError, ValueError):
        raise UsageError("--all-nodes is for Slurm jobs; outside of one leave it out") from None


def srun_words(job_id: str, nodes: Sequence[str], group: str, *options: str) -> list[str]:
    """Srun for a step of gpumon's own. Each option answers for something that went wrong without
    it. `group`: of a het job, the component; "" for any other.
    """
    return [
        "srun",
        f"--jobid={job_id}",
        *([f"--het-group={group}"] if group else []),
        "--overlap",  # shares what the job's own steps hold, GPUs included
        *options,
        "--mem=0",  # reserves none: else it waits for the job's steps to free some
        f"--job-name={OWN_STEP}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        f"--nodelist={','.join(nodes)}",
        "--cpu-bind=none",
        "--mpi=none",
        "--no-kill",  # a node that fails leaves the others alone
        "--kill-on-bad-exit=0",
        "--wait=0",  # so does a task that ends
        "--chdir=/",
        "--quiet",
    ]
