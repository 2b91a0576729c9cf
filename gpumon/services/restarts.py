"""Why a job was started again: how its attempt before ended, as the accounting has it."""

from __future__ import annotations

from dataclasses import replace

from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job, Past
from gpumon.slurm.runner import SlurmError

_RESIZED = "RESIZING"  # a record of the same attempt, from before the job grew or shrank


class Restarts:
    """Queries once for each restart; where there is no accounting, it stays unexplained."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._known: dict[str, tuple[int, Past]] = {}  # by raw id: of how many restarts

    def explained(self, job: Job) -> Job:
        """The job with the end of its attempt before, if it had one and that is known."""
        if not job.restarts:
            return job
        restarts, past = self._known.get(job.raw_id, (0, None))
        if restarts != job.restarts:
            past = self._ask(job, job.restarts)
            if past is not None:
                self._known[job.raw_id] = (job.restarts, past)
        return job if past is None else replace(job, past=past)

    def _ask(self, job: Job, restarts: int) -> Past | None:
        try:
            records = self._slurm.jobs([job.id or job.raw_id], duplicates=True)
            ended = [
                each
                for each in records
                if each.raw_id == job.raw_id and each.end is not None and each.state != _RESIZED
            ]
            if len(ended) < restarts:  # the last one has not arrived yet
                return None
            last = max(ended, key=lambda each: each.end or 0.0)
            return Past(last.state, tuple(self._failed(last)))
        except SlurmError:
            return None

    def _failed(self, last: Job) -> list[str]:
        """The nodes that failed: as the record says, else those of its nodes that are down."""
        if last.state != "NODE_FAIL" or last.failed_node:
            return [last.failed_node] if last.failed_node else []
        down = self._slurm.down_nodes(last.nodes)
        return [node for node in last.nodes if node in down]
