"""Notifications for users who look elsewhere: each event once, from job states and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpumon.slurm.states import HELD_STATES

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding
    from gpumon.pipeline.array import WatchedArray
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.slurm.job import Job

#: before the time limit; the notice comes when it is crossed while gpumon watches
LEFT_S = 600.0
#: Slurm's figures vary by some seconds: from here on it may be crossed again, by a new limit
_AGAIN_S = LEFT_S + 60.0
MAX_TOLD = 1000  # findings of one job


class Notice(NamedTuple):
    """end: of the job, of an array the end of all tasks; task: one task of an array did not
    complete; time: ten minutes are left; finding: a critical one.
    """

    kind: Literal["end", "task", "time", "finding"]
    job: Job | None  # None: no job, the node is watched
    title: str = ""  # of the finding


#: polled now and then for news
Ask = Callable[[], "list[Notice]"]


class Notices:
    """Of one job, or of a node without one."""

    def __init__(self) -> None:
        self._was_open = False  # it was seen before its end
        self._was_early = False  # more than LEFT_S were left
        self._told: set[tuple[str, str]] = set()  # findings

    def new(self, job: Job | None, findings: Iterable[Finding], now: float) -> list[Notice]:
        """What has happened since the last call."""
        found = [] if job is None else [*self._end(job), *self._time(job, now)]
        for each in findings:
            key = (each.id, each.subject)
            if each.level == "critical" and key not in self._told and len(self._told) < MAX_TOLD:
                self._told.add(key)
                found.append(Notice("finding", job, each.title))
        return found

    def _end(self, job: Job) -> list[Notice]:
        ends = self._was_open and job.has_ended
        self._was_open = not job.has_ended and (self._was_open or bool(job.state))
        return [Notice("end", job)] if ends else []

    def _time(self, job: Job, now: float) -> list[Notice]:
        elapsed_s = job.elapsed_at(now)
        if not job.is_running or job.state in HELD_STATES or elapsed_s is None:
            return []
        left_s = (job.time_limit_s or 0.0) - elapsed_s
        if left_s > _AGAIN_S:
            self._was_early = True
        elif self._was_early and left_s <= LEFT_S:
            self._was_early = False
            return [Notice("time", job)]
        return []


class ArrayNotices:
    """Of an array: its end, tasks that did not complete, and notices of measured tasks."""

    def __init__(self) -> None:
        self._whole = Notices()
        self._tasks: dict[str, Notices] = {}  # of those that run, by id

    def new(
        self, whole: Job, tasks: Iterable[tuple[Job, Sequence[Finding]]], now: float
    ) -> list[Notice]:
        """What has happened since the last call; each task with its findings."""
        found = self._whole.new(whole, (), now)
        for job, findings in tasks:
            if not job.is_running and job.id not in self._tasks:
                continue
            for each in self._tasks.setdefault(job.id, Notices()).new(job, findings, now):
                if each.kind != "end":
                    found.append(each)
                elif job.state != "COMPLETED":
                    found.append(each._replace(kind="task"))
            if job.has_ended:
                del self._tasks[job.id]
        return found


def of_pipeline(pipeline: Pipeline) -> Ask:
    """Of what one pipeline shows."""
    notices = Notices()
    return lambda: notices.new(pipeline.job(), _findings(pipeline), pipeline.now())


def of_array(array: WatchedArray) -> Ask:
    """Of all tasks of an array."""
    notices = ArrayNotices()

    def ask() -> list[Notice]:
        followed = array.followed()
        tasks = ((job, _findings(followed.get(job.id))) for job in array.tasks())
        return notices.new(array.job(), tasks, array.now())

    return ask


def _findings(pipeline: Pipeline | None) -> Sequence[Finding]:
    evaluation = pipeline.evaluation if pipeline is not None else None
    return evaluation.findings if evaluation is not None else ()
