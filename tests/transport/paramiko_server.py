"""A login host that asks for passwords and codes, and carries jumps on to real servers.

A real sshd could ask only for the passwords of this machine's users. This is the server side of
paramiko, on a real socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from functools import partial
from pathlib import Path

import paramiko

from tests.support.waiting import HANGS_S


class AskingServer:
    """password: what `password` takes, None: not offered. rounds: keyboard-interactive, a list of
    rounds, each of (prompt, shown, right answer); `key`: a public key that must come first.
    """

    def __init__(self, host_key: Path, password=None, rounds=(), key=None, user=None, echo=True):
        self.host_key = paramiko.Ed25519Key.from_private_key_file(str(host_key))
        self.password, self.rounds, self.key, self.user = password, list(rounds), key, user
        self.logins = 0
        self.answers: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                return
            transport = paramiko.Transport(taken)
            transport.add_server_key(self.host_key)
            transport.banner_timeout = transport.handshake_timeout = HANGS_S
            self._transports.append(transport)
            try:
                transport.start_server(server=_Session(self, transport))
            except (paramiko.SSHException, EOFError):
                continue

    def drop(self):
        """End all connections; new ones are taken."""
        for transport in self._transports:
            transport.close()

    def stop(self):
        self._socket.close()
        self.drop()


class _Session(paramiko.ServerInterface):
    def __init__(self, server, transport):
        self._server = server
        self._transport = transport
        self._key_given = server.key is None
        self._round = 0
        self._destinations = {}  # by channel

    def get_allowed_auths(self, username):
        if not self._key_given:
            return "publickey"
        methods = ["password"] if self._server.password else []
        return ",".join([*methods, *(["keyboard-interactive"] if self._server.rounds else [])])

    def _done(self):
        self._server.logins += 1
        return paramiko.AUTH_SUCCESSFUL

    def check_auth_publickey(self, username, key):
        if self._server.key is None or key.get_base64() != self._server.key:
            return paramiko.AUTH_FAILED
        self._key_given = True
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_password(self, username, password):
        self._server.answers.append(password)
        right = password == self._server.password and self._key_given
        return self._done() if right else paramiko.AUTH_FAILED

    def check_auth_interactive(self, username, submethods):
        if not self._key_given or not self._server.rounds:
            return paramiko.AUTH_FAILED
        self._round = 0
        return self._query()

    def _query(self):
        prompts = [(text, shown) for text, shown, _ in self._server.rounds[self._round]]
        return paramiko.InteractiveQuery("Two factors", "1. Push\n2. \x1b[2JCode", *prompts)

    def check_auth_interactive_response(self, responses):
        self._server.answers += responses
        if responses != [right for _, _, right in self._server.rounds[self._round]]:
            return paramiko.AUTH_FAILED
        self._round += 1
        if self._round < len(self._server.rounds):
            return self._query()
        return self._done()

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self._destinations[chanid] = destination
        threading.Thread(target=self._carry, daemon=True).start()
        return paramiko.OPEN_SUCCEEDED

    def _accepted(self):
        """One channel, whichever comes first; None when the connection ends before.

        A thread that waits may find that another has just taken what woke it.
        """
        channel = None
        while channel is None and self._transport.is_active():
            channel = self._transport.accept(1)
        return channel

    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=self._execute, args=(command,), daemon=True).start()
        return True

    def _execute(self, command):
        channel = self._accepted()
        if channel is None:
            return
        pipe = subprocess.PIPE
        with subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe) as child:
            give = partial(os.write, child.stdin.fileno())
            threading.Thread(target=_pump, args=(channel.recv, give), daemon=True).start()
            _pump(partial(os.read, child.stdout.fileno()), channel.sendall)
        with contextlib.suppress(EOFError):
            channel.close()

    def _carry(self):
        channel = self._accepted()
        if channel is None:
            return
        destination = self._destinations.pop(channel.get_id())
        with socket.create_connection(destination) as sock:
            back = threading.Thread(target=_pump, args=(sock.recv, channel.sendall), daemon=True)
            back.start()
            _pump(channel.recv, sock.sendall)
            sock.shutdown(socket.SHUT_RDWR)
            back.join()
        with contextlib.suppress(EOFError):  # the connection has ended
            channel.close()


def _pump(take, give):
    try:
        while data := take(65536):
            give(data)
    except (OSError, EOFError):
        pass
