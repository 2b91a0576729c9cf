"""A job from before its start to its end: Slurm is asked now and then, its nodes are followed."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.errors import GpumonError, NotFoundError
from gpumon.model import clock
from gpumon.model.sample import Header, JobContext
from gpumon.model.text import clean
from gpumon.slurm.job import HELD_STATES, Job, NodeAllocation
from gpumon.slurm.pace import LEAST_PERIOD_S
from gpumon.sources.base import Sink
from gpumon.sources.stream import Rung
from gpumon.sources.supervisor import AttachSource, NodeTask

#: Slurm's man pages ask for no loops; this is the least that they leave
ASK_S = 30.0
#: for a job that waits: with the spread below, its start is seen within 15 s ...
PENDING_S = 12.5
#: ... unless it has waited for so long while it was watched
PENDING_FOR_S = 600.0
#: so much longer at most, so that not all who watch ask at once
_SPREAD = 1.2
#: when no node tells anything any more, Slurm is asked so often: a job may need that long to end
_SOON_ASKS = 4
MAX_NEWS = 100  # sentences that nobody has read yet


class WatchedJob:
    """A Source of all nodes of a job (of a het job, of its components), and what is known of it.

    `look` asks Slurm for the jobs as they are now, of late or (True) as soon as is allowed; it may
    block and raise GpumonError. `attach` makes the source of a running job's nodes.
    """

    name = "attach"

    def __init__(
        self,
        jobs: Sequence[Job],
        look: Callable[[bool], Sequence[Job]],
        attach: Callable[[Sequence[Job]], AttachSource],
        ask_s: float = ASK_S,
    ) -> None:
        self._ahead_s: float | None = None  # our clock, of Slurm's, as the newest answer showed it
        self._jobs = self._on_our_clock(jobs)
        self._look = look
        self._attach = attach
        self._ask_s = ask_s
        self._nodes: AttachSource | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._dark = threading.Event()  # no node is live any more: has the job ended?
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self._silent = False

    # -- as a source

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._follow()
        threading.Thread(target=self._watch, daemon=True, name="slurm").start()

    def stop(self) -> None:
        self._stopping.set()
        self._dark.set()
        with self._lock:
            nodes = self._nodes
        if nodes is not None:
            nodes.stop()

    def now(self) -> float:
        return clock.now()

    # -- for the screen

    def job(self) -> Job | None:
        """The newest knowledge; of a het job, of its first component."""
        return self._jobs[0]

    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def news(self) -> str:
        """A line that has not been told yet, else ""."""
        return self._news.popleft() if self._news else ""

    def rungs(self, node: str) -> list[Rung]:
        """Which way was taken to a node, and which were refused, with reasons."""
        return self._nodes.rungs(node) if self._nodes is not None else []

    def commands(self, node: str) -> list[str]:
        """What people may run to mend the ways that were refused."""
        return self._nodes.commands(node) if self._nodes is not None else []

    def _on_our_clock(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs with their times where the samples' are, however wrong our clock is."""
        known = [ahead_s for job in jobs if (ahead_s := job.ahead_s) is not None]
        self._ahead_s = min(known, key=abs, default=self._ahead_s)
        return [job.on_our_clock(self._ahead_s) for job in jobs]

    # -- the watching thread

    def _follow(self) -> None:
        """Begin with the nodes once the job runs."""
        with self._lock:
            if self._nodes is not None or self._stopping.is_set():
                return
            running = [job for job in self._jobs if job.is_running]
            if not running:
                return
            try:
                self._nodes = self._attach(running)
            except GpumonError as error:
                self._news.append(str(error))
                return
            self._nodes.when_dark = self._dark.set
            self._nodes.start(self._sink)

    def _watch(self) -> None:
        soon = 0  # so many questions are to follow each other as soon as is allowed
        waits_since: float | None = None
        while True:
            if any(job.is_running or job.has_ended for job in self._jobs):
                waits_since = None
            elif waits_since is None:
                waits_since = time.monotonic()
            waits_s = None if waits_since is None else time.monotonic() - waits_since
            period_s = min(
                self._ask_s, LEAST_PERIOD_S if soon else period_for(waits_s, self._ask_s)
            )
            if self._dark.wait(period_s * random.uniform(1.0, _SPREAD)):
                self._dark.clear()
                soon = _SOON_ASKS
            if self._stopping.is_set():
                return
            self._ask(soon=soon > 0 or period_s < self._ask_s)
            soon = max(0, soon - 1)
            if all(job.has_ended for job in self._jobs):
                return

    def _ask(self, *, soon: bool) -> None:
        try:
            found = list(self._look(soon))
        except NotFoundError:
            self._end("Slurm no longer knows the job")
            return
        except GpumonError as error:
            if not self._silent:
                self._news.append(f"{error}")
            self._silent = True
            return
        self._silent = False
        if not found:
            return
        found = self._jobs = self._on_our_clock(found)
        nodes = self._nodes
        if nodes is not None and all(job.is_pending for job in found):
            nodes.end("the job was put back into the queue")
            with self._lock:
                self._nodes = None  # it may start again on others
        self._follow()
        nodes = self._nodes
        if nodes is None:
            return
        nodes.held = (
            "the job is suspended" if any(job.state in HELD_STATES for job in found) else ""
        )
        if all(job.has_ended for job in found):
            self._end(f"the job has ended: {clean(found[0].state, 40)}")

    def _end(self, text: str) -> None:
        if self._nodes is not None:
            self._nodes.end(text)


def period_for(waits_s: float | None, ask_s: float = ASK_S) -> float:
    """Seconds between questions about a job that waits for so long by now (None: it does not)."""
    return PENDING_S if waits_s is not None and waits_s < PENDING_FOR_S else ask_s


class Part(NamedTuple):
    """A job's share of a node, under the name that it has on the screen."""

    name: str
    job: Job
    node: str


def parts_of(jobs: Sequence[Job], only: Sequence[str] = ()) -> list[Part]:
    """What there is to follow of the jobs (components of one het job), on all nodes or `only`.

    An agent speaks for one job. So of two components on one node each has an agent: the first
    under the node's name, the other as `node1+1`, by its offset.
    """
    found: dict[str, Part] = {}
    for job in jobs:
        for node in job.nodes:
            name = f"{node}+{job.het_offset or 0}" if node in found else node
            found[name] = Part(name, job, node)
    return [part for part in found.values() if not only or part.node in only]


def tasks_of(jobs: Sequence[Job], only: Sequence[str] = ()) -> list[NodeTask]:
    """What the nodes' agents are told, and what Slurm adds to what they tell."""
    tasks = []
    for name, job, node in parts_of(jobs, only):
        share = next((share for share in job.allocations if share.node == node), None)
        names = tuple(name for name in (job.raw_id, job.sluid) if name)
        gpus = share.gpus if share is not None else None
        notes = [] if name == node else [_beside(job, node)]
        tasks.append(NodeTask(node, names, gpus, _completer(job, share, notes), name))
    return tasks


def _beside(job: Job, node: str) -> str:
    return f"The share of component {job.id}, on {node} too; CPU and memory of the host are shared."


def _completer(
    job: Job, share: NodeAllocation | None, notes: Sequence[str] = ()
) -> Callable[[Header], Header]:
    """Adds what Slurm knows of the job to what the node's own environment tells."""

    def complete(header: Header) -> Header:
        own = header.job or JobContext(job.raw_id)
        told = JobContext(
            id=job.raw_id,
            name=job.name,
            user=job.user,
            account=job.account,
            partition=job.partition,
            cluster=job.cluster,
            nodes=job.node_list,
            node_count=len(job.nodes),
            array=f"{job.array_job_id}_{job.array_task}" if job.array_task else "",
            cpus=share.cpus if share is not None else None,
            mem_limit_bytes=own.mem_limit_bytes,  # the cgroup's is what kills
            gpus=share.gpus if share is not None else None,
            start=job.start,
            end=job.end,
            source="slurm",
        )
        filled = {
            name: getattr(own, name)
            for name, value in told._asdict().items()
            if (value is None or value == "") and name != "step"  # the agent's is not the job's
        }
        return header._replace(job=told._replace(**filled), notes=[*header.notes, *notes])

    return complete
