"""The user's ssh configuration for a host, as `ssh -G` resolves it.

Only ssh itself knows Include, Match and the defaults of its version; paramiko's reader ignores the
first and misreads the second.
"""

from __future__ import annotations

import getpass
import os
import pwd
import re
import shutil
import subprocess
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.transport.remote import check_host
from gpumon.transport.stream import Attempt, Failure

#: ssh -G needs about 10 ms; more only where `Match exec` runs something
_ASK_S = 10.0
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")


class SshSettings(NamedTuple):
    """One host's settings; paths are absolute, what is `none` is empty."""

    host: str  # as it was named, without the user
    hostname: str  # what to connect to
    user: str
    port: int
    identity_files: tuple[str, ...]
    certificate_files: tuple[str, ...]
    identities_only: bool
    agent: str  # path of the agent's socket; "" for none
    jumps: str  # ProxyJump: hosts with commas between, the first is connected to first
    proxy_command: str
    known_hosts_files: tuple[str, ...]  # the user's, then the system's
    known_hosts_command: str
    host_key_alias: str
    gssapi: bool
    hostbased: bool
    pkcs11: str
    control_path: str

    @property
    def label(self) -> str:
        """`USER@HOST` for people."""
        return f"{self.user}@{self.host}"

    @property
    def host_key_names(self) -> tuple[str, ...]:
        """The names under which known_hosts may have its key, as OpenSSH looks for them."""
        if self.host_key_alias:
            return (self.host_key_alias,)
        name = self.hostname.lower()
        return (name,) if self.port == 22 else (f"[{name}]:{self.port}", name)


def ssh_settings(host: str, jumps: str = "") -> SshSettings:
    """What `ssh [-J jumps] [USER@]HOST` would use. Raises Failure.

    Where no ssh is installed: OpenSSH's own defaults.
    """
    check_host(host)
    user, _, name = host.rpartition("@")
    try:
        done = subprocess.run(
            ["ssh", "-G", *(["-J", jumps] if jumps else []), "--", host],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S,
            start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return _settings(name, {**_defaults(), "user": [user or _local_user()]}, jumps)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"no answer within {_ASK_S:.0f} s"
        raise Failure(f"ssh -G {host}: {why}", f"ssh -G {host}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise Failure(
            f"invalid ssh configuration for {host}: {clean(said, 200)}",
            f"ssh -G {host}", final=True,
        )  # fmt: skip
    return _settings(name, _parse(done.stdout.decode("utf-8", "replace")), jumps)


def node_settings(node: str, login: str | None = None) -> SshSettings:
    """What is used for a node, through `login` ([USER@]HOST) if given. Raises Failure.

    Behind a login host the user is the one there, unless the configuration names another for
    the node: a cluster knows its users by one name.
    """
    found = ssh_settings(node, login or "")
    if login and found.user == _local_user():
        return found._replace(user=ssh_settings(login).user)
    return found


def route_to(host: SshSettings, chain: tuple[str, ...] = ()) -> list[SshSettings]:
    """Every host that a connection to this one goes through, the nearest first, itself last.

    Raises Failure for a circle of jumps, in which ssh itself would start one ssh after the other
    for ever. chain: the hosts that wait for this one.
    """
    before, _, last = host.jumps.rpartition(",")
    if not last:
        return [host]
    if last in chain:
        circle = " -> ".join((*chain, last))
        raise Failure(f"ProxyJump loop: {circle}", f"ssh -G {last}", final=True)
    return [*route_to(ssh_settings(last, before), (*chain, last)), host]


def _defaults() -> dict[str, list[str]]:
    ours, systems = f"{_home()}/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"
    return {
        "identityfile": [f"~/.ssh/{name}" for name in _DEFAULT_KEYS],
        "userknownhostsfile": [f"{ours} {ours}2"],
        "globalknownhostsfile": [f"{systems} {systems}2"],
    }


def _parse(text: str) -> dict[str, list[str]]:
    """Values by keyword in small letters; `none` as ""."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append("" if value.lower() == "none" else value)
    return found


def _settings(host: str, found: dict[str, list[str]], jumps: str) -> SshSettings:
    def one(key: str, default: str = "") -> str:
        return found.get(key, [default])[0]

    def paths(key: str) -> tuple[str, ...]:
        return tuple(_path(file, tokens) for file in found.get(key, []) if file)

    home = _home()
    hostname, user, port = one("hostname", host), one("user", _local_user()), one("port", "22")
    tokens = {"%": "%", "d": home, "h": hostname, "i": str(os.getuid()), "n": host, "p": port,
              "r": user, "u": _local_user()}  # fmt: skip
    known_hosts = f"{one('userknownhostsfile')} {one('globalknownhostsfile')}".split()
    return SshSettings(
        host=host,
        hostname=hostname,
        user=user,
        port=int(port),
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=one("identitiesonly") == "yes",
        agent=_agent(one("identityagent", "SSH_AUTH_SOCK"), tokens),
        jumps=jumps or one("proxyjump"),
        proxy_command=one("proxycommand"),
        known_hosts_files=tuple(_path(file, tokens) for file in known_hosts),
        known_hosts_command=one("knownhostscommand"),
        host_key_alias=one("hostkeyalias"),
        gssapi=one("gssapiauthentication") == "yes",
        hostbased=one("hostbasedauthentication") == "yes",
        pkcs11=one("pkcs11provider"),
        control_path=one("controlpath"),
    )


def _home() -> str:
    """As ssh takes it: from the user database, not from $HOME."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _path(text: str, tokens: dict[str, str]) -> str:
    """`~`, `${NAME}` and the tokens of ssh_config(5) that name files by host and user."""
    if text == "~" or text.startswith("~/"):
        text = _home() + text[1:]
    text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), text)
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _agent(value: str, tokens: dict[str, str]) -> str:
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:], "")
    return _path(value, tokens)


def matches_pattern(pattern: str, name: str) -> bool:
    """ssh_config(5), PATTERNS: `*` and `?` only; brackets stand for themselves; any case.

    In time proportional to both lengths, for a server may send the pattern.
    """
    pattern, name = pattern.lower(), name.lower()
    at = star = 0
    resume = -1  # where the last `*` takes one character more
    here = 0
    while here < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[here]):
            at += 1
            here += 1
        elif resume >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return not pattern[at:].strip("*")


def preferred_transport(node: str, login: str | None = None) -> Attempt | None:
    """The system's ssh and why, where it must come before paramiko; None for the usual order.

    That is where it can log in and paramiko cannot, at the node or at a host on the way: a live
    ControlMaster, GSSAPI with a ticket, host-based, PKCS#11, FIDO, ProxyCommand.
    """
    if not shutil.which("ssh"):
        return None
    try:
        way = route_to(node_settings(node, login))
    except Failure:  # whoever opens the node says it
        return None
    for hop in way:
        if why := _only_openssh(hop):
            return Attempt("openssh", f"{hop.host}: {why}")
    return None


def _only_openssh(settings: SshSettings) -> str:
    """Why paramiko would not get in there; "" if nothing is known against it."""
    if settings.control_path and _succeeds("ssh", "-O", "check", "--", settings.label):
        return "an open ControlMaster"
    if settings.gssapi and _succeeds("klist", "-s"):  # Debian has it on for every host
        return "GSSAPIAuthentication with a Kerberos ticket"
    if settings.hostbased:
        return "HostbasedAuthentication"
    if settings.pkcs11:
        return "PKCS11Provider"
    if settings.proxy_command:
        return "ProxyCommand"
    if settings.known_hosts_command:
        return "KnownHostsCommand"
    if any(_is_fido(path) for path in settings.identity_files):
        return "a FIDO key"
    return ""


def _is_fido(identity_file: str) -> bool:
    try:
        with open(f"{identity_file}.pub", "rb") as file:
            return file.read(3) == b"sk-"
    except OSError:
        return False


def _succeeds(*argv: str) -> bool:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_ASK_S, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
