"""All nodes of a job at once: each connects in a thread of its own, and again when it is lost.

A node that is lost is marked and tried again with back-off; the others continue. What was not
measured meanwhile stays a gap. The dashboard of this node alone is the same with one local node.

A stream is followed by the thread that reads those of all nodes, if it has a descriptor to wait
for; where it ends, there is a thread of the node's own again. A transport that has not delivered
after some seconds stays open while the next one is tried beside it; the first that delivers the
right job wins, the others are closed.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gpumon.errors import shortage
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Header, Sample, leaves
from gpumon.model.stack import Told
from gpumon.model.view import LEFT, Status
from gpumon.sources.attempt import Attempt, beside, mistake
from gpumon.sources.base import Sink
from gpumon.transport import stream
from gpumon.transport.fallback import Fallback, Transports, has_twin
from gpumon.transport.local import LocalTransport
from gpumon.transport.payload import agent_argv, payload
from gpumon.transport.reading import STREAMS
from gpumon.transport.srun import SrunTransport
from gpumon.transport.stream import BACK_OFF_S, Failure, Stream, Transport
from gpumon.wire.stacks import request_line

#: the agent ends when it heard nothing for 45 s
HEARTBEAT_S = 10.0
#: nodes that tick together; of more, each has a second of its own in an interval that is so long
_TOGETHER = 64
_SPREAD_FROM_S = 2.0
_STOP_S = 0.4
#: a transport may take so long before the next one is tried beside it
_BESIDE_S = 5.0
#: a stream of srun's is listened to for so long: another one would be another step of the job
_KEPT_S = 120.0
#: a stream that held so long begins its back-off anew
_STEADY_S = 60.0


class NodeTask(NamedTuple):
    """What to follow on a node, what the agent is told about it, and the ways there."""

    node: str  # by its NodeName
    names: tuple[str, ...]  # of the job there: its raw id, its SLUID
    gpus: int | None = None  # of the job on this node
    complete: Callable[[Header], Header] = lambda header: header
    part: str = ""  # its name on the screen, where that is not the node's
    transports: Transports = Transports(())

    @property
    def name(self) -> str:
        return self.part or self.node

    def is_same_share(self, other: NodeTask) -> bool:
        """Whether an agent with the other task tells the same: of one job, on one node, of as many
        GPUs. What one of them does not know is no difference.
        """
        same_job = self.names[:1] == other.names[:1] or not (self.names and other.names)
        same_gpus = self.gpus == other.gpus or None in (self.gpus, other.gpus)
        return self.node == other.node and same_job and same_gpus


def task_here(node: str) -> NodeTask:
    """This node alone, whatever job it stands in."""
    return NodeTask(node, (), transports=Transports([LocalTransport(node)]))


class NodeRun:
    """One node, in a thread of its own or in that of all streams: in one at a time.

    A node may be followed anew under the same name, in the job's next attempt. What is still on its
    way from the run before must not mix with that, so nothing passes once a run is left.
    """

    def __init__(self, task: NodeTask, source: AttachSource, *, is_spread: bool = False) -> None:
        """`is_spread`: the node ticks at a second of the interval that depends on its name."""
        self.task = task
        self.interval_s = source.interval_s
        self.axis = Axis(ours=True)  # of all streams of the node
        self.fallback: Fallback = task.transports.fallback(task.node)
        self.over = threading.Event()  # the job has ended here, or nothing more can be tried
        self.live = False
        self._source = source
        self.ended = ""  # why: the job has, as the agent or Slurm says
        self._attempts: tuple[Attempt, ...] = ()  # replaced as a whole, by the node's thread
        self._tries = 0  # in a row that were not live for long
        self._waiting: Callable[[], None] | None = None  # for a thread, of which there was none
        self._reports: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._live_at: float | None = None
        self._lost: tuple[float, str] | None = None  # since when, and why, one that was live
        self._is_quiet = False
        self._passing = threading.Lock()
        self._is_left = False
        self._flags = ["--interval", f"{self.interval_s:g}", *(["--spread"] if is_spread else [])]
        self._flags += ["--job", ",".join(task.names)] if task.names else []
        self._flags += ["--gpus", str(task.gpus)] if task.gpus is not None else []

    # -- what its streams bring

    def header(self, transport: Transport, header: Header) -> None:
        """With what the stream does not know, its node's name first."""
        blind = transport.lacks and self.task.gpus and not header.devices
        if blind and transport.lacks not in header.notes:
            # what an agent says of a driver that it must not open is true of its transport only
            header = header._replace(notes=[transport.lacks])
        header = self.task.complete(header._replace(node=self.task.node))
        with self._passing:
            if not self._is_left:
                self._source.sink.header(self.task.name, header)

    def add(self, sample: Sample, received: float) -> None:
        with self._passing:
            if not self._is_left:
                self._source.seen(self.task.name, sample)
                self._source.sink.add(self.task.name, sample, received)

    def _status(self, status: Status) -> None:
        with self._passing:
            if not self._is_left:
                self._source.sink.status(self.task.name, status)

    def heard(self) -> None:
        if self._is_quiet:  # its silence is over
            self._set_live(True)

    def told(self, answer: Told) -> None:
        self._source.tell(self.task.name, answer)

    # -- the node's thread

    def begin(self) -> None:
        """Connect until a stream is followed in the thread of all streams, or nothing is left."""
        self._status(Status("connecting", self._source.now(), "", ""))
        self._start(None)

    def _start(self, last: Attempt | None) -> None:
        """In a thread of the node's own, after that attempt; where there can be none, `keep` tries
        again.
        """
        name = self.task.name
        thread = threading.Thread(target=self._run, args=(last,), daemon=True, name=name)
        try:
            thread.start()
            self._waiting = None
        except RuntimeError as error:
            self._waiting = partial(self._start, last)
            self._say("lost", shortage(error) or str(error))

    def _run(self, last: Attempt | None) -> None:
        try:
            why = last.outcome() if last is not None else None
            while why is None or self._tries_again(why):
                self._live_at = None
                found = self._round()
                why = self._follow(found) if isinstance(found, Attempt) else found
                if why is None:
                    return
        except Exception as error:  # a mistake of ours: said, and the other nodes continue
            self._say("lost", mistake(error))
        self.task.transports.settle(self.task.node)
        self.over.set()
        if self.ended:
            self._say("ended", self.ended)

    def _tries_again(self, why: str) -> bool:
        """Whether to connect anew after this; waits until it is time to."""
        self._attempts = ()
        self.task.transports.settle(self.task.node)
        self._set_live(False)
        if self._live_at is not None:
            self._lost = self._lost or (self._source.now(), why)
        if self.is_done:
            return False
        if self._live_at is not None and time.monotonic() - self._live_at > _STEADY_S:
            self._tries = 0
        if not self.fallback.again():
            self._say("lost", why)
            return False
        wait_s = BACK_OFF_S[min(self._tries, len(BACK_OFF_S) - 1)]
        self._tries += 1
        when = self._source.held or f"trying again in {wait_s:.0f} s"
        self._say("lost", f"{why}; {when}")
        self._pause(wait_s * random.uniform(1.0, 1.3))
        self.task.transports.expect([self.task.node])
        return True

    def _round(self) -> Attempt | str:
        """Try the transports, the next beside a slow one, until one delivers; or why none does."""
        self._reports = queue.SimpleQueue()
        try:
            while not self.is_done:
                if not self._try_next() and not self._attempts:
                    break
                slow = [each.waited_s() >= _BESIDE_S for each in self._attempts]
                try:  # until one is slow, look around now and then
                    attempt = self._reports.get(timeout=None if all(slow) else 0.5)
                except queue.Empty:
                    continue
                if attempt is None:
                    continue
                self._attempts = tuple(each for each in self._attempts if each is not attempt)
                if attempt.header is None:
                    self.fallback.refuse(attempt.transport, attempt.failure or Failure(""))
                elif self._takes(attempt.transport, attempt.header):
                    return attempt
                else:
                    attempt.close()
        finally:
            self.task.transports.settle(self.task.node)
            for each in self._attempts:  # that lost
                beside(each.close)  # which may take a while
            self._attempts = ()
        return self.fallback.refusals or "no transport reaches this node"

    def _try_next(self) -> bool:
        """Begin with the next transport, if there is one, and time for it."""
        trying = [each.transport for each in self._attempts]
        if any(
            each.waited_s() < _BESIDE_S and not has_twin(each.transport, trying)
            for each in self._attempts
        ):
            return False
        transport = self.fallback.next(trying)
        if transport is None:
            return False
        self._say("connecting", self.fallback.refusals, transport.name)
        attempt = Attempt(transport, self)
        self._attempts = (*self._attempts, attempt)
        attempt.run(self._reports.put)
        return True

    def open(self, transport: Transport) -> tuple[Stream, bytes]:
        """A stream, and what is to be sent first. Raises Failure."""
        if isinstance(transport, LocalTransport):
            return transport.open_agent(self._flags), b""
        argv = agent_argv("--heartbeat", *self._flags)
        return transport.open(self.task.node, argv), payload()

    def _takes(self, transport: Transport, header: Header) -> bool:
        """Whether this transport will do: whether the agent sees all GPUs of the job."""
        if header.driver and (self.task.gpus or 0) > len(leaves(header.devices)):
            why = "outside the job: only GPUs in use are visible"
            return not self.fallback.set_aside(transport, why)
        return True

    def _follow(self, attempt: Attempt) -> str | None:
        """Until its end, here; None: it goes on in the thread of all streams."""
        self._attempts = (attempt,)
        if self.is_done:  # `close` may have missed it
            attempt.close()
        self._live_at = time.monotonic()
        self.fallback.take(attempt.transport)
        self.task.transports.settle(self.task.node)
        self._set_live(True)
        is_on = attempt.take()
        if is_on and (descriptor := attempt.descriptor()) is not None:
            try:
                STREAMS.follow(descriptor, partial(self._take, attempt))
                return None
            except (RuntimeError, OSError):  # no thread, or no descriptor, to be had
                pass
        while is_on:
            is_on = attempt.take()
        return attempt.outcome()

    def _set_live(self, live: bool) -> None:
        was, self.live = self.live, live
        if live and not was:
            self._lost, self._is_quiet = None, False
            self._say("live", self.fallback.refusals)
        elif was and not live:
            self._source.broke()

    def _say(self, state: str, detail: str, source: str = "") -> None:
        """Tell how it fares. One that was live is lost until it is again, for the same reason."""
        if self._source.stopping.is_set():
            return
        taken = self.fallback.taken
        source = source or (taken.name if taken is not None else "")
        since = self._source.now()
        if self._lost is not None and state in ("connecting", "lost"):
            since, why = self._lost
            tries = f"trying {source}" if state == "connecting" else ""
            told = detail if detail.startswith(why) else "; ".join(filter(None, (why, detail)))
            state, detail = "lost", "; ".join(filter(None, (told, tries)))
        self._status(Status(state, since, detail, source))

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.is_done and (time.monotonic() < until or self._source.held):
            self._source.stopping.wait(0.2)

    @property
    def is_done(self) -> bool:
        return self._source.stopping.is_set() or bool(self.ended)

    # -- the thread of all streams

    def _take(self, attempt: Attempt) -> bool:
        """What the live stream brings next; at its end the node has a thread again."""
        try:
            if attempt.take():
                return True
        except Exception as error:
            attempt.give_up(mistake(error))
        if self._source.stopping.is_set():  # a thread for each of a thousand takes seconds
            self.over.set()
        else:
            self._start(attempt)
        return False

    # -- from other threads

    def keep(self) -> None:
        """Signs of life to the agents; a stream without one from there is given up."""
        if self._waiting is not None:
            self._waiting()
        for attempt in self._attempts:
            attempt.send()
            if self._source.held:  # the agent stands still with the job, and continues with it
                attempt.forgive()
            if silent_s := attempt.silent_s:
                self._silent(attempt, silent_s)

    def _silent(self, attempt: Attempt, silent_s: float) -> None:
        """Give it up. But one of srun's is listened to, as long as its agent may be there: what
        comes instead of it would be another step of the job.
        """
        why = f"no answer for {silent_s:.0f} s"
        kept = isinstance(attempt.transport, SrunTransport) and attempt.header is not None
        if not kept or silent_s > _KEPT_S:
            attempt.give_up(why)
        elif not self._is_quiet:
            self._is_quiet = True
            self._set_live(False)
            self._lost = self._source.now(), why
            self._say("lost", f"{why}; still listening")

    def ask(self, line: bytes) -> bool:
        """Send a request to the agent; False where none is followed. May block."""
        return self.live and any(each.send(line) for each in self._attempts)

    def leave(self, why: str) -> None:
        """The node is the job's no more: close it, in a thread, as a stream may hang."""
        with self._passing:
            self._is_left = True
        beside(lambda: self.end(why))

    def end(self, text: str) -> None:
        """The job has ended, as Slurm says."""
        if self.over.is_set() and not self.ended:  # was given up
            self._say("ended", text)
        self.ended = self.ended or text
        self.close()

    def close(self) -> None:
        self._reports.put(None)
        for attempt in self._attempts:
            attempt.close()


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
        self.ways: set[Transports] = set()  # all that were ever used
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
        self.ways.update(task.transports for task in tasks)
        before, runs, new = self._runs, {}, []
        spread = is_spread(len(tasks), self.interval_s)
        for task in tasks:
            run = before.get(task.name)
            if run is not None and task.is_same_share(run.task):
                known = run.task.gpus if task.gpus is None else task.gpus
                run.task = task._replace(gpus=known)
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

    def attempts(self, node: str) -> list[stream.Attempt]:
        """The transport that reached a node, then those that failed, with reasons."""
        return self._runs[node].fallback.attempts if node in self._runs else []

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
