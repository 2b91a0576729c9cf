"""Slurm's own transport: one `srun --overlap` starts the agent on all nodes that need it.

It adds one step, named gpumon/agent, to the job's accounting. srun gives all tasks the same input
and joins their output, so the nodes' streams share one process: what they write is sent once, and
the agent names its node in front of every line (`gpumon.collect.labels`).

The step must leave no mark on the job. srun kills its tasks when it gets a signal, and the job then
has a DerivedExitCode of 0:9. So srun is never signalled: its input is closed, the agents end with
0, and srun with them, whenever that is and whether or not gpumon is still there. A step on a node
that does not answer ends with 0:105, so the nodes are looked at before each start. And steps are
few: those after the first start a minute apart, and ever more.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from gpumon.collect.labels import Joiner, addressed, end_line
from gpumon.errors import WireError
from gpumon.slurm.job import OWN_STEP
from gpumon.transport.intake import Lines
from gpumon.transport.local import ChildStream
from gpumon.transport.stream import Failure, Stream
from gpumon.wire import MAX_LINE_BYTES

#: how long the first node waits for others that are still on their way to this attempt
_GATHER_S = 15.0
#: a controller that does not answer holds srun for much longer than --immediate says
_START_S = 30.0
#: between the starts of two steps, twice as long after each within an hour
_PAUSE_S, _LONGEST_PAUSE_S, _HOUR_S = 60.0, 600.0, 3600.0
#: the same where Slurm refused the step
_REFUSED_S = 5.0
_REAP_S = 1.0  # for srun, when its output has ended
_NO_GPUS = "No GPUs: the job's own step holds them (srun --gres=none). Host and job are shown."
#: lines of one node that wait to be taken
MAX_WAITING_BYTES = 16 << 20
_LINE_BYTES = 64  # of any line, beside what it holds
_BRIEFLY_S = 0.2  # what `close` may take
_TOO_MUCH = "cut off: it sent more than could be read"
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_PREFIX = re.compile(r"^(srun|slurmstepd|slurmstepd-\S+): (error: )?")


def srun_argv(
    job_id: str,
    nodes: list[str],
    argv: list[str],
    het_group: int | None = None,
    *,
    gpus: bool = True,
) -> list[str]:
    """The command line. Each option answers for something that went wrong without it."""
    count = len(nodes)
    return [
        "srun",
        f"--jobid={job_id}",
        *([] if het_group is None else [f"--het-group={het_group}"]),
        "--overlap",  # shares what the job's own steps hold, GPUs included
        "--immediate=10",  # s that it may wait for resources
        *([] if gpus else ["--gres=none"]),  # waits for none, and may open none
        "--mem=0",  # reserves none: else it waits for the job's steps to free some
        f"--job-name={OWN_STEP}",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        f"--nodelist={','.join(nodes)}",
        "--cpu-bind=none",
        "--mpi=none",
        "--no-kill",  # a node that fails leaves the others alone
        "--kill-on-bad-exit=0",
        "--wait=0",  # so does an agent that ends
        "--chdir=/",
        "--quiet",
        *argv,
        "--label",
    ]


def srun_environment() -> dict[str, str]:
    """Ours without what a surrounding step would impose on the new one."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SRUN_")) or name in _KEPT
    }


class SrunProcess(ChildStream):
    """srun on this machine, which may outlive gpumon: it ends when its tasks have."""

    def _adopt(self) -> None:
        """It is never signalled."""

    def read(self) -> bytes:
        piece = super().read()
        if not piece:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_REAP_S)
        return piece

    def close(self) -> None:
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.close()


def _start_here(argv: list[str]) -> Stream:
    return SrunProcess(argv, srun_environment())


def _all_answer(nodes: Sequence[str]) -> Mapping[str, str]:
    return {}


class _Ticket:
    """A node that waits for its stream."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.opened: _NodeStream | Failure | None = None


class SrunTransport:
    """Opens nodes of one job, or of one component of a het job. Thread-safe.

    Without `gpus` it is the way for sites where a step waits for GPUs that the job's own step
    holds: it starts at once, and shows the host and the job but no GPU.
    """

    def __init__(
        self,
        job_id: str,
        start: Callable[[list[str]], Stream] | None = None,
        *,
        het_group: int | None = None,
        gpus: bool = True,
        absent: Callable[[Sequence[str]], Mapping[str, str]] = _all_answer,
        gather_s: float = _GATHER_S,
        start_s: float = _START_S,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """`start` runs srun where Slurm is, on the login host say; by default here.

        Of a het job `job_id` is the leader's, `het_group` the component's offset. `absent`: those
        of some nodes on which no step can start now, with the reasons; it may take seconds.
        """
        self.name = "srun" if gpus else "srun-host"
        self.lacks = "" if gpus else _NO_GPUS
        self._job_id = job_id
        self._gpus = gpus
        self._het_group = het_group
        self._start = start or _start_here
        self._absent = absent
        self._gather_s = gather_s
        self._start_s = start_s
        self._pause_s = pause_s
        self._news = threading.Condition()
        self._undecided: set[str] = set()
        self._waiting: dict[str, _Ticket] = {}
        self._is_starting = False
        self._closed = False
        self._started: list[tuple[float, list[_Launch]]] = []  # within the last hour
        self._launches: list[_Launch] = []

    def expect(self, nodes: Iterable[str]) -> None:
        """These may come; a launch waits for them for some seconds, so that there is one step."""
        with self._news:
            self._undecided.update(nodes)

    def settle(self, node: str) -> None:
        """This node came by another way, or does not come at all."""
        with self._news:
            self._undecided.discard(node)
            self._waiting.pop(node, None)
            self._news.notify_all()

    def open(self, node: str, argv: list[str]) -> Stream:
        ticket = _Ticket(argv)
        with self._news:
            self._undecided.discard(node)
            self._waiting[node] = ticket
            self._news.notify_all()
        gathered = time.monotonic() + self._gather_s
        while batch := self._wait(node, ticket, gathered):
            self._start_all(batch)
        if isinstance(ticket.opened, _NodeStream):
            return ticket.opened
        raise ticket.opened or Failure("another transport was faster")

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._waiting.clear()
            self._news.notify_all()
        for launch in self._launches:
            launch.close()

    def _wait(self, node: str, ticket: _Ticket, gathered: float) -> dict[str, _Ticket]:
        """Nodes to start now, for all who wait; none when this one's wait has ended."""
        with self._news:
            while ticket.opened is None and not self._closed:
                mine = self._waiting.get(node) is ticket
                if not mine and not self._is_starting:
                    return {}
                now = time.monotonic()
                due = max(self._earliest(now), gathered if self._undecided else 0.0)
                if mine and not self._is_starting and due <= now:
                    batch, self._waiting, self._is_starting = self._waiting, {}, True
                    return batch
                self._news.wait(max(due - now, 0.0) if mine and not self._is_starting else None)
            return {}

    def _earliest(self, now: float) -> float:
        """When the next step may start."""
        self._started = [each for each in self._started if now - each[0] < _HOUR_S]
        if not self._started:
            return 0.0
        at, last = self._started[-1]
        is_refused = all(launch.is_refused for launch in last)
        alike = sum(
            all(launch.is_refused for launch in each) is is_refused for _, each in self._started
        )
        pause_s = (_REFUSED_S if is_refused else self._pause_s) * 2.0 ** (alike - 1)
        return at + min(pause_s, _LONGEST_PAUSE_S)

    def _start_all(self, batch: Mapping[str, _Ticket]) -> None:
        """One step for all nodes that wait with the same command and answer."""
        groups: dict[tuple[str, ...], list[str]] = {}
        launches: list[_Launch] = []
        opened: dict[str, _NodeStream | Failure] = {}
        try:
            absent = self._absent(sorted(batch))
            opened.update((node, Failure(why)) for node, why in absent.items())
            for node in sorted(batch.keys() - absent.keys()):
                groups.setdefault(tuple(batch[node].argv), []).append(node)
            for argv, nodes in groups.items():
                try:
                    launches.append(self._launch(nodes, [*argv]))
                    opened.update(launches[-1].streams)
                except Failure as failure:
                    opened.update(dict.fromkeys(nodes, failure))
        finally:
            with self._news:
                if launches:
                    self._started.append((time.monotonic(), launches))
                for node, ticket in batch.items():
                    ticket.opened = opened.get(node) or Failure("no step was started")
                self._is_starting = False
                self._news.notify_all()

    def _launch(self, nodes: list[str], argv: list[str]) -> _Launch:
        command = srun_argv(self._job_id, nodes, argv, self._het_group, gpus=self._gpus)
        launch = _Launch(self._start(command), nodes, self._start_s)
        with self._news:
            self._launches = [each for each in self._launches if each.open_nodes] + [launch]
            closed = self._closed
        if closed:
            launch.close()
        return launch


class _Launch:
    """One running srun, and the streams of its nodes."""

    def __init__(self, stream: Stream, nodes: list[str], start_s: float) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._sent = 0
        self._start_s = start_s
        self._is_late = self._is_heard = False
        self.is_refused = False  # srun ended before any agent began
        self.streams = {node: _NodeStream(self, node) for node in nodes}
        self.open_nodes = set(nodes)
        self._timer = threading.Timer(start_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()
        # last: what ends at once needs all of the above
        threading.Thread(target=self._read, daemon=True, name="srun").start()

    def send(self, position: int, data: bytes) -> None:
        """Bytes for all tasks, from this position on; what was sent already is not sent again."""
        with self._lock:
            fresh = data[max(0, self._sent - position) :]
            self._sent += len(fresh)
            if fresh:
                self._stream.write(fresh)

    def say(self, node: str, line: bytes) -> None:
        """To the agent of one node; `_sent` counts what all tasks are sent alike."""
        with self._lock:
            if self._sent:  # all of the agent's modules, which come first
                self._stream.write(addressed(node, line))

    def leave(self, node: str) -> None:
        """One node's stream was closed: its agent ends, and with the last one srun."""
        self.open_nodes.discard(node)
        if not self.open_nodes:
            self.close()
        elif self._lock.acquire(timeout=_BRIEFLY_S):
            try:
                if self._sent:  # all of the agent's modules, which come first
                    self._stream.write(end_line(node))
            except OSError:
                pass  # srun has gone
            finally:
                self._lock.release()

    def close(self) -> None:
        self._timer.cancel()
        self._stream.close()
        for stream in self.streams.values():
            stream.put(b"")

    def complaint(self) -> str:
        late = f"no answer within {self._start_s:.3g} s" if self._is_late else ""
        return _PREFIX.sub("", self._stream.complaint()) or late

    def _read(self) -> None:
        with suppress(WireError):  # a line without end: the rest cannot be told apart either
            self._take_lines()
        self.is_refused = not self._is_heard and not self._is_late
        self.close()
        while self._stream.read():  # else srun would wait for somebody who does
            pass

    def _take_lines(self) -> None:
        joiner = Joiner(MAX_LINE_BYTES)
        lines = Lines()
        while data := self._stream.read():
            for line in lines.feed(data):
                piece = joiner.piece(line)
                stream = self.streams.get(piece[0]) if piece else None
                if piece and stream:
                    self._timer.cancel()
                    self._is_heard = True
                    stream.put(piece[1])

    def _give_up(self) -> None:
        self._is_late = True
        self.close()


class _NodeStream:
    """One node's share of a launch."""

    def __init__(self, launch: _Launch, node: str) -> None:
        self._launch = launch
        self._node = node
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._put_bytes = self._read_bytes = 0  # each changed by one thread only
        self._is_cut = False
        self._position = 0
        self._ended = self._closed = False

    def put(self, line: bytes) -> None:
        """A line for who reads this node; more than may wait cuts it off: the reader of all nodes
        must not wait for one.
        """
        if self._is_cut or self._closed:
            return
        self._is_cut = self._put_bytes - self._read_bytes > MAX_WAITING_BYTES
        self._put_bytes += len(line) + _LINE_BYTES
        self._lines.put(b"" if self._is_cut else line)

    def read(self) -> bytes:
        if self._ended:
            return b""
        line = self._lines.get()
        self._read_bytes += len(line) + _LINE_BYTES
        self._ended = not line
        return line

    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        self._launch.send(self._position, data)
        self._position += len(data)

    def say(self, line: bytes) -> None:
        self._launch.say(self._node, line)

    def close(self) -> None:
        self.put(b"")
        self._closed = True
        self._launch.leave(self._node)

    def complaint(self) -> str:
        return _TOO_MUCH if self._is_cut else self._launch.complaint()
