"""Logging in over a connection of paramiko's: agent, key files, password, keyboard-interactive.

Never SSHClient's own way: it asks with input() and prints, under the screen.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import paramiko  # type: ignore[import-untyped]
from paramiko.agent import AgentSSH  # type: ignore[import-untyped]

from gpumon.model.text import clean
from gpumon.transport.prompt import Kind, Prompter, Question
from gpumon.transport.ssh import failures as sshfailures
from gpumon.transport.ssh.config import SshSettings
from gpumon.transport.stream import Failure

#: as OpenSSH's NumberOfPasswordPrompts
_ATTEMPTS = 3
_FEW_KEYS = 2
_AGENT_S = 10.0
_MAX_TEXT = 2000
_ORDER = ("publickey", "keyboard-interactive", "password")  # ssh_config, PreferredAuthentications
_CERTIFICATE_SUFFIX = "-cert.pub"


def log_in(
    transport: paramiko.Transport, host: SshSettings, prompter: Prompter, *, ask: bool
) -> None:
    """Authenticate as `host.user`. Raises Failure.

    prompter: also asked for the passphrases of key files. ask: whether to ask a person for a
    password or code; for login hosts only, for a job may have 64 nodes.
    """
    _Login(transport, host, prompter, ask).run()


class _Login:
    def __init__(
        self, transport: paramiko.Transport, host: SshSettings, prompter: Prompter, ask: bool
    ) -> None:
        self._transport = transport
        self._host = host
        self._prompter = prompter
        self._agent = _connect_agent(host.agent)
        self._keys = _keys(host, self._agent, prompter)
        self._offered: list[str] = []
        self._spent: set[str] = set() if ask else {"keyboard-interactive", "password"}
        self._asked = False
        self._refused_keys = 0

    def run(self) -> None:
        try:
            allowed = self._attempt(partial(self._transport.auth_none, self._host.user))
            self._offered = allowed or []
            while not self._transport.is_authenticated():
                method = next(
                    (m for m in _ORDER if m in self._offered and m not in self._spent), ""
                )
                if not method:
                    raise self._refused()
                {
                    "publickey": self._publickey,
                    "keyboard-interactive": self._interactive,
                    "password": self._password,
                }[method]()
        finally:
            if self._agent is not None:
                self._agent.close()

    def _refused(self) -> Failure:
        if self._asked:
            return sshfailures.wrong_answer(self._host)
        return sshfailures.not_accepted(self._host, self._offered)

    def _attempt(self, call: Callable[[], Any]) -> list[str] | None:
        """One request: the methods that may follow ([]: logged in), or None when refused."""
        try:
            return list(call())
        except paramiko.BadAuthenticationType as error:
            return list(error.allowed_types)
        except paramiko.AuthenticationException as error:
            if "timeout" in str(error):
                raise sshfailures.timed_out(self._host, "does not answer the login") from None
            said = getattr(self._transport.auth_handler, "banner", None) or b""
            if not self._transport.is_active():
                raise self._shut_out(_last_line(said)) from None
            return None
        except paramiko.SSHException as error:
            raise self._shut_out(str(error)) from None
        except (EOFError, OSError):
            raise self._shut_out("") from None

    def _shut_out(self, said: str) -> Failure:
        """Why a server hung up is not told by paramiko; after some keys it is MaxAuthTries."""
        if self._refused_keys >= _FEW_KEYS and not said:
            return sshfailures.too_many_keys(self._host)
        return sshfailures.shut_out(self._host, said)

    def _goes_on(self, allowed: list[str] | None) -> bool:
        """Whether this attempt brought the login forward; then other methods may follow."""
        if allowed is None:
            return False
        self._offered = allowed
        return True

    def _publickey(self) -> None:
        for key in self._keys:
            attempt = self._attempt(partial(self._transport.auth_publickey, self._host.user, key))
            if self._goes_on(attempt):
                return
            self._refused_keys += 1
        self._spent.add("publickey")

    def _password(self) -> None:
        self._spent.add("password")
        text = f"password of {self._host.label}:"
        for attempt in range(1, _ATTEMPTS + 1):
            answer = self._answer(Question(self._host.host, text, True, "password", attempt))
            request = partial(
                self._transport.auth_password, self._host.user, answer, fallback=False
            )
            if self._goes_on(self._attempt(request)):
                return

    def _interactive(self) -> None:
        self._spent.add("keyboard-interactive")
        for attempt in range(1, _ATTEMPTS + 1):
            conversation = _Conversation(self._host, self._prompter, attempt)
            allowed = self._attempt(
                partial(self._transport.auth_interactive, self._host.user, conversation.reply)
            )
            self._asked = self._asked or conversation.asked
            if conversation.cancelled:
                raise sshfailures.cancelled(self._host)
            # one that asks nothing asks nothing the next time either
            if self._goes_on(allowed) or not conversation.asked:
                return

    def _answer(self, question: Question) -> str:
        self._asked = True
        answer = self._prompter.ask(question)
        if answer is None:
            raise sshfailures.cancelled(self._host)
        return answer


class _Conversation:
    """Answers the rounds of one keyboard-interactive login (RFC 4256), in paramiko's thread."""

    def __init__(self, host: SshSettings, prompter: Prompter, attempt: int) -> None:
        self._host = host
        self._prompter = prompter
        self._attempt = attempt
        self._seen: dict[str, int] = {}  # a question that comes again was answered wrong
        self.asked = False
        self.cancelled = False

    def reply(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """An exception would end the connection, so a cancelled question answers nothing."""
        answers = []
        above = [part for part in (title, instructions) if part.strip()]
        for text, shown in prompts:
            answer = None if self.cancelled else self._ask("\n".join([*above, text]), text, shown)
            self.cancelled = self.cancelled or answer is None
            answers.append(answer or "")
        return answers

    def _ask(self, whole: str, text: str, shown: bool) -> str | None:
        self.asked = True
        again = self._seen[whole] = self._seen.get(whole, 0) + 1
        kind: Kind = "code"
        if not shown and "password" in text.lower():
            kind = "password"
        elif shown and "yes/no" in text.lower():
            kind = "yes-no"
        clean_text = "\n".join(clean(line) for line in whole[:_MAX_TEXT].splitlines())
        return self._prompter.ask(
            Question(self._host.host, clean_text, not shown, kind, self._attempt + again - 1)
        )


class _Agent(AgentSSH):  # type: ignore[misc]
    """paramiko's Agent, for any socket and not only the one in the environment."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._connect(sock)

    def close(self) -> None:
        self._close()


def _connect_agent(path: str) -> _Agent | None:
    if not path:
        return None
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(_AGENT_S)
    try:
        sock.connect(path)
        agent = _Agent(sock)
        sock.settimeout(None)  # a key may wait for a touch or a yes
        return agent
    except (OSError, paramiko.SSHException):
        sock.close()
        return None


def _keys(host: SshSettings, agent: _Agent | None, prompter: Prompter) -> Iterator[paramiko.PKey]:
    """In the order of ssh(1): the agent's keys that are configured, its others, key files."""
    files = [path for path in host.identity_files if os.path.exists(path)]
    configured = {_public_key(f"{path}.pub") for path in host.identity_files}
    configured |= {_public_key(path) for path in host.certificate_files}
    of_agent = list(agent.get_keys()) if agent else []
    chosen = [key for key in of_agent if key.blob in configured]
    if not host.identities_only:
        chosen += [key for key in of_agent if key.blob not in configured]
    yield from chosen
    tried = {key.blob for key in chosen}
    for path in files:
        if _public_key(f"{path}.pub") in tried:
            continue
        key = _load(path, prompter)
        if key is None:
            continue
        for certificate in (f"{path}{_CERTIFICATE_SUFFIX}", *host.certificate_files):
            if certified := _with_certificate(key, certificate):
                yield certified
        key.public_blob = None
        yield key


def _with_certificate(key: paramiko.PKey, file: str) -> paramiko.PKey | None:
    try:
        blob = paramiko.pkey.PublicBlob.from_file(file)
        certified = type(key)(data=blob.key_blob)
    except (OSError, ValueError, paramiko.SSHException):
        return None
    if certified.asbytes() != key.asbytes():
        return None
    key.public_blob = blob
    return key


def _public_key(file: str) -> bytes:
    """The key of a .pub file in the wire format; b"" where there is none."""
    try:
        return bytes(paramiko.pkey.PublicBlob.from_file(file).key_blob)
    except (OSError, ValueError):
        return b""


def _load(path: str, prompter: Prompter) -> paramiko.PKey | None:
    """The private key; asks for its passphrase. None where it cannot be used."""
    for attempt in range(_ATTEMPTS + 1):
        passphrase = None
        if attempt:
            text = f"passphrase of {clean(path)}:"
            passphrase = prompter.ask(Question(path, text, True, "passphrase", attempt))
            if passphrase is None:
                return None
        try:
            return _read_key(path, passphrase)
        except paramiko.PasswordRequiredException:
            continue
        except paramiko.SSHException:
            if not attempt:
                return None
        except (OSError, ValueError):
            return None
    return None


def _read_key(path: str, passphrase: str | None) -> paramiko.PKey:
    problem: Exception = paramiko.SSHException("no key")
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key_file(path, passphrase)
        except paramiko.PasswordRequiredException:
            raise
        except (paramiko.SSHException, ValueError) as error:
            problem = error
    raise paramiko.SSHException(str(problem))


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
