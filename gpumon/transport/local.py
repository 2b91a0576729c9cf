"""This node: the agent as a child process; and programs of this machine as streams.

A child process and not a thread: a driver that deadlocks holds its caller in the kernel, where not
even SIGKILL reaches it. The screen must quit all the same; the child then stays behind until the
driver releases it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE, Popen, TimeoutExpired

from gpumon import ending
from gpumon.collect.cgroup.room import Room
from gpumon.isolated import command
from gpumon.transport.remote import Complaint
from gpumon.transport.stream import Failure

_PIECE_BYTES = 1 << 16
_REAP_S = 0.2  # for a child whose output has ended, or that was sent a signal


class ChildStream:
    """A program of this machine as a Stream. Raises Failure when it cannot be started."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, patience_s: float = 0.3
    ) -> None:
        """`patience_s`: how long `close` leaves it to end with its input before it is killed."""
        self._patience_s = patience_s
        self._child = self._start(argv, env)
        self._adopt()
        output, complaint = self._child.stdout, self._child.stderr
        assert output is not None
        assert complaint is not None
        self._out = output.fileno()
        self._complaint = Complaint(
            lambda: os.read(complaint.fileno(), _PIECE_BYTES), complaint.fileno()
        )
        self._closing = threading.Lock()

    def _adopt(self) -> None:
        """Have it end with this program."""
        ending.adopt(self._child.pid, patient=self._patience_s > 0)

    def _start(self, argv: Sequence[str], env: Mapping[str, str] | None) -> Popen[bytes]:
        try:
            return start(argv, env, cwd="/")  # it must hold up no file system
        except OSError as error:
            raise Failure(f"{argv[0]}: {error.strerror}") from None

    def read(self) -> bytes:
        return os.read(self._out, _PIECE_BYTES)

    def descriptor(self) -> int | None:
        return self._out

    def write(self, data: bytes) -> None:
        assert self._child.stdin is not None
        try:
            view = memoryview(data)
            while view:
                view = view[self._child.stdin.write(view) :]
        except ValueError:  # closed by us
            raise BrokenPipeError("closed") from None

    say = write

    def close(self) -> None:
        """With what it started in its group: the ssh of jumps, srun's own child."""
        assert self._child.stdin is not None
        with self._closing:
            self._child.stdin.close()
            steps: list[tuple[int, float]] = [(signal.SIGTERM, _REAP_S), (signal.SIGKILL, _REAP_S)]
            if self._patience_s > 0:  # one that is stopped does not see that its input ended
                steps.insert(0, (signal.SIGCONT, self._patience_s))
            for number, wait_s in steps:
                ending.signal_group(self._child.pid, number)
                with suppress(TimeoutExpired):
                    self._child.wait(wait_s)
                    ending.release(self._child.pid)
                    return

    def complaint(self) -> str:
        return self._complaint.last(_REAP_S)


def start(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None = None
) -> Popen[bytes]:
    """The program with pipes, without a terminal to ask on: Ctrl-C is the screen's."""
    return Popen(
        list(argv),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        bufsize=0,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


class AgentProcess(ChildStream):
    """The agent of this installation, started by this Python; its own flags are `flags`."""

    def __init__(self, flags: Sequence[str]) -> None:
        super().__init__(command("gpumon/collect/__main__.py", "--until-eof", *flags))

    def complaint(self) -> str:
        try:
            code = self._child.wait(_REAP_S)
        except TimeoutExpired:
            return super().complaint()
        return f"the collectors ended (exit {code}) {super().complaint()}".rstrip()


class LocalTransport:
    """This node itself, reached where this process is part of the job."""

    name = "local"
    lacks = ""

    def __init__(self, node: str, *, in_job: bool = True) -> None:
        self.node = node
        self._in_job = in_job

    def open(self, node: str, argv: list[str]) -> ChildStream:
        self._check()
        return ChildStream(argv)

    def open_agent(self, flags: Sequence[str]) -> AgentProcess:
        """The agent itself: nothing has to be sent. Raises Failure; also where this process, and
        so the agent, stands in a job that may need what memory is left.
        """
        self._check()
        if why := Room().refusal():
            raise Failure(why)
        return AgentProcess(flags)

    def _check(self) -> None:
        if not self._in_job:
            raise Failure("this shell is not in the job", final=True)

    def close(self) -> None:
        """Nothing is shared."""
