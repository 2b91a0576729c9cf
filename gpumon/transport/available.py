"""Which transports there are from here to a job's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpumon.collect.base import node_name
from gpumon.errors import GpumonError
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.pace import Answers
from gpumon.slurm.parts import parts_of
from gpumon.slurm.runner import LocalRunner, Runner
from gpumon.transport.fallback import Transports
from gpumon.transport.local import LocalTransport
from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.pauses import Pauses
from gpumon.transport.prompt import Prompter
from gpumon.transport.reachable import Reachable
from gpumon.transport.remote import with_profile
from gpumon.transport.room import JobRoom
from gpumon.transport.srun import SrunTransport
from gpumon.transport.ssh.config import preferred_transport
from gpumon.transport.ssh.transport import SshTransport
from gpumon.transport.sstat import SstatTransport
from gpumon.transport.stream import Attempt, Failure, Stream, Transport


class Here(NamedTuple):
    """Where this process stands."""

    node: str  # by its NodeName where Slurm tells it, else its short host name
    job: str  # the raw id of the job around it; "" for none


def here(environ: Mapping[str, str]) -> Here:
    """As the environment tells. A shell of salloc on a login host stands in no job."""
    job = environ.get("SLURM_JOB_ID", "") if environ.get("SLURMD_NODENAME") else ""
    return Here(node_name(environ), job)


class _Shared:
    """ssh for several sources."""

    def __init__(self, ssh: SshTransport) -> None:
        self.name, self.lacks, self.open = ssh.name, ssh.lacks, ssh.open

    def close(self) -> None:
        """Left to `AvailableTransports.close`."""


class AvailableTransports:
    """The transports for one attach. With `via` only that one, else all of them, with fallback.

    login: `[USER@]HOST` where the Slurm commands run and through which the nodes are reached.
    is_shared: by several sources, none of which closes the connections of the others.
    """

    def __init__(
        self, prompter: Prompter, here: Here, *, via: str | None = None, login: str | None = None,
        answers: Answers | None = None, site: Callable[[Job], Transport | None] | None = None,
    ) -> None:  # fmt: skip
        """`answers`: of Slurm's commands, shared with other programs. `site`: what the site itself
        measures of a job, without an agent.
        """
        self.is_shared = False
        self._here = here
        self._via = via
        self._login = login
        self._answers = answers
        self._site = site
        self._pauses = Pauses()
        self.ssh = SshTransport(prompter, login)
        self.openssh = OpensshTransport(login)

    def for_jobs(self, jobs: Sequence[Job]) -> Mapping[str, Transports]:
        """The transports of each part; nodes of one component share one, and so one srun."""
        prefer = None if self._via else self._prefer
        shared = {job.raw_id: Transports(self._transports(job), prefer) for job in jobs}
        return {part.name: shared[part.job.raw_id] for part in parts_of(jobs)}

    def close(self) -> None:
        """Only where they are shared."""
        self.ssh.close()

    def _transports(self, job: Job) -> list[Transport]:
        slurm = Slurm(self.runner, answers=self._answers)
        reachable = Reachable(slurm, lambda: self.runner, "python3" if self._login else "")
        room = JobRoom(job, slurm)

        def absent(nodes: Sequence[str]) -> Mapping[str, str]:
            full = room.lacking(nodes)
            left = [node for node in nodes if node not in full]
            return {**full, **(reachable.absent(left) if left else {})}

        sruns = [
            SrunTransport(
                job.het_job_id or job.raw_id,
                self._start_on_login if self._login else None,
                het_group=job.het_offset if job.het_job_id else None,
                gpus=gpus,
                absent=absent,
                refused=room.note,
                pauses=self._pauses,
            )
            for gpus in (True, False)
        ]
        if self._via == "srun":
            return [*sruns]
        scraped = self._site(job) if self._site is not None else None
        if self._via == "prometheus":
            if scraped is None:
                raise GpumonError(
                    "no Prometheus server is known; set GPUMON_PROMETHEUS_URL, or name it in the "
                    "site's file"
                )
            return [scraped]
        ssh = _Shared(self.ssh) if self.is_shared else self.ssh
        remote: list[Transport] = [ssh, self.openssh, *sruns]
        if self._via:
            return [each for each in remote if each.name == self._via]
        remote += [] if scraped is None else [scraped]
        remote.append(SstatTransport(job, slurm))
        if self._login:
            return remote
        in_job = self._here.job in (job.raw_id, job.het_job_id) and bool(self._here.job)
        return [LocalTransport(self._here.node, in_job=in_job), *remote]

    def _prefer(self, node: str) -> Attempt | None:
        """The system's ssh where paramiko could not log in; local stays first where it works."""
        try:
            attempt = preferred_transport(node, self._login)
        except Failure:
            return None  # the transports say the same in their turn
        return attempt if attempt is not None and attempt.name == "openssh" else None

    @property
    def runner(self) -> Runner:
        """Runs Slurm's commands: here, or on the login host. Raises Failure."""
        return LocalRunner() if self._login is None else self.on_login

    @property
    def on_login(self) -> SshTransport | OpensshTransport:
        """Runs commands on the login host. Raises Failure."""
        assert self._login is not None
        if self._via == "openssh":
            return self.openssh
        preferred = None if self._via else preferred_transport(self._login)
        return self.openssh if preferred and preferred.name == "openssh" else self.ssh

    def _start_on_login(self, argv: list[str]) -> Stream:
        """Starts srun where Slurm is, on the connection that its other commands use."""
        return self.on_login.open_login(with_profile(argv))
