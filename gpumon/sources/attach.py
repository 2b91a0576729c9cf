"""All nodes of a job at once: each connects in a thread of its own, and again when it is lost.

A node that is lost is marked and tried again with back-off; the others continue. What was not
measured meanwhile stays a gap. The dashboard of this node alone is the same with one local node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gpumon.model import clock
from gpumon.model.sample import Sample
from gpumon.model.stack import Told
from gpumon.model.view import LEFT, Status
from gpumon.sources.attempt import beside
from gpumon.sources.base import Sink
from gpumon.sources.node_run import NodeRun, NodeTask, task_here
from gpumon.transport.fallback import Transports
from gpumon.transport.stream import Attempt
from gpumon.wire.stacks import request_line

#: the agent ends when it heard nothing for 45 s
HEARTBEAT_S = 10.0
#: nodes that tick together; of more, each has a second of its own in an interval that is so long
_TOGETHER = 64
_SPREAD_FROM_S = 2.0
_STOP_S = 0.4


def is_spread(nodes: int, interval_s: float) -> bool:
    """Whether so many nodes share the interval out rather than tick all at once."""
    return nodes > _TOGETHER and interval_s >= _SPREAD_FROM_S


class AttachSource:
    """Brings the samples of all nodes of a job to a sink; a Source."""

    name = "attach"

    def __init__(self, tasks: Sequence[NodeTask], interval_s: float) -> None:
        self.interval_s = interval_s
        self._first = tasks
        self._runs: dict[str, NodeRun] = {}  # replaced as a whole: other threads read it
        self._ways: set[Transports] = set()  # all that were ever used
        self.stopping = threading.Event()
        self.tell: Callable[[str, Told], None] = lambda name, told: None  # takes nodes' answers
        self.seen: Callable[[str, Sample], None] = lambda name, sample: None  # takes each sample
        self.held = ""  # why trying again makes no sense now: the job is suspended

    @classmethod
    def of_this_node(cls, node: str, interval_s: float) -> AttachSource:
        source = cls([task_here(node)], interval_s)
        source.name = "local"
        return source

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self.follow(self._first)
        threading.Thread(target=self._keep, daemon=True, name="heartbeats").start()

    def follow(self, tasks: Sequence[NodeTask], why: str = "no longer part of the job") -> None:
        """Follow these nodes and no others. Called by one thread at a time.

        A node whose share of the job is the same keeps its stream. One that is not among them is
        left (a state of its own: it is not lost), for the reason `why`; so is one whose share is
        another, which is then followed anew.
        """
        self._ways.update(task.transports for task in tasks)
        before, runs, new = self._runs, {}, []
        spread = is_spread(len(tasks), self.interval_s)
        for task in tasks:
            run = before.get(task.name)
            if run is not None and task.is_same_share(run.task):
                run.task = task.knowing(run.task)
            else:
                run = NodeRun(task, self, is_spread=spread)
                new.append(run)
            runs[task.name] = run
        self._runs = runs
        for name, run in before.items():
            if run is not runs.get(name):
                run.leave(why)
                self.sink.status(name, Status(LEFT, self.now(), why))
        for way in {run.task.transports for run in new}:
            way.expect([run.task.node for run in new if run.task.transports is way])
        for run in new:
            run.begin()

    def stop(self) -> None:
        if self.stopping.is_set():
            return
        self.stopping.set()
        if (closing := beside(self._close)) is not None:
            closing.join(_STOP_S)

    def _close(self) -> None:
        """End all streams. In threads, as one may hang; of a thousand, to start them takes long."""
        runs = self._runs.values()
        ways = {run.task.transports for run in runs}
        closers = [run.close for run in runs] + [way.close for way in ways]
        for thread in [beside(close) for close in closers]:
            if thread is not None:
                thread.join()

    def now(self) -> float:
        return clock.now()

    def end(self, text: str) -> None:
        """The job has ended, as Slurm says: a lost node cannot tell."""
        for run in self._runs.values():
            run.end(text)

    def broke(self) -> None:
        """A live node is no longer."""

    def attempts(self, node: str) -> list[Attempt]:
        """The transport that reached a node, then those that failed, with reasons."""
        return self._runs[node].fallback.attempts if node in self._runs else []

    @property
    def steps(self) -> int:
        """That were started in the job."""
        return sum(each.steps for each in self._ways)

    def ask_stacks(self, name: str, pid: int, how: str) -> bool:
        """Ask a node for the stack of a process, with 0 of each rank; `tell` gets the answers.

        False where no agent takes it. May block.
        """
        from gpumon.collect.stacks.pyspy import beside_python  # not before somebody asks

        run = self._runs.get(name)
        return run is not None and run.ask(request_line(pid, how, beside_python()))

    def _keep(self) -> None:
        """Heartbeats to all agents; streams that fell silent are closed, and so tried again."""
        while not self.stopping.wait(HEARTBEAT_S):
            for run in self._runs.values():
                run.keep()
