"""All nodes of a job at once: a thread per node climbs the ladder, follows, and starts again.

A node that is lost is marked and tried again with back-off; the others go on. What was not
measured meanwhile stays a gap.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from gpumon.collect.jobdevices import leaves
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Header
from gpumon.model.view import Status
from gpumon.sources.base import Sink
from gpumon.sources.follow import Follower, Outcome
from gpumon.sources.ladder import Climb, Ladder
from gpumon.sources.local import BACK_OFF_S
from gpumon.sources.ship import ship_argv
from gpumon.sources.stream import Failure, Launcher, Rung, Stream

#: the agent ends when it heard nothing for 45 s
HEARTBEAT_S = 10.0
#: a stream without a line for so long is a connection that is gone
_SILENCE_S = 30.0
_SILENT_INTERVALS = 6
#: a stream that held so long begins its back-off anew
_STEADY_S = 60.0
_STOP_S = 0.4


class NodeTask(NamedTuple):
    """What to follow on a node, and what the agent is told about it."""

    node: str  # by its NodeName
    names: tuple[str, ...]  # of the job there: its raw id, its SLUID
    gpus: int | None = None  # of the job on this node
    complete: Callable[[Header], Header] = lambda header: header
    part: str = ""  # its name on the screen, where that is not the node's

    @property
    def name(self) -> str:
        return self.part or self.node


class AttachSource:
    """Brings the samples of all nodes of a job to a sink; a Source."""

    name = "attach"

    def __init__(
        self,
        tasks: Collection[NodeTask],
        ladder: Ladder | Mapping[str, Ladder],
        interval_s: float,
    ) -> None:
        """`ladder`: one for all tasks, or each's by name, as components of a het job need."""
        ladders = ladder if isinstance(ladder, Mapping) else {task.name: ladder for task in tasks}
        self._ladders = {id(each): each for each in ladders.values()}
        self._runs = {
            task.name: _NodeRun(task, ladders[task.name], interval_s, self) for task in tasks
        }
        self.stopping = threading.Event()
        self.when_dark: Callable[[], None] = lambda: None  # no node is live any more
        self.held = ""  # why trying again makes no sense now: the job is suspended

    def start(self, sink: Sink) -> None:
        for ladder in self._ladders.values():
            runs = [run for run in self._runs.values() if run.ladder is ladder]
            ladder.expect([run.task.node for run in runs])
        for name, run in self._runs.items():
            sink.status(name, Status("connecting", self.now(), "", ""))
            threading.Thread(target=run.run, args=(sink,), daemon=True, name=name).start()
        threading.Thread(target=self._keep, daemon=True, name="heartbeats").start()

    def stop(self) -> None:
        if self.stopping.is_set():
            return
        self.stopping.set()
        closing = threading.Thread(target=self._close, daemon=True, name="close")
        closing.start()
        closing.join(_STOP_S)

    def _close(self) -> None:
        """End all streams. In threads, as one may hang; of a thousand, to start them takes long."""
        closers = [run.close for run in self._runs.values()] + [self._close_ladders]
        threads = [threading.Thread(target=close, daemon=True) for close in closers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def now(self) -> float:
        return clock.now()

    def end(self, text: str) -> None:
        """The job has ended, as Slurm says: a lost node cannot tell."""
        for run in self._runs.values():
            run.end(text)

    def broke(self) -> None:
        """A live node is no longer: all together is a sign that the job has ended."""
        if not self.stopping.is_set() and not any(run.live for run in self._runs.values()):
            self.when_dark()

    @property
    def over(self) -> bool:
        """No node is followed or tried any more."""
        return all(run.over.is_set() for run in self._runs.values())

    def rungs(self, node: str) -> list[Rung]:
        """The way that was taken to a node, then those that were refused, with reasons."""
        return self._runs[node].climb.rungs

    def commands(self, node: str) -> list[str]:
        """What people may run to see why a way to the node was refused, or to mend it."""
        return self._runs[node].climb.commands

    def _close_ladders(self) -> None:
        for ladder in self._ladders.values():
            ladder.close()

    def _keep(self) -> None:
        """Heartbeats to all agents; streams that fell silent are closed, and so tried again."""
        while not self.stopping.wait(HEARTBEAT_S) and not self.over:
            for run in self._runs.values():
                run.keep()


class _NodeRun:
    """One node, in a thread of its own."""

    def __init__(
        self, task: NodeTask, ladder: Ladder, interval_s: float, source: AttachSource
    ) -> None:
        self.task = task
        self.ladder = ladder
        self._source = source
        self.climb: Climb = ladder.climb(task.node)
        self.over = threading.Event()  # the job has ended here, or nothing more can be tried
        self._ended = ""
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._loaded = False
        self._follower: Follower | None = None
        self._axis = Axis(ours=True)
        self._live_at: float | None = None
        self.live = False
        flags = ["--interval", f"{interval_s:g}", "--heartbeat", "--job", ",".join(task.names)]
        if task.gpus is not None:
            flags += ["--gpus", str(task.gpus)]
        self._argv = ship_argv(*flags)

    # -- the node's thread

    def run(self, sink: Sink) -> None:
        self._sink = sink
        try:
            self._run(sink)
        except Exception as error:  # a mistake of ours: said, and the other nodes go on
            self._say(sink, "lost", f"internal error: {type(error).__name__}: {error}")
        self.ladder.settle(self.task.node)
        self.over.set()
        if self._ended:
            self._say(sink, "ended", self._ended)

    def _run(self, sink: Sink) -> None:
        attempt = 0
        while not self._done:
            self._live_at = None
            outcome = self._round(sink)
            self.ladder.settle(self.task.node)
            if self.live:
                self.live = False
                self._source.broke()
            if outcome.kind == "ended":
                self._ended = self._ended or outcome.text
            if self._done:
                break
            if self._live_at is not None and time.monotonic() - self._live_at > _STEADY_S:
                attempt = 0
            if not self.climb.again():
                self._say(sink, "lost", outcome.text)
                break
            wait_s = BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)]
            attempt += 1
            when = self._source.held or f"trying again in {wait_s:.0f} s"
            self._say(sink, "lost", f"{outcome.text}; {when}")
            self._pause(wait_s * random.uniform(1.0, 1.3))

    def _round(self, sink: Sink) -> Outcome:
        """Up the ladder until a stream was live and ended, or nothing is left to try."""
        while (launcher := self.climb.next()) is not None and not self._done:
            self._say(sink, "connecting", self.climb.refusals, launcher.name)
            try:
                stream = launcher.open(self.task.node, self._argv)
            except Failure as failure:
                self.climb.refuse(launcher, failure)
                continue
            begin = partial(self._begin, sink, launcher)
            complete = partial(self._complete, launcher)
            follower = Follower(
                self.task.name, sink, complete, begin, lambda: self._done, self._axis
            )
            outcome = self._follow(stream, follower)
            if outcome.kind in ("lost", "ended"):
                return outcome
            if outcome.kind == "refused":
                self.climb.refuse(launcher, Failure(outcome.text, final=outcome.final))
        return Outcome("lost", self.climb.refusals or "no way to this node")

    def _begin(self, sink: Sink, launcher: Launcher, header: Header) -> bool:
        """Whether this way will do: the agent stands in the right job, or sees it from outside."""
        missing = header.driver and (self.task.gpus or 0) > len(leaves(header.devices))
        if missing and self.climb.set_aside(launcher, "outside the job: only GPUs in use are seen"):
            return False
        self._live_at, self.live = time.monotonic(), True
        self.climb.take(launcher)
        self.ladder.settle(self.task.node)
        self._say(sink, "live", self.climb.refusals)
        return True

    def _follow(self, stream: Stream, follower: Follower) -> Outcome:
        with self._lock:
            self._stream, self._follower, self._loaded = stream, follower, False
            late = self._done
        try:
            if late:  # told to stop while the stream was being opened
                return Outcome("ended", "")
            return follower.follow(stream, self._set_loaded)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _set_loaded(self) -> None:
        self._loaded = True

    def _complete(self, launcher: Launcher, header: Header) -> Header:
        blind = launcher.lacks and self.task.gpus and not header.devices
        if blind and launcher.lacks not in header.notes:
            # what an agent says of a driver that it must not open is of its way, not of the node
            header = header._replace(notes=[launcher.lacks])
        return self.task.complete(header._replace(node=self.task.node))

    def _say(self, sink: Sink, state: str, detail: str, source: str = "") -> None:
        if self._source.stopping.is_set():
            return
        taken = self.climb.taken
        source = source or (taken.name if taken is not None else "")
        sink.status(self.task.name, Status(state, self._source.now(), detail, source))

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._done and (time.monotonic() < until or self._source.held):
            self._source.stopping.wait(0.2)

    @property
    def _done(self) -> bool:
        return self._source.stopping.is_set() or bool(self._ended)

    # -- from other threads

    def keep(self) -> None:
        """A sign of life to the agent; without one from there, the connection is given up."""
        with self._lock:
            stream, follower, loaded = self._stream, self._follower, self._loaded
        if stream is None or follower is None or not loaded:
            return
        silence_s = max(_SILENCE_S, _SILENT_INTERVALS * max(self._interval_s, follower.interval_s))
        if clock.since_boot() - follower.last_line > silence_s:
            stream.close()
            return
        try:
            stream.write(b"\n")
        except OSError:
            pass  # its reader notices the same

    def end(self, text: str) -> None:
        """The job has ended, as Slurm says."""
        if self.over.is_set() and not self._ended:  # was given up
            self._say(self._sink, "ended", text)
        self._ended = self._ended or text
        self.close()

    def close(self) -> None:
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
