"""known_hosts files, line by line: hashed names, patterns, revoked keys.

The format is sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. A line that cannot be read is skipped alone:
one bad line in a site's file must not hide the others, as it does with paramiko's reader. Host
certificates are left to openssh, which is tried where a key is not known.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from gpumon.transport.ssh.config import matches_pattern

_MARKERS = ("", "@cert-authority", "@revoked")
Standing = Literal["known", "unknown", "changed", "revoked"]


class KnownHost(NamedTuple):
    marker: str  # one of the above
    names: str  # as written: patterns with commas between, or one hashed name
    type: str  # of the key: ssh-ed25519
    key: bytes  # in the SSH wire format
    where: str  # FILE:LINE


class Verdict(NamedTuple):
    """`why`: the line that says so, or what is known instead; for messages."""

    standing: Standing
    why: str = ""


class HostKey(NamedTuple):
    """What a server showed."""

    type: str
    key: bytes


class KnownHosts:
    """Those lines of some files that say something about one host.

    names: the names to look for, best first; a key that differs counts as changed only under the
    first, as with OpenSSH, which looks for a host with a port also without it.
    """

    def __init__(self, files: Sequence[str], names: Sequence[str]) -> None:
        lines = [line for file in files for line in read_known_hosts(file)]
        self._by_name = [[one for one in lines if matches(one.names, name)] for name in names]

    def types(self) -> list[str]:
        """Types of the keys that are known for it, without doubles: a server shall show those."""
        found = [one.type for lines in self._by_name for one in lines if not one.marker]
        return list(dict.fromkeys(found))

    def verdict(self, shown: HostKey) -> Verdict:
        """Whether this is the host's key."""
        revoked = {one.key: one for one in self._all("@revoked")}
        if shown.key in revoked:
            return Verdict("revoked", revoked[shown.key].where)
        for one in self._all(""):
            if one.key == shown.key:
                return Verdict("known", one.where)
        if self._all("@cert-authority"):
            return Verdict("unknown", "openssh checks the certificates of its authority")
        for one in self._by_name[0]:
            if not one.marker and one.type == shown.type:
                return Verdict("changed", one.where)
        return Verdict("unknown")

    def _all(self, marker: str) -> list[KnownHost]:
        return [one for lines in self._by_name for one in lines if one.marker == marker]


def read_known_hosts(file: str) -> list[KnownHost]:
    """The lines that can be read; none where the file cannot."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            return list(_parse(lines, file))
    except OSError:
        return []


def _parse(lines: Iterable[str], file: str) -> Iterable[KnownHost]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if marker not in _MARKERS or len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        name = words[1].encode()
        if key[:4] == len(name).to_bytes(4, "big") and key[4:].startswith(name):
            yield KnownHost(marker, words[0], words[1], key, f"{file}:{number}")


def matches(names: str, name: str) -> bool:
    """Whether the name field of a line stands for this name (`host` or `[host]:port`)."""
    if names.startswith("|"):
        return _is_hash_of(names, name)
    found = False
    for pattern in names.split(","):
        if pattern.startswith("!"):
            if matches_pattern(pattern[1:], name):
                return False
        else:
            found = found or matches_pattern(pattern, name)
    return found


def _is_hash_of(hashed: str, name: str) -> bool:
    """`|1|SALT|HASH`, both base64: HMAC-SHA1 of the name, keyed by the salt."""
    try:
        _, version, salt, digest = hashed.split("|")
        wanted = base64.b64decode(digest, validate=True)
        key = base64.b64decode(salt, validate=True)
    except ValueError:
        return False
    return version == "1" and hmac.compare_digest(
        hmac.new(key, name.encode(), hashlib.sha1).digest(), wanted
    )
