"""A job through its life: Slurm is asked now and then, and the nodes it names are followed.

What an answer names is what is followed: after a requeue, with other nodes, grown or shrunk.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from gpumon.errors import GpumonError, NotFoundError
from gpumon.model import clock
from gpumon.model.stack import Told
from gpumon.model.text import clean
from gpumon.model.view import Silence
from gpumon.slurm.job import Job
from gpumon.slurm.pace import LEAST_PERIOD_S
from gpumon.slurm.states import HELD_STATES
from gpumon.slurm.suspension import Suspensions
from gpumon.sources.attach import NOTHING, AttachSource, Plan
from gpumon.sources.base import Sink
from gpumon.sources.placement import Placement
from gpumon.transport.stream import Attempt

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
_REQUEUED = "the job was requeued"
_STARTED_AGAIN = "the job has started again"


class WatchedJob:
    """A Source of all nodes of a job (of a het job, of its components), and what is known of it.

    `look` asks Slurm for the jobs as they are now, of late or (True) as soon as is allowed; it may
    block and raise GpumonError. `plan` names the nodes of running jobs, and the ways to them; it
    may raise GpumonError. `nodes` follows them. `explained` adds why a job was started again, and
    may block.
    """

    name = "attach"

    def __init__(
        self,
        jobs: Sequence[Job],
        look: Callable[[bool], Sequence[Job]],
        plan: Callable[[Sequence[Job]], Plan],
        nodes: AttachSource,
        explained: Callable[[Job], Job] = lambda job: job,
        ask_s: float = SELDOM_S,
    ) -> None:
        self._ahead_s: float | None = None  # our clock, of Slurm's, as the newest answer showed it
        self._look = look
        self._plan = plan
        self._nodes = nodes
        self._explained = explained
        self._ask_s = ask_s
        self._placement = Placement()
        self._placement.take(jobs)
        self._suspensions: dict[str, Suspensions] = {}  # by raw id
        self._jobs = self._on_our_clock(jobs)
        self._stopping = threading.Event()
        self._dark = threading.Event()  # no node is live any more: has the job ended?
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self.silence: Silence | None = None  # as long as Slurm does not answer

    # -- as a source

    def start(self, sink: Sink) -> None:
        self._nodes.when_dark = self._dark.set
        self._nodes.start(sink)
        self._follow()
        threading.Thread(target=self._watch, daemon=True, name="slurm").start()

    def stop(self) -> None:
        self._stopping.set()
        self._dark.set()
        self._nodes.stop()

    def now(self) -> float:
        return clock.now()

    def ask_soon(self) -> None:
        """Something may have happened: Slurm is asked as soon as it may be."""
        self._dark.set()

    def cost(self) -> str:
        """As `AttachSource.cost`."""
        return self._nodes.cost()

    def ask_stacks(self, name: str, pid: int, how: str) -> bool:
        """As `AttachSource.ask_stacks`."""
        return self._nodes.ask_stacks(name, pid, how)

    @property
    def tell(self) -> Callable[[str, Told], None]:
        """Takes nodes' answers."""
        return self._nodes.tell

    @tell.setter
    def tell(self, tell: Callable[[str, Told], None]) -> None:
        self._nodes.tell = tell

    # -- for the screen

    def job(self) -> Job | None:
        """The newest knowledge; of a het job, of its first component."""
        return self._jobs[0]

    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def news(self) -> str:
        """A line that has not been shown yet, else ""."""
        return self._news.popleft() if self._news else ""

    def attempts(self, node: str) -> list[Attempt]:
        """Which way was taken to a node, and which were refused, with reasons."""
        return self._nodes.attempts(node)

    def commands(self, node: str) -> list[str]:
        """What people may run to mend the ways that were refused."""
        return self._nodes.commands(node)

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
            placed = [job.on_our_clock(self._ahead_s) for job in self._placement.jobs]
            self._nodes.follow(self._plan(placed) if placed else NOTHING)
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
            if self._stopping.is_set():
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
            self._nodes.end("Slurm no longer lists the job")
            return
        except GpumonError as error:
            since = self.silence.since if self.silence else self._answered_at()
            self.silence = Silence(since, str(error))
            return
        self.silence = None
        if not found:
            return
        self._placement.take(found)
        found = self._jobs = self._on_our_clock(found)
        if self._placement.started_again:
            queued = all(job.is_pending for job in found)
            self._nodes.follow(NOTHING, _REQUEUED if queued else _STARTED_AGAIN)
        self._follow()
        is_held = any(job.state in HELD_STATES for job in found)
        self._nodes.held = "the job is suspended" if is_held else ""
        if all(job.has_ended for job in found):
            self._nodes.end(f"the job has ended: {clean(found[0].state, 40)}")
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
