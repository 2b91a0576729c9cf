"""Nodes by the system's ssh: what its configuration can do, and whatever master is open.

It never asks: BatchMode keeps the ssh itself quiet, and the ssh of a jump, which does not inherit
that, finds no terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpumon.slurm.runner import Result, SlurmError, printed
from gpumon.transport.local import ChildStream, start
from gpumon.transport.remote import Patience, Slots, Start, shell_command, tries, with_profile
from gpumon.transport.ssh import failures as sshfailures
from gpumon.transport.ssh.config import SshSettings, node_settings, route_to, ssh_settings
from gpumon.transport.stream import Failure, Stream

#: ssh's exit code when it is ssh that failed, not the command
_SSH_FAILED = 255
_OPTIONS = {
    "BatchMode": "yes",
    "ClearAllForwardings": "yes",  # a port for each of 64 nodes would be in use from the second on
    "ControlMaster": "no",  # use an open one; never leave one behind
    "EscapeChar": "none",
    "LogLevel": "INFO",  # its words are what a failure is made of
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
}


class OpensshTransport:
    """Runs commands on nodes by `ssh -T -oBatchMode=yes [-J login] NODE`, and on the login host.

    login: `[USER@]HOST` through which all nodes are reached; else what the configuration says.
    timeout_s: ssh's ConnectTimeout, and then the same again for login and shell, which have twice
        as long when they are tried again.
    """

    name = "openssh"
    lacks = ""

    def __init__(self, login: str | None = None, timeout_s: float = 15.0) -> None:
        self._login = login
        self._timeout_s = timeout_s
        self._patience = Patience(2 * timeout_s)
        self._slots = Slots()

    def open(self, node: str, argv: list[str]) -> Stream:
        return self._open(node_settings(node, self._login), self._login, argv)

    def open_login(self, argv: list[str]) -> Stream:
        """Start `argv` on the login host, through an open master where there is one.

        Raises Failure.
        """
        return self._open(self._login_host(), None, argv)

    def _open(self, host: SshSettings, login: str | None, argv: list[str]) -> Stream:
        route_to(host)
        server = host.jumps or (host.hostname, host.port)
        # behind a login host nobody waits longer: all nodes there share the slots, and take turns
        patience = Patience(2 * self._timeout_s) if host.jumps else self._patience
        for _ in tries():
            with self._slots.of(server):
                stream = _OpensshStream(self._argv(host, login, shell_command(argv)))
                failure = stream.begin(host, patience.of(host.host))
            patience.note(host.host, late=isinstance(failure, Failure) and failure.late)
            if failure is None:
                return stream
            stream.close()
            if isinstance(failure, Failure):
                raise failure
        raise sshfailures.busy(host)

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        """Run a command of Slurm on the login host to its end. Raises SlurmError."""
        try:
            return self._run(argv, env, timeout_s)
        except Failure as failure:
            raise SlurmError(failure.text) from failure

    def _run(self, argv: list[str], env: Mapping[str, str], timeout_s: float) -> Result:
        host = self._login_host()
        route_to(host)
        child = _start(self._argv(host, None, shell_command(with_profile(argv), env)))
        out = err = b""
        late = False
        try:
            out, err = printed(child, argv[0], timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        start, said = Start(), err.decode("utf-8", "replace")
        own = start.feed(out)
        if start.seen or late:
            return sshfailures.slurm_result(host, argv, child.returncode, own, said, late)
        failure = _why(host, child.returncode, said)
        raise failure if isinstance(failure, Failure) else sshfailures.busy(host)

    def close(self) -> None:
        """Nothing is shared: each node has a process of its own."""

    def _login_host(self) -> SshSettings:
        if self._login is None:
            raise ValueError("commands need a login host; none was given")
        return ssh_settings(self._login)

    def _argv(self, host: SshSettings, login: str | None, command: str) -> list[str]:
        options = {**_OPTIONS, "ConnectTimeout": f"{max(1.0, self._timeout_s):.0f}"}
        words = [f"-o{name}={value}" for name, value in options.items()]
        jump = ["-J", login] if login else []
        return ["ssh", "-T", *words, *jump, "-l", host.user, "--", host.host, command]


class _OpensshStream(ChildStream):
    def __init__(self, argv: list[str]) -> None:
        super().__init__(argv, patience_s=0.0)
        self._first = b""

    def _start(self, argv: Sequence[str], env: object) -> subprocess.Popen[bytes]:
        return _start(argv)

    def begin(self, host: SshSettings, timeout_s: float) -> Failure | sshfailures.Busy | None:
        """Wait until the command runs; else why not."""
        start, until = Start(), time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        while not start.seen:
            left_s = until - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                return sshfailures.timed_out(
                    host, f"did not start a shell within {timeout_s:.0f} s"
                )
            piece = super().read()
            if not piece:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(1.0)
                return _why(host, self._child.returncode, self._complaint.text(0.5))
            try:
                self._first = start.feed(piece)
            except Failure as failure:
                return failure
        return None

    def read(self) -> bytes:
        first, self._first = self._first, b""
        return first or super().read()


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return start(argv, {**os.environ, "SSH_ASKPASS_REQUIRE": "never"})
    except OSError as error:
        if shutil.which(argv[0]) is None:  # also where a folder of PATH may not be searched
            raise Failure("ssh is not installed here", final=True) from None
        raise Failure(f"ssh cannot be started: {error.strerror}") from None


def _why(host: SshSettings, code: int | None, said: str) -> Failure | sshfailures.Busy:
    if code == _SSH_FAILED:
        return sshfailures.from_openssh(host, said)
    last = said.strip().split("\n")[-1]
    return sshfailures.no_shell(host, last, f"it ended at once (exit {code})")
