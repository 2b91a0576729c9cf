"""One connection of paramiko's, from the socket to the running command."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import paramiko  # type: ignore[import-untyped]

from gpumon.transport.prompt import Prompter
from gpumon.transport.remote import Complaint, Start, tries
from gpumon.transport.ssh import failures as sshfailures
from gpumon.transport.ssh.auth import log_in
from gpumon.transport.ssh.config import SshSettings
from gpumon.transport.ssh.known_hosts import HostKey, KnownHosts

# without a handler paramiko's errors reach stderr, which is the screen, by logging's last resort
logging.getLogger("paramiko").addHandler(logging.NullHandler())

KEEP_ALIVE_S = 15
#: a network that swallows the keep-alives ends the connection after this, not after 15 minutes
_UNANSWERED_S = 45
_NODE_LOGIN_S = 30.0
#: people need time to find their telephone; sshd's own LoginGraceTime is 120 s
_PERSON_LOGIN_S = 180.0
_PIECE_BYTES = 65536
#: the name of a key's type -> the algorithms by which a server shows it; SHA-1 is gone
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class NoSession(Exception):
    """The server opens no further session on this connection: MaxSessions."""


class CarrierLost(Exception):
    """The connection that should carry another one is gone: make it anew."""


class Link(NamedTuple):
    """A connection that is logged in, and the host at its other end."""

    host: SshSettings
    transport: paramiko.Transport

    def is_active(self) -> bool:
        return bool(self.transport.is_active())

    def close(self) -> None:
        briefly(self._close)

    def _close(self) -> None:
        # a connection that carries it may have ended: a thread would print that on the terminal
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.transport.close()


class _Transport(paramiko.Transport):  # type: ignore[misc]
    """Asks the server for those host keys first that known_hosts can judge."""

    def __init__(self, sock: object, known: KnownHosts) -> None:
        super().__init__(sock)
        every = list(self.get_security_options().key_types)
        first = [name for kind in known.types() for name in _ALGORITHMS.get(kind, (kind,))]
        wanted = [name for name in first if name in every]
        self._wanted = (*wanted, *(name for name in every if name not in first))

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return self._wanted


def connect(
    host: SshSettings, prompter: Prompter, *, through: Link | None, ask: bool, timeout_s: float
) -> Link:
    """A connection that is logged in. Raises Failure, CarrierLost.

    through: the connection that carries it, if any. ask: whether a person may be asked for a
    password or code. A busy server is tried again.
    """
    known = KnownHosts(host.known_hosts_files, host.host_key_names)
    for _ in tries():
        sock = _jump(host, through, timeout_s) if through else _dial(host, timeout_s)
        transport = _Transport(sock, known)
        try:
            _shake_hands(transport, host, timeout_s)
            _check_key(transport, host, known)
            transport.auth_timeout = _PERSON_LOGIN_S if ask else _NODE_LOGIN_S
            log_in(transport, host, prompter, ask=ask)
            transport.set_keepalive(KEEP_ALIVE_S)
            return Link(host, transport)
        except sshfailures.Busy:
            transport.close()
        except BaseException:
            transport.close()
            raise
    raise sshfailures.busy(host)


def _dial(host: SshSettings, timeout_s: float) -> socket.socket:
    try:
        sock = socket.create_connection((host.hostname, host.port), timeout_s)
    except (socket.gaierror, UnicodeError):
        raise sshfailures.unknown_name(host) from None
    except TimeoutError:
        raise sshfailures.timed_out(host, "does not answer") from None
    except OSError as error:
        raise sshfailures.unreachable(host, error.strerror or str(error)) from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_S * 1000)
    return sock


def _jump(host: SshSettings, carrier: Link, timeout_s: float) -> paramiko.Channel:
    """A channel of the login host's connection; these do not count in MaxSessions."""
    try:
        return carrier.transport.open_channel(
            "direct-tcpip", (host.hostname, host.port), ("127.0.0.1", 0), timeout=timeout_s
        )
    except paramiko.ChannelException as error:
        if error.code == 1:  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED, RFC 4254, 5.1
            raise sshfailures.no_jumps(carrier.host, host) from None
        raise sshfailures.jump_refused(carrier.host, host, error.text.lower()) from None
    except (EOFError, OSError):
        carrier.close()  # to write failed: whoever reads may not have noticed yet
        raise CarrierLost from None
    except paramiko.SSHException as error:
        if not carrier.is_active():
            raise CarrierLost from None
        if "Timeout" in str(error):
            raise sshfailures.timed_out(host, f"does not answer {carrier.host.host}") from None
        # paramiko keeps one reason per connection: another thread has just taken ours
        raise sshfailures.jump_refused(carrier.host, host, "connect failed") from None


def _shake_hands(transport: _Transport, host: SshSettings, timeout_s: float) -> None:
    transport.banner_timeout = transport.handshake_timeout = 2 * timeout_s  # ours comes first
    try:
        transport.start_client(timeout=timeout_s)
        transport.get_remote_server_key()
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise sshfailures.unreachable(host, f"it has no common algorithms: {error}") from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        if transport.is_active():  # "No existing session"
            raise sshfailures.timed_out(host, "is silent") from None
        if isinstance(error, (EOFError, ConnectionError)) or "protocol banner" in str(error):
            raise sshfailures.Busy(str(error)) from None
        raise sshfailures.unreachable(host, str(error)) from None


def _check_key(transport: _Transport, host: SshSettings, known: KnownHosts) -> None:
    """Strict: nothing is ever added to known_hosts here."""
    key = transport.get_remote_server_key()
    verdict = known.verdict(HostKey(key.get_name(), key.asbytes()))
    if verdict.standing == "unknown":
        raise sshfailures.unknown_key(host, verdict.why)
    if verdict.standing == "changed":
        raise sshfailures.changed_key(host, verdict.why)
    if verdict.standing == "revoked":
        raise sshfailures.revoked_key(host, verdict.why)


@contextlib.contextmanager
def deadline(close: Callable[[], None], timeout_s: float) -> Iterator[threading.Event]:
    """Calls `close` when the body takes longer: some of paramiko's waits have no timeout.

    Gives what is then set.
    """
    passed = threading.Event()

    def give_up() -> None:
        passed.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # it broke by itself
            close()

    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield passed
    finally:
        timer.cancel()


class Command:
    """A command that has begun on the other side, as a Stream; a pty would change its bytes."""

    def __init__(
        self, link: Link, command: str, timeout_s: float, *, has_link: bool = False
    ) -> None:
        """`has_link`: the connection is this command's alone, and ends with it.

        Raises Failure when it does not begin, NoSession.
        """
        host = link.host
        self._link = link if has_link else None
        try:
            self._channel = link.transport.open_session(timeout=timeout_s)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if link.is_active():
                raise NoSession(str(error)) from None
            raise sshfailures.shut_out(host, "") from None
        try:
            with deadline(self._channel.close, timeout_s) as passed:
                self._channel.exec_command(command)
                self._complaint = Complaint(lambda: bytes(self._channel.recv_stderr(_PIECE_BYTES)))
                self._first = self._begin(host, timeout_s, passed)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise sshfailures.no_shell(host, "", str(error) or "the connection ended") from None

    def _begin(self, host: SshSettings, timeout_s: float, passed: threading.Event) -> bytes:
        start = Start()
        first = b""
        while not start.seen:
            piece = self._channel.recv(_PIECE_BYTES)
            if not piece:
                late = passed.is_set()
                why = f"nothing within {timeout_s:.0f} s" if late else "it ended at once"
                raise sshfailures.no_shell(host, self._complaint.last(0.5), why, late=late)
            first = start.feed(piece)
        return first

    def read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            return bytes(self._channel.recv(_PIECE_BYTES))
        except (OSError, EOFError):
            return b""

    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except EOFError:
            raise BrokenPipeError("the connection ended") from None

    say = write

    def end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        # a frozen server takes nothing any more, and each of these may wait for it
        briefly(self._end)
        if self._link is not None:
            self._link.close()

    def _end(self) -> None:
        self.end_input()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def complaint(self) -> str:
        return self._complaint.last()

    def errors(self) -> str:
        """The end of its standard error; not clean."""
        return self._complaint.text(0.5)

    def exit_code(self, timeout_s: float) -> int:
        """After the end of its output; -1: unknown, or ended by a signal."""
        if not self._channel.status_event.wait(timeout_s):
            return -1
        return int(self._channel.recv_exit_status())


def briefly(action: Callable[[], object], patience_s: float = 0.2) -> None:
    """Do it in a thread that is left behind when it hangs."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(patience_s)
