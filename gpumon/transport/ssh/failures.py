"""Failures of ssh in words, with what to do; the same for both ssh transports.

docs/ssh.md explains each. A stranger's words (banners, standard error) are cleaned here.
"""

from __future__ import annotations

import re
import shlex

from gpumon.model.text import clean
from gpumon.slurm.runner import NoSlurmError, Result, SlurmTimeoutError
from gpumon.transport.ssh.config import SshSettings
from gpumon.transport.stream import Failure

#: a shell's exit code for a program that is not there
_NOT_FOUND = 127


class Busy(Exception):
    """The server refused the connection before its first message: try again a little later."""


def ssh_command(host: SshSettings) -> str:
    """What a person runs to see for themselves."""
    return shlex.join(["ssh", *(("-J", host.jumps) if host.jumps else ()), host.host])


def unknown_name(host: SshSettings) -> Failure:
    text = f"unknown host {host.hostname}; `{ssh_command(host)}` fails as well"
    return Failure(text, ssh_command(host), final=True)


def unreachable(host: SshSettings, why: str) -> Failure:
    text = f"{host.host} is not reachable at port {host.port}: {clean(why.strip(), 120)}"
    return Failure(text, ssh_command(host))


def timed_out(host: SshSettings, what: str) -> Failure:
    return Failure(f"timed out: {host.host} {what}", ssh_command(host), late=True)


def busy(host: SshSettings) -> Failure:
    text = f"{host.host} refuses connections: too many are being opened"
    return Failure(text, ssh_command(host))


def unknown_key(host: SshSettings, why: str = "") -> Failure:
    command = ssh_command(host)
    about = f" ({clean(why, 200)})" if why else ""
    text = f"host key of {host.host} is not known{about}; run: {command}"
    return Failure(text, command, final=True)


def changed_key(host: SshSettings, where: str) -> Failure:
    text = (
        f"WARNING: the host key of {host.host} differs from the one in {where or 'known_hosts'}: "
        "the connection may be intercepted, or the node was reinstalled; ask the site first, "
        "or reach the nodes without ssh: --via srun"
    )
    return Failure(text, ssh_command(host), final=True, try_next=False)


def revoked_key(host: SshSettings, where: str) -> Failure:
    text = f"WARNING: the host key of {host.host} is revoked in {where}; ask the site"
    return Failure(text, ssh_command(host), final=True, try_next=False)


def not_accepted(host: SshSettings, offered: list[str], *, by_openssh: bool = False) -> Failure:
    """No key was accepted and nothing else was left to try."""
    methods = clean(", ".join(offered), 100) or "none"
    other = "srun" if by_openssh else "openssh"
    text = f"{host.label}: no key was accepted (offered: {methods}); try --via {other}"
    return Failure(text, ssh_command(host), final=True)


def wrong_answer(host: SshSettings) -> Failure:
    return Failure(f"{host.label} did not accept the answers", ssh_command(host), final=True)


def cancelled(host: SshSettings) -> Failure:
    return Failure(f"{host.label}: the login was cancelled", ssh_command(host), final=True)


def too_many_keys(host: SshSettings) -> Failure:
    text = (
        f"{host.label}: too many keys were offered; name the one to use in ~/.ssh/config "
        "(IdentityFile, with IdentitiesOnly yes)"
    )
    return Failure(text, ssh_command(host), final=True)


def shut_out(host: SshSettings, said: str) -> Failure:
    """The server ended the login; `said` are its words, if any."""
    reason = f": {clean(said, 200)}" if said else ""
    return Failure(f"{host.label} ended the login{reason}", ssh_command(host))


def no_jumps(login: SshSettings, host: SshSettings) -> Failure:
    text = f"{login.host} does not allow jumps to {host.host} (AllowTcpForwarding)"
    return Failure(text, ssh_command(host), final=True)


def jump_refused(login: SshSettings, host: SshSettings, why: str) -> Failure:
    text = f"{login.host} cannot reach {host.hostname} port {host.port}: {clean(why.strip(), 120)}"
    return Failure(text, ssh_command(host))


def no_shell(host: SshSettings, said: str, why: str, *, late: bool = False) -> Failure:
    """Logged in, but the command did not begin."""
    text = f"{host.label}: the login shell does not start: {clean(said, 200) or why}"
    return Failure(text, ssh_command(host), late=late)


def slurm_result(
    login: SshSettings, argv: list[str], code: int, out: bytes, err: str, late: bool
) -> Result:
    """What a command on the login host left behind. Raises NoSlurmError, SlurmTimeoutError."""
    if late:
        raise SlurmTimeoutError(f"Slurm is not responding: {argv[0]} took too long on {login.host}")
    if code == _NOT_FOUND:
        raise NoSlurmError(f"{argv[0]} not found on {login.host}; use another --login HOST")
    return Result(code, out, err)


#: what OpenSSH's client says -> which failure it is; the first that is found counts
_CHANGED = re.compile(r"IDENTIFICATION HAS CHANGED|host key for .* has changed", re.I)
_OFFENDING = re.compile(r"Offending .* key in (\S+)")
_REVOKED = re.compile(r"REVOKED HOST KEY|marked as revoked", re.I)
_UNKNOWN = re.compile(r"Host key verification failed|host key is known for")
_NAME = re.compile(r"Could not resolve hostname ([^:\s]+)", re.I)
_DENIED = re.compile(r"Permission denied \(([^)]*)\)")
_REACH = re.compile(r"connect to host (\S+) port (\d+): (.*)")
_PROHIBITED = re.compile(r"administratively prohibited")
_OPEN_FAILED = re.compile(r"open failed: connect failed: (.*)")
_TIMED_OUT = re.compile(r"timed out", re.I)
#: closed before or during the version exchange: MaxStartups
_BUSY = re.compile(r"kex_exchange_identification|banner exchange|Exceeded MaxStartups", re.I)


def from_openssh(host: SshSettings, said: str) -> Failure | Busy:
    """What OpenSSH's client wrote to its standard error, in our words. `host`: the node."""
    if _CHANGED.search(said):
        where = _OFFENDING.search(said)
        return changed_key(host, where[1] if where else "")
    if _REVOKED.search(said):
        return revoked_key(host, "known_hosts")
    if "pam_slurm_adopt" in said or "Access denied" in said:
        return shut_out(host, _last_line(said, "ccess denied"))
    if _UNKNOWN.search(said):
        return unknown_key(host)
    if match := _NAME.search(said):
        return unknown_name(host._replace(hostname=clean(match[1], 100)))
    if "Too many authentication failures" in said:
        return too_many_keys(host)
    if match := _DENIED.search(said):
        return not_accepted(host, match[1].split(","), by_openssh=True)
    if _PROHIBITED.search(said):
        return no_jumps(host._replace(host=_last_jump(host)), host)
    if match := _OPEN_FAILED.search(said):
        return jump_refused(host._replace(host=_last_jump(host)), host, match[1])
    if match := _REACH.search(said):
        at = host._replace(host=clean(match[1], 100), port=int(match[2]))
        return Failure(unreachable(at, match[3]).text, ssh_command(host))
    if _TIMED_OUT.search(said):
        return timed_out(host, "does not answer")
    if _BUSY.search(said):
        return Busy(_last_line(said))
    return Failure(
        f"{host.host}: {_last_line(said) or 'ssh ended without a message'}", ssh_command(host)
    )


def _last_jump(host: SshSettings) -> str:
    return host.jumps.rpartition(",")[2] or host.host


def _last_line(said: str, having: str = "") -> str:
    lines = [line for line in said.split("\n") if line.strip() and having in line]
    return clean(lines[-1].strip(), 200) if lines else ""
