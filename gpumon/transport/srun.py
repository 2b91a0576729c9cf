"""Slurm's own transport: one `srun --overlap` starts the agent on all nodes that need it.

It adds one step, named gpumon/agent, to the job's accounting. srun gives all tasks the same input
and joins their output, so the nodes' streams share one process: what they write is sent once, and
the agent names its node in front of every line (`gpumon.collect.labels`).

The step must leave no mark on the job. srun kills its tasks when it gets a signal, and the job then
has a DerivedExitCode of 0:9. So srun is never signalled: its input is closed, the agents end with
0, and srun with them, whenever that is and whether or not gpumon is still there. A step on a node
that does not answer ends with 0:105, so the nodes are looked at before each start. And steps are
few: all dashboards of the user on this host share one (`relay`), and one that broke is followed by
another a minute later, then ever later (`pauses`).

On a login host that is reached by ssh, and where no relay can be had, each dashboard has its own.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.slurm.own_step import srun_words
from gpumon.transport.launch import Launch, NodeStream
from gpumon.transport.local import ChildStream
from gpumon.transport.pauses import BROKE, REFUSED, Pauses
from gpumon.transport.stream import Failure, Stream

if TYPE_CHECKING:
    from gpumon.transport.relay.join import Joined

#: how long the first node waits for others that are still on their way to this attempt
_GATHER_S = 15.0
#: a controller that does not answer holds srun for much longer than --immediate says; a node may
#: need 45 s to start the agent, and what comes instead of this step would be another one
_START_S = 50.0
_REAP_S = 1.0  # for srun, when its output has ended
_NO_GPUS = "No GPUs: the job's own step holds them (srun --gres=none). Host and job are shown."
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")


def srun_argv(
    job_id: str,
    nodes: list[str],
    argv: list[str],
    het_group: int | None = None,
    *,
    gpus: bool = True,
) -> list[str]:
    """The command line."""
    options = [
        "--immediate=10",  # s that it may wait for resources
        *([] if gpus else ["--gres=none"]),  # waits for none, and may open none
    ]
    group = "" if het_group is None else str(het_group)
    return [*srun_words(job_id, nodes, group, *options), *argv, "--label"]


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


def _all_answer(nodes: Sequence[str]) -> Mapping[str, str]:
    return {}


def _nobody_asks(nodes: Sequence[str], why: str) -> None:
    pass


class _Ticket:
    """A node that waits for its stream."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.opened: NodeStream | Failure | None = None


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
        pauses: Pauses | None = None,
        refused: Callable[[Sequence[str], str], None] = _nobody_asks,
        gather_s: float = _GATHER_S,
        start_s: float = _START_S,
    ) -> None:
        """`start` runs srun where Slurm is, on the login host say; by default here, shared.

        Of a het job `job_id` is the leader's, `het_group` the component's offset. `absent`: those
        of some nodes on which no step can start now, with the reasons; it may take seconds.
        `pauses`: of the steps that are not shared, those without GPUs included. `refused`: is told
        on which nodes a step ended before any agent began, and why.
        """
        self.name = "srun" if gpus else "srun-host"
        self.lacks = "" if gpus else _NO_GPUS
        self._job_id = job_id
        self._gpus = gpus
        self._het_group = het_group
        self._job = job_id if het_group is None else f"{job_id}+{het_group}"
        self._start = start
        self._absent = absent
        self._pauses = pauses or Pauses()
        self._refused = refused
        self._gather_s = gather_s
        self._start_s = start_s
        self._news = threading.Condition()
        self._undecided: set[str] = set()
        self._waiting: dict[str, _Ticket] = {}
        self._starting: dict[str, _Ticket] = {}  # nodes whose step is being started
        self._is_starting = False
        self._closed = False
        self._due = 0.0  # monotonic; when the next step may start, as the relay says
        self._launches: list[Launch] = []
        self.steps = 0  # that were started for this dashboard

    def expect(self, nodes: Iterable[str]) -> None:
        """These may come; a launch waits for them for some seconds, so that there is one step."""
        with self._news:
            self._undecided.update(nodes)

    def settle(self, node: str) -> None:
        """This node came by another way, or does not come at all."""
        with self._news:
            self._undecided.discard(node)
            self._waiting.pop(node, None)
            self._starting.pop(node, None)
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
        if isinstance(ticket.opened, NodeStream):
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
                    self._starting, self._waiting, self._is_starting = self._waiting, {}, True
                    return dict(self._starting)
                self._news.wait(max(due - now, 0.0) if mine and not self._is_starting else None)
            return {}

    def _earliest(self, now: float) -> float:
        """When the next step may start; a shared one may be joined at once."""
        return max(self._due, now + self._pauses.wait_s(self._job, gpus=self._gpus))

    def _start_all(self, batch: Mapping[str, _Ticket]) -> None:
        """One step for all nodes that wait with the same command and answer; those whose turn has
        not come wait on.
        """
        groups: dict[tuple[str, ...], list[str]] = {}
        opened: dict[str, NodeStream | Failure] = {}
        later: set[str] = set()
        try:
            for node in sorted(batch):
                groups.setdefault(tuple(batch[node].argv), []).append(node)
            for argv, nodes in groups.items():
                opened.update(self._running(nodes, [*argv]))
                left = [node for node in nodes if node not in opened]
                absent = self._absent(left) if left else {}
                opened.update((node, Failure(why)) for node, why in absent.items())
                left = [node for node in left if node not in absent]
                try:
                    launch = self._launch(left, [*argv]) if left else None
                except Failure as failure:
                    opened.update(dict.fromkeys(left, failure))
                else:
                    opened.update(launch.streams if launch is not None else {})
                    later.update(left - opened.keys())
        finally:
            with self._news:
                for node, ticket in batch.items():
                    if node not in later:
                        ticket.opened = opened.get(node) or Failure("no step was started")
                    elif self._starting.get(node) is ticket:  # nobody has settled it meanwhile
                        self._waiting.setdefault(node, ticket)
                self._starting, self._is_starting = {}, False
                self._news.notify_all()

    def _running(self, nodes: list[str], argv: list[str]) -> Mapping[str, NodeStream]:
        """Those of the nodes on which a step runs already: to join it costs the job nothing."""
        joined = self._ask_relay(nodes, argv, may_start=False)
        launch = self._joined(joined) if joined is not None else None
        return launch.streams if launch is not None else {}

    def _ask_relay(self, nodes: list[str], argv: list[str], *, may_start: bool) -> Joined | None:
        if self._start is not None:
            return None
        from gpumon.transport.relay.join import Wanted, join  # not before srun is needed

        command = srun_argv(self._job_id, nodes, argv, self._het_group, gpus=self._gpus)
        env = srun_environment()
        return join(Wanted(self._job, self._gpus, nodes, argv, command, env, may_start))

    def _launch(self, nodes: list[str], argv: list[str]) -> Launch | None:
        """Streams of these nodes, or of those whose turn it is. Raises Failure."""
        joined = self._ask_relay(nodes, argv, may_start=True)
        if joined is not None:
            return self._joined(joined)
        command = srun_argv(self._job_id, nodes, argv, self._het_group, gpus=self._gpus)
        begun = self._pauses.begin(self._job, gpus=self._gpus)

        def over(launch: Launch) -> None:
            self._pauses.end(begun, REFUSED if launch.is_refused else BROKE)
            self._over(launch)

        try:
            stream = (
                self._start(command) if self._start else SrunProcess(command, srun_environment())
            )
        except Failure:
            self._pauses.end(begun, REFUSED)
            raise
        self.steps += 1
        return self._known(Launch(stream, nodes, self._start_s, over))

    def _joined(self, joined: Joined) -> Launch | None:
        if joined.wait_s:
            self._due = time.monotonic() + joined.wait_s
        if joined.stream is None:
            return None
        self.steps += joined.has_started
        return self._known(Launch(joined.stream, joined.nodes, self._start_s, self._over))

    def _over(self, launch: Launch) -> None:
        if launch.is_refused:
            self._refused(list(launch.streams), launch.complaint())

    def _known(self, launch: Launch) -> Launch:
        with self._news:
            self._launches = [each for each in self._launches if each.open_nodes] + [launch]
            closed = self._closed
        if closed:
            launch.close()
        return launch
