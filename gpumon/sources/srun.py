"""Slurm's own launcher: one `srun --overlap` starts the agent on all nodes that need it.

It adds one step, named gpumon, to the job's accounting. srun gives all tasks the same input and
joins their output, so the nodes' streams share one process: what they write is sent once, and
the agent names its node in front of every line (`gpumon.collect.labels`).
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Iterable

from gpumon.collect.labels import Joiner
from gpumon.sources.intake import Lines
from gpumon.sources.local import ChildStream
from gpumon.sources.stream import Failure, Stream
from gpumon.wire import MAX_LINE_BYTES

#: how long the first node waits for others that are still on their way to this rung
_GATHER_S = 15.0
#: a controller that does not answer holds srun for much longer than --immediate says
_START_S = 30.0
#: its tasks end with their input; killed before they have, it would leave them to their heartbeats
_PATIENCE_S = 1.0
_NO_GPUS = "GPUs n/a: held by the job's step (srun --gres=none); only host and job are shown."
#: lines of one node that wait to be taken
MAX_WAITING_BYTES = 16 << 20
_LINE_BYTES = 64  # of any line, beside what it holds
_TOO_MUCH = "cut off: it sent more than could be taken"
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
        "--job-name=gpumon",
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


def _start_here(argv: list[str]) -> Stream:
    return ChildStream(argv, srun_environment(), patience_s=_PATIENCE_S)


class SrunLauncher:
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
        gather_s: float = _GATHER_S,
        start_s: float = _START_S,
    ) -> None:
        """`start` runs srun where Slurm is, on the login host say; by default here.

        Of a het job `job_id` is the leader's, `het_group` the component's offset.
        """
        self.name = "srun" if gpus else "srun-host"
        self.lacks = "" if gpus else _NO_GPUS
        self._job_id = job_id
        self._gpus = gpus
        self._het_group = het_group
        self._start = start or _start_here
        self._gather_s = gather_s
        self._start_s = start_s
        self._news = threading.Condition()
        self._undecided: set[str] = set()
        self._waiting: dict[str, list[str]] = {}
        self._ready: dict[str, _NodeStream | Failure] = {}
        self._launches: list[_Launch] = []

    def expect(self, nodes: Iterable[str]) -> None:
        """These may come; a launch waits for them for some seconds, so that there is one step."""
        with self._news:
            self._undecided.update(nodes)

    def settle(self, node: str) -> None:
        """This node came by another way, or does not come at all."""
        with self._news:
            self._undecided.discard(node)
            self._news.notify_all()

    def open(self, node: str, argv: list[str]) -> Stream:
        with self._news:
            self._undecided.discard(node)
            self._waiting[node] = argv
            self._news.notify_all()
            self._news.wait_for(lambda: node in self._ready or not self._undecided, self._gather_s)
            if node not in self._ready:
                self._launch(argv)
            opened = self._ready.pop(node)
        if isinstance(opened, Failure):
            raise opened
        return opened

    def close(self) -> None:
        for launch in self._launches:
            launch.close()

    def _launch(self, argv: list[str]) -> None:
        """Start srun for all that wait with the same command; under the lock."""
        nodes = sorted(node for node, words in self._waiting.items() if words == argv)
        for node in nodes:
            del self._waiting[node]
        command = srun_argv(self._job_id, nodes, argv, self._het_group, gpus=self._gpus)
        try:
            launch = _Launch(self._start(command), nodes, self._start_s)
        except Failure as failure:
            self._ready.update(dict.fromkeys(nodes, failure))
        else:
            self._launches = [each for each in self._launches if each.open_nodes] + [launch]
            self._ready.update(launch.streams)
        self._news.notify_all()


class _Launch:
    """One running srun, and the streams of its nodes."""

    def __init__(self, stream: Stream, nodes: list[str], start_s: float) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._sent = 0
        self._heard = False
        self.streams = {node: _NodeStream(self, node) for node in nodes}
        self.open_nodes = set(nodes)
        threading.Thread(target=self._read, daemon=True, name="srun").start()
        timer = threading.Timer(start_s, self._give_up)
        timer.daemon = True
        timer.start()

    def send(self, position: int, data: bytes) -> None:
        """Bytes for all tasks, from this position on; what was sent already is not sent again."""
        with self._lock:
            fresh = data[max(0, self._sent - position) :]
            self._sent += len(fresh)
            if fresh:
                self._stream.write(fresh)

    def leave(self, node: str) -> None:
        """One node's stream was closed; the last one ends srun."""
        self.open_nodes.discard(node)
        if not self.open_nodes:
            self.close()

    def close(self) -> None:
        self._stream.close()
        for stream in self.streams.values():
            stream.put(b"")

    def complaint(self) -> str:
        return _PREFIX.sub("", self._stream.complaint())

    def _read(self) -> None:
        joiner = Joiner(MAX_LINE_BYTES)
        lines = Lines()
        while data := self._stream.read():
            for line in lines.feed(data):
                piece = joiner.piece(line)
                stream = self.streams.get(piece[0]) if piece else None
                if piece and stream:
                    self._heard = True
                    stream.put(piece[1])
        for stream in self.streams.values():
            stream.put(b"")

    def _give_up(self) -> None:
        if not self._heard:
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
        self._ended = False

    def put(self, line: bytes) -> None:
        """A line for who reads this node; more than may wait cuts it off: the reader of all nodes
        must not wait for one.
        """
        if self._is_cut:
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

    def write(self, data: bytes) -> None:
        self._launch.send(self._position, data)
        self._position += len(data)

    def close(self) -> None:
        self.put(b"")
        self._launch.leave(self._node)

    def complaint(self) -> str:
        return _TOO_MUCH if self._is_cut else self._launch.complaint()
