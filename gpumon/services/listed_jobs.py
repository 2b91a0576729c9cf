"""A user's running and recent jobs as Slurm lists them, look after look, for as few questions."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.slurm.client import SACCT_PERIOD_S, AccountingOffError, Slurm
from gpumon.slurm.job import Job
from gpumon.slurm.runner import SlurmError


class ListedJobs:
    """The first look asks the controller and the accounting, each later one only one of them.

    `trouble` is why ended jobs are missing, in a sentence; `unread` says how many rows could not be
    read; `has_accounting` is whether there is one. Used by one thread.
    """

    def __init__(self, slurm: Slurm, user: str, since: str, now: Callable[[], float]) -> None:
        """`since`: as `sacct -S` takes it."""
        self.trouble = ""
        self.unread = ""
        self.has_accounting = True
        self.cluster = ""
        self._slurm = slurm
        self._user = user
        self._since = since
        self._now = now
        self._queued: dict[str, Job] = {}
        self._past: dict[str, Job] = {}  # by raw id; also those that ended in the queue
        self._past_at: float | None = None
        self._gone: list[str] = []  # have left the queue, and the accounting has no end of them

    def look(self) -> list[Job]:
        """Raises SlurmError where the controller does not answer."""
        if self._past_at is None:
            self._ask_controller()
            self._ask_accounting()
            self.cluster = self._name_of_cluster()
        elif self._gone and self.has_accounting:
            self._ask_about(self._gone)
        elif self.has_accounting and self._now() - self._past_at >= SACCT_PERIOD_S:
            self._ask_accounting()
        else:
            self._ask_controller()
        self._gone = [
            job.raw_id
            for job in self._past.values()
            if not job.has_ended and job.raw_id not in self._queued
        ]
        queued = [_joined(job, self._past.get(job.raw_id)) for job in self._queued.values()]
        hidden = {*self._queued, *self._gone}
        return queued + [job for id, job in self._past.items() if id not in hidden]

    @property
    def told_at(self) -> float | None:
        """When the controller gave its newest answer, perhaps to another program; None: no job."""
        return max((job.told_at for job in self._queued.values() if job.told_at), default=None)

    def _ask_controller(self) -> None:
        found = self._slurm.queue(user=self._user, states=["all"])
        self._past.update({id: job for id, job in self._queued.items() if job.has_ended})
        self._queued = {job.raw_id: job for job in found}

    def _ask_accounting(self) -> None:
        self._past_at = self._now()
        try:
            found = self._slurm.accounted(user=self._user, since=self._since)
        except AccountingOffError as error:
            self.has_accounting = False
            self.trouble = f"{error}; of ended jobs, only recorded ones are listed"
        except SlurmError as error:
            self.trouble = f"ended jobs are not listed: {error}"
        else:
            self.trouble, self.unread = "", str(found.unread)
            self._past = {job.raw_id: job for job in found.jobs}

    def _ask_about(self, ids: list[str]) -> None:
        """Of jobs that left the queue within the accounting's period: how they ended."""
        try:
            found = {job.raw_id: job for job in self._slurm.jobs(ids)}
        except SlurmError:
            found = {}
        for id in ids:
            ended = found.get(id)
            if ended is not None and ended.has_ended:
                self._past[id] = ended
            else:  # nothing more is known until the next full query of the accounting
                del self._past[id]

    def _name_of_cluster(self) -> str:
        known = [job.cluster for job in self._past.values() if job.cluster]
        if known:
            return known[0]
        try:
            return self._slurm.config().cluster
        except SlurmError:
            return ""


def _joined(job: Job, past: Job | None) -> Job:
    """The controller's view of a job, with what the accounting adds to it."""
    if past is None or not past.submit or not job.submit or abs(past.submit - job.submit) > 1:
        return job
    return past.merged(job) if past.has_ended else job.merged(past)
