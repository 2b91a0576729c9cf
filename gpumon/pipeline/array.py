"""A job array: one query to Slurm serves all tasks, and some of them are measured.

A task that is measured has a pipeline of its own, as if it were attached to alone.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpumon.errors import GpumonError, NotFoundError
from gpumon.model import clock
from gpumon.model.view import Silence
from gpumon.slurm.groups import task_order
from gpumon.slurm.job import Job
from gpumon.sources.base import Sink
from gpumon.sources.watched import ASK_S

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline

#: agents at once; a task has one on each of its nodes
MAX_STREAMS = 64
#: tasks that have ended and whose samples are kept, the latest ones
KEPT_ENDED = 16
#: in place of a state: neither the controller nor the accounting has the task any more
GONE = "UNKNOWN"
#: tasks that are remembered: what has ended is forgotten first
MAX_TASKS = 20_000
#: a look at the answers of other threads; queries to Slurm are much rarer
_LOOK_S = 0.5
#: tasks that begin to be measured at one look: each may need a step of its own
_AT_ONCE = 8
_SPREAD = 1.2


class WatchedArray:
    """Knows the tasks, and follows as many of the running ones as there is room for.

    As a source it has no nodes of its own; as the source of a job it tells of the whole array.
    `look` asks Slurm for the tasks, of late or (True) as soon as is allowed, `past` the accounting
    for those that have ended; both may block and raise GpumonError. `follow` makes what measures
    a task.
    """

    name = "array"

    def __init__(
        self,
        id: str,
        jobs: Sequence[Job],
        look: Callable[[bool], Sequence[Job]],
        past: Callable[[], Sequence[Job]],
        follow: Callable[[Job], Pipeline],
        ask_s: float = ASK_S,
    ) -> None:
        self.id = id
        self._look = look
        self._past = past
        self._follow = follow
        self._ask_s = ask_s
        self._asking = threading.Lock()  # one question at a time
        self._lock = threading.Lock()  # of all below
        self._stopping = threading.Event()
        self._tasks: dict[str, Job] = {}  # by id; of those that wait together, one for all
        self._lost: set[str] = set()  # not named by Slurm's last answer, and had not ended
        self._followed: dict[str, Pipeline] = {}  # until some time after their ends
        self._news = ""
        self._refused = False  # a task could not be followed: then no more are
        self.asked_at = clock.now()  # when Slurm answered last
        self.silence: Silence | None = None  # as long as it does not answer
        self._know(jobs)

    # -- as a source

    def start(self, sink: Sink) -> None:
        """`sink` gets nothing: each task has one of its own."""
        self._follow_more()
        threading.Thread(target=self._watch, daemon=True, name="array").start()

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            followed, self._followed = dict(self._followed), {}
        _stop(followed.values())

    def now(self) -> float:
        return clock.now()

    # -- for the screen

    def job(self) -> Job:
        """The whole array as one job."""
        return whole(self.id, self.tasks())

    def tasks(self) -> list[Job]:
        """The tasks by number; those that wait together are one."""
        with self._lock:
            return list(self._tasks.values())

    def followed(self) -> dict[str, Pipeline]:
        """What is measured, by the task's id."""
        with self._lock:
            return dict(self._followed)

    def news(self) -> str:
        """A line that has not been shown yet, else ""."""
        news, self._news = self._news, ""
        return news

    def follow(self, id: str) -> Pipeline | None:
        """Measure this task, too, because the user wants it; None where it does not run."""
        with self._lock:
            job = self._tasks.get(id)
            if id not in self._followed and job is not None and job.is_running:
                self._begin(job)
            return self._followed.get(id)

    # -- asking Slurm, from the threads of the tasks and from our own

    def look(self, id: str, soon: bool) -> list[Job]:
        """One task as Slurm has it now. Raises NotFoundError and SlurmError."""
        self._ask(soon=soon)
        with self._lock:
            if id not in self._tasks or id in self._lost:
                raise NotFoundError(f"Slurm no longer lists job {id}")
            return [self._tasks[id]]

    def _ask(self, *, soon: bool) -> None:
        with self._asking:
            found = self._look(soon)
            if found:
                self.asked_at = min((job.told_at for job in found if job.told_at), default=0.0)
                self.silence = None
        self._know(found)

    def _know(self, found: Sequence[Job]) -> None:
        named = {job.id for job in found}
        with self._lock:
            kept = {
                id: job for id, job in self._tasks.items()
                if id not in named and not (job.is_pending and not job.array_task.isdigit())
            }  # fmt: skip
            self._lost = {id for id, job in kept.items() if not job.has_ended}
            kept.update((job.id, job) for job in found)
            self._set(kept)

    def _set(self, tasks: dict[str, Job]) -> None:
        """With the lock held."""
        ended = [id for id, job in tasks.items() if job.has_ended and id not in self._followed]
        for id in ended[: max(0, len(tasks) - MAX_TASKS)]:
            del tasks[id]
        self._tasks = dict(sorted(tasks.items(), key=lambda item: task_order(item[1])))

    # -- the watching thread

    def _watch(self) -> None:
        self._recall()
        wait_s = self._next_s()
        while not self._stopping.wait(_LOOK_S):
            wait_s -= _LOOK_S
            if wait_s <= 0:
                wait_s = self._next_s()
                try:
                    self._ask(soon=False)
                except GpumonError as error:
                    self.silence = Silence(self.asked_at, str(error))
                if self._lost:
                    self._recall()
            self._follow_more()
            self._forget_ended()

    def _next_s(self) -> float:
        return self._ask_s * random.uniform(1.0, _SPREAD)

    def _recall(self) -> None:
        """Tasks that the controller has dropped, from the accounting."""
        past = []
        with suppress(GpumonError):  # where there is none, the controller's answers are enough
            past = [job for job in self._past() if job.has_ended and job.array_job_id == self.id]
        with self._lock:
            new = [job for job in past if job.id not in self._tasks or job.id in self._lost]
            self._lost -= {job.id for job in new}
            tasks = self._tasks | {job.id: replace(job, steps=()) for job in new}
            gone = {id: replace(tasks[id], state=GONE, nodes=()) for id in self._lost}
            self._set(tasks | gone)

    def _follow_more(self) -> None:
        with self._lock:
            for job in to_follow(self._tasks.values(), self._followed)[:_AT_ONCE]:
                if not self._refused:
                    self._begin(job)

    def _begin(self, job: Job) -> None:
        if self._stopping.is_set():
            return
        try:
            pipeline = self._followed[job.id] = self._follow(job)
            pipeline.start()
            pipeline.evaluate()
        except (RuntimeError, GpumonError) as error:  # no more threads, say (ulimit -u)
            self._refused = True
            self._news = f"no more tasks are measured: {error}"

    def _forget_ended(self) -> None:
        """Only the samples of the last tasks that ended are kept."""
        with self._lock:
            ended = [job for id in self._followed if (job := self._tasks[id]).has_ended]
            ended.sort(key=lambda job: job.end or 0.0)
            gone = [self._followed.pop(job.id) for job in ended[:-KEPT_ENDED]]
        _stop(gone)


def _stop(pipelines: Iterable[Pipeline]) -> None:
    """Beside each other: each may need a moment for its files."""
    threads = [threading.Thread(target=each.stop, daemon=True) for each in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def to_follow(jobs: Iterable[Job], followed: Collection[str]) -> list[Job]:
    """Which running tasks to measure beside those that are: the latest first, while there is room.

    A task that is measured stays so; of tasks with many nodes at least one is.
    """
    running = [job for job in jobs if job.is_running and job.nodes]
    streams = sum(len(job.nodes) for job in running if job.id in followed)
    chosen = []
    others = (job for job in running if job.id not in followed)
    for job in sorted(others, key=lambda job: job.start or 0.0, reverse=True):
        if streams and streams + len(job.nodes) > MAX_STREAMS:
            break
        streams += len(job.nodes)
        chosen.append(job)
    return chosen


def whole(id: str, tasks: Sequence[Job]) -> Job:
    """An array as one job: it runs while any task does, and has ended when all have.

    Its state is then COMPLETED if that of all is, else the most frequent of the others, as far as
    they are known; its exit code is the highest.
    """
    if not tasks:
        return Job(raw_id=id, id=id)
    open_ = [job for job in tasks if not job.has_ended and job.state != GONE]
    if open_:
        state = "RUNNING" if any(job.is_running for job in open_) else "PENDING"
    else:
        bad = Counter(job.state for job in tasks if job.has_ended and job.state != "COMPLETED")
        known = all(job.has_ended for job in tasks)
        state = bad.most_common(1)[0][0] if bad else "COMPLETED" if known else GONE
    first = tasks[0]
    start = min((job.start for job in tasks if job.start is not None), default=None)
    end = max((job.end for job in tasks if job.end is not None), default=None)
    codes = [job.exit_code for job in tasks if job.exit_code is not None]
    return Job(
        raw_id=id, id=id, array_job_id=id, cluster=first.cluster, name=first.name, user=first.user,
        uid=first.uid, account=first.account, partition=first.partition, state=state, start=start,
        end=None if open_ else end,
        elapsed_s=None if open_ or start is None or end is None else end - start,
        exit_code=None if open_ else max(codes, default=None),
    )  # fmt: skip
