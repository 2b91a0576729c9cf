"""Nodes by ssh, with paramiko: no program on this side, one connection per node.

paramiko is imported when the first connection is made: `gpumon` on this machine never needs it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from gpumon.slurm.runner import MAX_OUTPUT, Result, SlurmError, TooMuchError
from gpumon.transport.prompt import Prompter, RememberingPrompter
from gpumon.transport.remote import Patience, Slots, pause_s, shell_command, with_profile
from gpumon.transport.ssh import failures as sshfailures
from gpumon.transport.ssh.config import SshSettings, node_settings, route_to, ssh_settings
from gpumon.transport.ssh.failures import slurm_result
from gpumon.transport.stream import Failure, Stream
from gpumon.transport.unhurried import unhurried

if TYPE_CHECKING:
    from gpumon.transport.ssh.connection import Command, Link

#: Slurm's commands at once on the login host; sshd's default MaxSessions is 10
_COMMANDS_AT_ONCE = 4
#: that a connection has died may be seen only when it is used: then once more
_CARRIERS = 2


class SshTransport:
    """Runs commands on nodes, and on the login host.

    prompter: asked for passphrases of key files, and for a login host's password or code; each
    question once. login: `[USER@]HOST` through which all nodes are reached; else what ProxyJump
    says for each. A host through which others are reached is connected to once.
    timeout_s: for each step: the connection, the handshake, the shell, which has twice as long when
        it is tried again.
    """

    name = "ssh"
    lacks = ""

    def __init__(
        self, prompter: Prompter, login: str | None = None, timeout_s: float = 15.0
    ) -> None:
        self._prompter = RememberingPrompter(prompter)
        self._login = login
        self._timeout_s = timeout_s
        self._patience = Patience(timeout_s)
        self._slots = Slots()
        self._commands = threading.Semaphore(_COMMANDS_AT_ONCE)
        self._lock = threading.Lock()
        self._carriers: dict[tuple[str, str], Future[Link]] = {}  # by host and the jumps before it
        self._closed = False

    def open(self, node: str, argv: list[str]) -> Stream:
        from gpumon.transport.ssh import connection as sshlink

        host = node_settings(node, self._login)
        route_to(host)
        link = self._connect(host, ask=False)
        try:
            stream = sshlink.Command(
                link, shell_command(argv), self._patience.of(node), has_link=True
            )
        except BaseException as error:
            link.close()
            self._patience.note(node, late=isinstance(error, Failure) and error.late)
            if isinstance(error, sshlink.NoSession):
                raise sshfailures.no_shell(
                    host, "", "the server refuses to open a session"
                ) from None
            raise
        self._patience.note(node, late=False)
        if self._closed:
            stream.close()
            raise sshfailures.cancelled(host)
        return stream

    def open_login(self, argv: list[str]) -> Stream:
        """Start `argv` on the login host, on the connection that all share. Raises Failure."""
        until = time.monotonic() + self._timeout_s
        return self._begin(self._login_link(), shell_command(argv), until)

    def run(self, argv: list[str], *, env: Mapping[str, str], timeout_s: float) -> Result:
        """Run a command of Slurm on the login host to its end. Raises SlurmError.

        All share one connection. Logging in does not count in `timeout_s`: people may be asked.
        """
        try:
            return self._run(argv, env, timeout_s)
        except Failure as failure:
            raise SlurmError(failure.text) from failure

    def _run(self, argv: list[str], env: Mapping[str, str], timeout_s: float) -> Result:
        from gpumon.transport.ssh import connection as sshlink

        link = self._login_link()
        until = time.monotonic() + timeout_s
        with self._commands:
            command = self._begin(link, shell_command(with_profile(argv), env), until)
            with sshlink.deadline(command.close, max(0.0, until - time.monotonic())):
                command.end_input()
                out = bytearray()
                while piece := command.read():
                    out += piece
                    if len(out) > MAX_OUTPUT:
                        command.close()
                        raise TooMuchError(argv[0])
            late = time.monotonic() >= until
            code = command.exit_code(0.0 if late else 1.0)
            command.close()
        return slurm_result(link.host, argv, code, bytes(out), command.errors(), late)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            carriers, self._carriers = list(self._carriers.values()), {}
        for carrier in carriers:
            if carrier.done() and carrier.exception() is None:
                carrier.result().close()

    def _login_link(self) -> Link:
        if self._login is None:
            raise ValueError("commands need a login host; none was given")
        route_to(ssh_settings(self._login))
        return self._carrier(self._login, "")

    def _begin(self, link: Link, command: str, until: float) -> Command:
        """Waits for a session where others have taken all of MaxSessions."""
        from gpumon.transport.ssh import connection as sshlink

        attempt = 0
        while True:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise sshfailures.no_shell(link.host, "", "all sessions are taken (MaxSessions)")
            try:
                return sshlink.Command(link, command, min(left_s, self._timeout_s))
            except sshlink.NoSession:
                time.sleep(min(pause_s(attempt), left_s))
                attempt += 1

    def _connect(self, host: SshSettings, *, ask: bool) -> Link:
        from gpumon.transport.ssh import connection as sshlink

        before, _, last = host.jumps.rpartition(",")
        server = ("behind", last) if last else (host.hostname, host.port)
        for _ in range(_CARRIERS):
            through = self._carrier(last, before) if last else None
            with self._slots.of(server):
                if self._closed:
                    raise sshfailures.cancelled(host)
                try:
                    return sshlink.connect(
                        host, self._prompter, through=through, ask=ask, timeout_s=self._timeout_s
                    )
                except sshlink.CarrierLost:
                    continue
        raise sshfailures.unreachable(host, f"the connection to {last} keeps dropping")

    def _carrier(self, name: str, jumps: str) -> Link:
        """The shared connection to a host that others are reached through; made when needed.

        Who comes while it is being made waits, and shares its failure. A final one stays.
        """
        with self._lock:
            future = self._carriers.get((name, jumps))
            mine = future is None or _is_dead(future)
            if future is None or mine:
                future = self._carriers[name, jumps] = Future()
        if mine:
            try:
                future.set_result(self._connect(ssh_settings(name, jumps), ask=True))
            except BaseException as error:
                future.set_exception(error)
        with unhurried():
            return future.result()


def _is_dead(carrier: Future[Link]) -> bool:
    if not carrier.done():
        return False
    error = carrier.exception()
    if error is not None:
        return not (isinstance(error, Failure) and error.final)
    return not carrier.result().is_active()
