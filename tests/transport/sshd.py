"""Throw-away OpenSSH servers on the loopback interface, and a client's configuration for them.

Nothing outside a temporary folder is read or written: a script called `ssh`, first in PATH, gives
the system's ssh a configuration file of the test's own. Runs as root and as an ordinary user.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil

from gpumon.transport.ssh import config as sshconfig
from tests.support.ports import free_port
from tests.support.waiting import HANGS_S

SSH = shutil.which("ssh") or "ssh"


def keygen(file: Path, kind="ed25519", passphrase="", comment="test") -> Path:
    """A new key pair; the path of its private half."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(file)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return file


def public(key: Path) -> str:
    """`TYPE BASE64` of a key pair."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


class Sshd:
    """One server with its own host key; `options` are sshd_config keywords."""

    def __init__(self, folder: Path, user_key: Path, host_key_type="ed25519", **options: str):
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "these tests need openssh-server"
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # privilege separation
        self.folder = folder
        self.port = free_port()
        self.host_key = keygen(folder / "host_key", host_key_type)
        settings = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.host_key),
            "AuthorizedKeysFile": f"{user_key}.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "LogLevel": "VERBOSE",
            **options,
        }
        config = folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log
            )
        self._wait()

    def _wait(self):
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise AssertionError(self.log())

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def logins(self) -> int:
        return self.log().count("Accepted publickey for ")

    def known_host(self) -> str:
        return f"[127.0.0.1]:{self.port} {public(self.host_key)}\n"

    def servers(self) -> list[psutil.Process]:
        """The listener and the processes of its connections, without what these run."""
        found = [psutil.Process(self.process.pid)]
        found += found[0].children(recursive=True)
        servers = []
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):  # a connection's may end meanwhile
                if "sshd" in one.name():
                    servers.append(one)
        return servers

    def signal(self, number: signal.Signals):
        for one in self.servers():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def stop(self):
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self.process.kill()
        self.process.wait()


class World:
    """A user's side: a key, a configuration, known hosts, and the servers that were started."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder = folder
        self.key = keygen(folder / "id_ed25519")
        self.config = folder / "ssh_config"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.servers: list[Sshd] = []
        (folder / "bin").mkdir()
        script = folder / "bin" / "ssh"
        script.write_text(f'#!/bin/sh\nexec {SSH} -F {self.config} "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        monkeypatch.setattr(sshconfig, "_ASK_S", HANGS_S)
        self._monkeypatch = monkeypatch
        self._agents: list[int] = []
        self.write_config()

    def write_config(self, *blocks: str, **defaults: str):
        """Blocks come before the defaults, for the first value counts."""
        settings = {
            "User": getpass.getuser(),
            "IdentityFile": str(self.key),
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "none",
            **defaults,
        }
        self.blocks = list(blocks)
        self._defaults = settings
        self._write()

    def _write(self):
        lines = "".join(f"  {key} {value}\n" for key, value in self._defaults.items())
        self.config.write_text("\n".join(self.blocks) + f"\nHost *\n{lines}")

    def sshd(self, *names: str, known=True, **options: str) -> Sshd:
        """Start a server; the configuration then leads these names to it."""
        folder = self.folder / f"sshd{len(self.servers)}"
        folder.mkdir()
        server = Sshd(folder, self.key, **options)
        self.servers.append(server)
        if known:
            with self.known_hosts.open("a") as file:
                file.write(server.known_host())
        for name in names:
            self.host(name, server.port)
        return server

    def host(self, name: str, port: int, **settings: str):
        settings = {"HostName": "127.0.0.1", "Port": str(port), **settings}
        lines = "".join(f"  {key} {value}\n" for key, value in settings.items())
        self.blocks.insert(0, f"Host {name}\n{lines}")
        self._write()

    def agent(self, *keys: Path):
        """A real ssh-agent that holds these keys."""
        sock = self.folder / f"agent{len(self._agents)}"
        done = subprocess.run(
            ["ssh-agent", "-s", "-a", str(sock)], capture_output=True, text=True, check=True
        )
        self._agents.append(int(done.stdout.split("SSH_AGENT_PID=")[1].split(";")[0]))
        self._monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], check=True, stdin=subprocess.DEVNULL)

    def close(self):
        for server in self.servers:
            server.stop()
        for pid in self._agents:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def read_all(stream) -> bytes:
    return b"".join(iter(stream.read, b""))
