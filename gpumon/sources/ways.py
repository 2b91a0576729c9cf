"""Which ways there are from here to a job's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.collect.base import node_name
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.runner import LocalRunner, Runner
from gpumon.sources.ladder import Ladder
from gpumon.sources.local import LocalLauncher
from gpumon.sources.openssh import OpensshLauncher
from gpumon.sources.prompt import Prompter
from gpumon.sources.remote import with_profile
from gpumon.sources.srun import SrunLauncher
from gpumon.sources.ssh import SshLauncher
from gpumon.sources.sshconfig import first_way
from gpumon.sources.sstat import SstatLauncher
from gpumon.sources.stream import Failure, Launcher, Rung, Stream
from gpumon.sources.watched import parts_of

VIAS = ("ssh", "openssh", "srun")


class Here(NamedTuple):
    """Where this process stands."""

    node: str  # by its NodeName where Slurm tells it, else its short host name
    job: str  # the raw id of the job around it; "" for none


def here(environ: Mapping[str, str]) -> Here:
    """As the environment tells. A shell of salloc on a login host stands in no job."""
    job = environ.get("SLURM_JOB_ID", "") if environ.get("SLURMD_NODENAME") else ""
    return Here(node_name(environ), job)


class Ways:
    """The launchers for one attach. With `via` only that one, else the whole ladder.

    login: `[USER@]HOST` where the Slurm commands run and through which the nodes are reached.
    """

    def __init__(
        self, prompter: Prompter, here: Here, *, via: str | None = None, login: str | None = None
    ) -> None:
        self._here = here
        self._via = via
        self._login = login
        self.ssh = SshLauncher(prompter, login)
        self.openssh = OpensshLauncher(login)

    def ladders(self, jobs: Sequence[Job]) -> Mapping[str, Ladder]:
        """The ladder of each part; nodes of one component share one, and so one srun."""
        prefer = None if self._via else self._prefer
        shared = {job.raw_id: Ladder(self._launchers(job), prefer) for job in jobs}
        return {part.name: shared[part.job.raw_id] for part in parts_of(jobs)}

    def _launchers(self, job: Job) -> list[Launcher]:
        sruns = [
            SrunLauncher(
                job.het_job_id or job.raw_id,
                self._start_on_login if self._login else None,
                het_group=job.het_offset if job.het_job_id else None,
                gpus=gpus,
            )
            for gpus in (True, False)
        ]
        if self._via == "srun":
            return [*sruns]
        ways: list[Launcher] = [self.ssh, self.openssh, *sruns]
        if self._via:
            return [way for way in ways if way.name == self._via]
        ways.append(SstatLauncher(job, Slurm(self.runner)))
        if self._login:
            return ways
        in_job = self._here.job in (job.raw_id, job.het_job_id) and bool(self._here.job)
        return [LocalLauncher(self._here.node, in_job=in_job), *ways]

    def _prefer(self, node: str) -> Rung | None:
        """The system's ssh where paramiko could not log in; local stays first where it leads."""
        try:
            rung = first_way(node, self._login)
        except Failure:
            return None  # the launchers say the same in their turn
        return rung if rung is not None and rung.name == "openssh" else None

    @property
    def runner(self) -> Runner:
        """Runs Slurm's commands: here, or on the login host. Raises Failure."""
        return LocalRunner() if self._login is None else self.on_login

    @property
    def on_login(self) -> SshLauncher | OpensshLauncher:
        """Runs commands on the login host. Raises Failure."""
        assert self._login is not None
        if self._via == "openssh":
            return self.openssh
        preferred = None if self._via else first_way(self._login)
        return self.openssh if preferred and preferred.name == "openssh" else self.ssh

    def _start_on_login(self, argv: list[str]) -> Stream:
        """Starts srun where Slurm is, on the connection that its other commands use."""
        return self.on_login.open_login(with_profile(argv))
