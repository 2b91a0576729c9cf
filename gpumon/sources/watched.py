"""A job through its life: Slurm is asked now and then, and the nodes it names are followed.

What an answer names is what is followed: after a requeue, with other nodes, grown or shrunk.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gpumon.errors import GpumonError, NotFoundError
from gpumon.model.sample import Header, JobContext
from gpumon.model.text import clean
from gpumon.model.view import Silence
from gpumon.slurm.job import Job, NodeAllocation
from gpumon.slurm.pace import LEAST_PERIOD_S
from gpumon.slurm.parts import parts_of
from gpumon.slurm.states import HELD_STATES
from gpumon.slurm.suspension import Suspensions
from gpumon.sources.attach import AttachSource, NodeTask
from gpumon.sources.base import Sink
from gpumon.transport.fallback import Transports

#: with the spread below, what changes in Slurm is seen within 15 s ...
ASK_S = 12.5
#: ... unless the job has waited for so long while it was watched, or has ended
SELDOM_S = 30.0
PENDING_FOR_S = 600.0
#: so long after its end a job may be put back into the queue: Slurm's default MinJobAge
ENDED_FOR_S = 300.0
#: so much longer at most, so that not all who watch ask at once
_SPREAD = 1.2
#: when no node tells anything any more, Slurm is asked so often: a job may need that long to end
_SOON_ASKS = 4
MAX_NEWS = 100  # sentences that nobody has read yet
#: the list of nodes is on its way to another one, or holds only those that are not done yet
_IN_TRANSIT = frozenset(("COMPLETING", "RESIZING"))


class WatchedJob(AttachSource):
    """A source of all nodes of a job (of a het job, of its components), and what is known of it.

    `look` asks Slurm for the jobs as they are now, of late or (True) as soon as is allowed; it may
    block and raise GpumonError. `ways` has the transports to each part of running jobs, of which
    those on the nodes `only` are followed; it may raise GpumonError. `explained` adds why a job was
    started again, and may block. `first`: what to follow until Slurm names others.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        look: Callable[[bool], Sequence[Job]],
        ways: Callable[[Sequence[Job]], Mapping[str, Transports]],
        interval_s: float,
        explained: Callable[[Job], Job] = lambda job: job,
        *,
        only: Sequence[str] = (),
        ask_s: float = SELDOM_S,
        first: Sequence[NodeTask] = (),
    ) -> None:
        super().__init__(first, interval_s)
        self._ahead_s: float | None = None  # our clock, of Slurm's, as the newest answer showed it
        self._look = look
        self._ways_of = ways
        self._only = only
        self._explained = explained
        self._ask_s = ask_s
        self._told = {job.raw_id: job for job in jobs}
        self._placed, _ = placed(self._told, {}, {})
        self._suspensions: dict[str, Suspensions] = {}  # by raw id
        self._jobs = self._on_our_clock(jobs)
        self._dark = threading.Event()  # no node is live any more: has the job ended?
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self.silence: Silence | None = None  # as long as Slurm does not answer

    # -- as a source

    def start(self, sink: Sink) -> None:
        super().start(sink)
        self._follow()
        threading.Thread(target=self._watch, daemon=True, name="slurm").start()

    def stop(self) -> None:
        super().stop()
        self._dark.set()

    def broke(self) -> None:
        """All nodes together are a sign that the job has ended."""
        if not self.stopping.is_set() and not any(run.live for run in self._runs.values()):
            self.ask_soon()

    def ask_soon(self) -> None:
        """Something may have happened: Slurm is asked as soon as it may be."""
        self._dark.set()

    # -- for the screen

    def job(self) -> Job | None:
        """The newest knowledge; of a het job, of its first component."""
        return self._jobs[0]

    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def news(self) -> str:
        """A line that has not been shown yet, else ""."""
        return self._news.popleft() if self._news else ""

    def _on_our_clock(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs of a new answer, with their times where the samples' are, however wrong our
        clock is, and with the time they were suspended.
        """
        known = [ahead_s for job in jobs if (ahead_s := job.ahead_s) is not None]
        self._ahead_s = min(known, key=abs, default=self._ahead_s)
        ours = [job.on_our_clock(self._ahead_s) for job in jobs]
        return [self._suspensions.setdefault(job.raw_id, Suspensions()).take(job) for job in ours]

    # -- the watching thread

    def _follow(self) -> None:
        """Have the nodes followed that are the job's now, and no others."""
        try:
            jobs = [job.on_our_clock(self._ahead_s) for job in self._placed.values()]
            self.follow(tasks_of(jobs, self._ways_of(jobs), self._only) if jobs else ())
        except GpumonError as error:
            self._news.append(str(error))

    def _watch(self) -> None:
        soon = 0  # so many questions are to follow each other as soon as is allowed
        phase, since = "", time.monotonic()
        while True:
            if phase != (phase := phase_of(self._jobs)):
                since = time.monotonic()
            lasts_s = time.monotonic() - since
            if phase == "ended" and lasts_s > ENDED_FOR_S:
                return
            period_s = min(period_for(phase, lasts_s), self._ask_s)
            period_s = min(period_s, LEAST_PERIOD_S) if soon else period_s
            if self._dark.wait(wait_s(period_s * random.uniform(1.0, _SPREAD), self._age_s())):
                self._dark.clear()
                soon = _SOON_ASKS
            if self.stopping.is_set():
                return
            self._ask(soon=period_s < SELDOM_S)
            soon = max(0, soon - 1)

    def _age_s(self) -> float:
        """Of the newest answer, which another program may have got."""
        return 0.0 if self.silence else self.now() - self._answered_at()

    def _answered_at(self) -> float:
        """When Slurm answered last."""
        told = (job.told_at for job in self._jobs if job.told_at is not None)
        return max(told, default=self.now())

    def _ask(self, *, soon: bool) -> None:
        try:
            found = list(self._look(soon))
        except NotFoundError:
            self.end("Slurm no longer lists the job")
            return
        except GpumonError as error:
            since = self.silence.since if self.silence else self._answered_at()
            self.silence = Silence(since, str(error))
            return
        self.silence = None
        if not found:
            return
        now = {job.raw_id: job for job in found}
        self._placed, is_again = placed(now, self._told, self._placed)
        self._told = now
        found = self._jobs = self._on_our_clock(found)
        if is_again:
            queued = all(job.is_pending for job in found)
            self.follow((), "the job was requeued" if queued else "the job has started again")
        self._follow()
        is_held = any(job.state in HELD_STATES for job in found)
        self.held = "the job is suspended" if is_held else ""
        if all(job.has_ended for job in found):
            self.end(f"the job has ended: {clean(found[0].state, 40)}")
        self._jobs = [self._explained(job) for job in found]


def phase_of(jobs: Sequence[Job]) -> str:
    """`ended` when all components have; `runs` when one is on its nodes; else `waits`."""
    if all(job.has_ended for job in jobs):
        return "ended"
    return "runs" if any(job.is_running or job.has_ended for job in jobs) else "waits"


def wait_s(period_s: float, age_s: float) -> float:
    """Seconds until the next question, a period after the answer that is so old by now."""
    return max(min(1.0, period_s), period_s - min(max(age_s, 0.0), LEAST_PERIOD_S))


def period_for(phase: str, lasts_s: float) -> float:
    """Seconds between questions about a job that is in this phase for so long by now."""
    is_slow = phase == "ended" or (phase == "waits" and lasts_s >= PENDING_FOR_S)
    return SELDOM_S if is_slow else ASK_S


def placed(
    now: Mapping[str, Job], told: Mapping[str, Job], before: Mapping[str, Job]
) -> tuple[dict[str, Job], bool]:
    """The components of a job (of a plain job, one) that are on nodes now, and whether that is
    another attempt of the job than before; all by raw id.

    `now`: Slurm's newest answer, `told`: the one before, each with its times as Slurm gave them;
    `before`: as they were placed until now. Answers are seconds apart, so what lies between is
    inferred: a job that runs now and ran before may have been through the queue meanwhile.
    """
    again = any(not job.is_same_attempt(told[id]) for id, job in now.items() if id in told)
    found = {}
    for id, job in now.items():
        known = None if again else before.get(id)
        is_in_transit = job.state in _IN_TRANSIT and id in told  # also back into the queue
        if job.is_running and job.nodes and not is_in_transit:
            known = job
        elif not (is_in_transit or job.is_running or job.has_ended):
            known = None
        if known is not None:
            found[id] = known
    return found, again


def tasks_of(
    jobs: Sequence[Job], ways: Mapping[str, Transports], only: Sequence[str] = ()
) -> list[NodeTask]:
    """What the nodes' agents are told, and what Slurm adds to what they tell; `ways`: by part."""
    tasks = []
    for name, job, node in parts_of(jobs, only):
        share = next((share for share in job.allocations if share.node == node), None)
        names = tuple(name for name in (job.raw_id, job.sluid) if name)
        gpus = share.gpus if share is not None else None
        shares = f"Component {job.id} also runs on {node}"
        notes = [] if name == node else [f"{shares}; figures of the host cover all components."]
        complete = partial(_completed, job, share, notes)
        tasks.append(NodeTask(node, names, gpus, complete, name, ways[name]))
    return tasks


def _completed(job: Job, share: NodeAllocation | None, notes: list[str], header: Header) -> Header:
    """With what Slurm knows of the job, beside what the node's own environment tells."""
    known = ("name", "user", "account", "partition", "cluster", "start", "end", "restarts")
    told = {name: getattr(job, name) for name in known} | {
        "id": job.raw_id,
        "nodes": job.node_list,
        "node_count": len(job.nodes),
        "array": f"{job.array_job_id}_{job.array_task}" if job.array_task else "",
        "cpus": share and share.cpus,
        "gpus": share and share.gpus,
    }
    told = {name: value for name, value in told.items() if value is not None and value != ""}
    own = header.job or JobContext(job.raw_id)  # whose limit of memory is the one that kills
    # the agent's step is not the job's
    whole = own._replace(**told, step="", own_step=False, source="slurm")
    return header._replace(job=whole, notes=[*header.notes, *notes])
