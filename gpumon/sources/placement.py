"""Where a job is: on which nodes each of its components runs, by Slurm's answers so far.

Answers are seconds apart, so what lies between is inferred: a job that runs now and ran before may
have been through the queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.slurm.job import Job

#: the list of nodes is on its way to another one, or holds only those that are not done yet
_IN_TRANSIT = frozenset(("COMPLETING", "RESIZING"))


class Placement:
    """The components of a job (of a plain job, one), each with the nodes that are its own now.

    started_again: whether the newest answer is of another attempt than the one before.
    """

    def __init__(self) -> None:
        self._told: dict[str, Job] = {}  # by raw id
        self._placed: dict[str, Job] = {}  # by raw id; those that have nodes
        self.started_again = False

    def take(self, told: Iterable[Job]) -> None:
        """Slurm's newest answer, with its times as Slurm gave them."""
        now = {job.raw_id: job for job in told}
        self.started_again = any(
            not job.is_same_attempt(self._told[id]) for id, job in now.items() if id in self._told
        )
        before = {} if self.started_again else self._placed
        placed = {id: _placed(job, before.get(id), self._told.get(id)) for id, job in now.items()}
        self._placed = {id: job for id, job in placed.items() if job is not None}
        self._told = now

    @property
    def jobs(self) -> list[Job]:
        """The components that are on nodes, as Slurm told of them when they were last placed."""
        return list(self._placed.values())


def _placed(job: Job, before: Job | None, told: Job | None) -> Job | None:
    """The component as it is, or was last known to be, on its nodes; None where it is on none.

    `before`: as it was placed in this attempt; `told`: the last answer, also of an attempt before.
    """
    if job.state in _IN_TRANSIT and told is not None:  # also on its way back into the queue
        return before
    if job.is_running and job.nodes:
        return job
    return before if job.is_running or job.has_ended else None
