"""All nodes of a job at once: each connects in a thread of its own, and again when it is lost.

A node that is lost is marked and tried again with back-off; the others continue. What was not
measured meanwhile stays a gap. The dashboard of this node alone is the same with one local node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from gpumon.errors import shortage
from gpumon.model import clock
from gpumon.model.stack import Told
from gpumon.model.view import LEFT, Status
from gpumon.sources.base import Sink
from gpumon.sources.cost import Cost
from gpumon.sources.gate import Gate
from gpumon.sources.node_run import NodeRun
from gpumon.sources.tasks import NodeTask
from gpumon.transport.fallback import Transports
from gpumon.transport.local import LocalTransport
from gpumon.transport.stream import Attempt
from gpumon.wire.stacks import request_line

#: the agent ends when it heard nothing for 45 s
HEARTBEAT_S = 10.0
#: nodes that tick together; of more, each has a second of its own in an interval that is so long
_TOGETHER = 64
_SPREAD_FROM_S = 2.0
_STOP_S = 0.4


class Plan(NamedTuple):
    """Which nodes to follow, and the transports to each, by the names of the tasks."""

    tasks: Collection[NodeTask]
    transports: Mapping[str, Transports]


#: follow no node
NOTHING = Plan((), {})


def is_spread(nodes: int, interval_s: float) -> bool:
    """Whether so many nodes share the interval out rather than tick all at once."""
    return nodes > _TOGETHER and interval_s >= _SPREAD_FROM_S


class _Followed(NamedTuple):
    """A node's run, and the gate through which it speaks."""

    run: NodeRun
    gate: Gate


class AttachSource:
    """Brings the samples of all nodes of a job to a sink; a Source."""

    name = "attach"

    @classmethod
    def of_this_node(cls, node: str, interval_s: float) -> AttachSource:
        """Of this node alone, whatever job it stands in."""
        source = cls([NodeTask(node, ())], Transports([LocalTransport(node)]), interval_s)
        source.name = "local"
        return source

    def __init__(
        self,
        tasks: Collection[NodeTask],
        transports: Transports | Mapping[str, Transports],
        interval_s: float,
    ) -> None:
        """`transports`: one for all tasks, or each's by name, as components of a het job need."""
        if isinstance(transports, Transports):
            transports = {task.name: transports for task in tasks}
        self._first = Plan(tasks, transports)
        self._interval_s = interval_s
        self._followed: dict[str, _Followed] = {}  # replaced as a whole: other threads read it
        self._ways: dict[int, Transports] = {}  # all that were ever used
        self._cost = Cost()
        self.stopping = threading.Event()
        self.when_dark: Callable[[], None] = lambda: None  # no node is live any more
        self.tell: Callable[[str, Told], None] = lambda name, told: None  # takes nodes' answers
        self.held = ""  # why trying again makes no sense now: the job is suspended

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self.follow(self._first)
        threading.Thread(target=self._keep, daemon=True, name="heartbeats").start()

    def follow(self, plan: Plan, why: str = "no longer part of the job") -> None:
        """Follow these nodes and no others. Called by one thread at a time.

        A node whose share of the job is the same keeps its stream. One that is not in the plan is
        left (a state of its own: it is not lost), for the reason `why`; so is one whose share is
        another, which is then followed anew.
        """
        self._ways.update((id(each), each) for each in plan.transports.values())
        tasks = {task.name: task for task in plan.tasks}
        before, kept = self._followed, {}
        for name, each in before.items():
            if name in tasks and tasks[name].is_same_share(each.run.task):
                each.run.task = tasks[name].knowing(each.run.task)
                kept[name] = each
        new = {
            name: _Followed(
                NodeRun(
                    task,
                    plan.transports[name],
                    self._interval_s,
                    self,
                    is_spread=is_spread(len(tasks), self._interval_s),
                ),
                Gate(self._sink, self._cost),
            )
            for name, task in tasks.items()
            if name not in kept
        }
        self._followed = {**kept, **new}
        for name in before.keys() - kept.keys():
            self._leave(name, before[name], why)
        self._begin(new)

    def _begin(self, new: Mapping[str, _Followed]) -> None:
        expected: dict[int, tuple[Transports, list[str]]] = {}
        for run, _ in new.values():
            nodes = expected.setdefault(id(run.transports), (run.transports, []))[1]
            nodes.append(run.task.node)
        for transports, nodes in expected.values():
            transports.expect(nodes)
        for name, (run, gate) in new.items():
            gate.status(name, Status("connecting", self.now(), "", ""))
            thread = threading.Thread(target=run.run, args=(gate,), daemon=True, name=name)
            try:
                thread.start()
            except RuntimeError as error:  # Slurm's next answer brings the node back
                self._followed = {n: each for n, each in self._followed.items() if n != name}
                gate.status(name, Status("lost", self.now(), shortage(error) or str(error)))

    def _leave(self, name: str, followed: _Followed, why: str) -> None:
        """Close a node that is the job's no more; in a thread, as a stream may hang."""
        followed.gate.shut()
        _beside(lambda: followed.run.end(why))
        self._sink.status(name, Status(LEFT, self.now(), why))

    def stop(self) -> None:
        if self.stopping.is_set():
            return
        self.stopping.set()
        if (closing := _beside(self._close)) is not None:
            closing.join(_STOP_S)

    def _close(self) -> None:
        """End all streams. In threads, as one may hang; of a thousand, to start them takes long."""
        closers = [run.close for run in self._runs] + [self._close_transports]
        for thread in [_beside(close) for close in closers]:
            if thread is not None:
                thread.join()

    def now(self) -> float:
        return clock.now()

    def end(self, text: str) -> None:
        """The job has ended, as Slurm says: a lost node cannot tell."""
        for run in self._runs:
            run.end(text)

    def broke(self) -> None:
        """A live node is no longer: all together is a sign that the job has ended."""
        if not self.stopping.is_set() and not any(run.live for run in self._runs):
            self.when_dark()

    def attempts(self, node: str) -> list[Attempt]:
        """The transport that reached a node, then those that failed, with reasons."""
        return self._followed[node].run.fallback.attempts if node in self._followed else []

    def commands(self, node: str) -> list[str]:
        """Commands that show why a transport failed, or mend it."""
        return self._followed[node].run.fallback.commands if node in self._followed else []

    def cost(self) -> str:
        """What this has cost the job so far, as one line; "" where that is not known."""
        return self._cost.line(sum(each.steps for each in self._ways.values()))

    def ask_stacks(self, name: str, pid: int, how: str) -> bool:
        """Ask a node for the stack of a process, with 0 of each rank; `tell` gets the answers.

        False where no agent takes it. May block.
        """
        from gpumon.collect.stacks.pyspy import beside_python  # not before somebody asks

        followed = self._followed.get(name)
        line = request_line(pid, how, beside_python())
        return followed is not None and followed.run.ask(line)

    @property
    def _runs(self) -> list[NodeRun]:
        return [each.run for each in self._followed.values()]

    def _close_transports(self) -> None:
        for transports in {id(run.transports): run.transports for run in self._runs}.values():
            transports.close()

    def _keep(self) -> None:
        """Heartbeats to all agents; streams that fell silent are closed, and so tried again."""
        while not self.stopping.wait(HEARTBEAT_S):
            for run in self._runs:
                run.keep()


def _beside(call: Callable[[], None]) -> threading.Thread | None:
    """The thread that runs this; None where there can be none (`ulimit -u`): then it was run."""
    thread = threading.Thread(target=call, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        call()
        return None
    return thread
