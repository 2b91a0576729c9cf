"""OpenSSH host certificates: their authority, and whether one is valid for a host now.

The format is OpenSSH's PROTOCOL.certkeys.
"""

from __future__ import annotations

import time

from gpumon.model.text import clean
from gpumon.transport.ssh.config import matches_pattern

#: how many fields each key has, after the type and the nonce
_KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-sha2-nistp256": 2,
               "ecdsa-sha2-nistp384": 2, "ecdsa-sha2-nistp521": 2}  # fmt: skip
_SUFFIX = "-cert-v01@openssh.com"
_HOST_CERTIFICATE = 2


class _Reader:
    """Fields of the SSH wire format (RFC 4251, 5), one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("too short")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def string(self) -> bytes:
        return self.take(self.number(4))


def signer(certificate: bytes, host: str, now: float | None = None) -> tuple[bytes, str]:
    """The key of the authority that signed it, if it holds for this host at `now` (epoch seconds).

    Otherwise (b"", why not). Whether the authority is trusted is for the caller to say.
    """
    try:
        return _signer(certificate, host, time.time() if now is None else now)
    except ValueError as error:
        return b"", f"its certificate cannot be read: {clean(str(error), 80)}"


def _signer(certificate: bytes, host: str, now: float) -> tuple[bytes, str]:
    reader = _Reader(certificate)
    kind = reader.string().decode("ascii").removesuffix(_SUFFIX)
    if kind not in _KEY_FIELDS:
        raise ValueError(f"its type is {kind}")
    for _ in range(1 + _KEY_FIELDS[kind]):
        reader.string()
    reader.number(8)  # serial
    if reader.number(4) != _HOST_CERTIFICATE:
        return b"", "its certificate is a user certificate"
    reader.string()  # the certificate's name
    principals = _strings(reader.string())
    after, before = reader.number(8), reader.number(8)
    critical = reader.string()
    reader.string()  # extensions: none is defined for hosts
    reader.string()  # reserved
    authority = reader.string()
    signed = certificate[: reader.at]
    signature = reader.string()
    if reader.at != len(certificate):
        raise ValueError("too long")
    if not after <= now < before:
        return b"", "its certificate is " + ("not valid yet" if now < after else "expired")
    # none at all stands for every host, as with OpenSSH
    if principals and not any(matches_pattern(one, host) for one in principals):
        names = clean(", ".join(principals), 100)
        return b"", f"its certificate is for {names}, not for {host}"
    if critical:
        return b"", "its certificate has an unknown option"
    if not _verified(authority, signed, signature):
        return b"", "the signature of its certificate is invalid"
    return authority, ""


def _strings(data: bytes) -> list[str]:
    reader, found = _Reader(data), []
    while reader.at < len(data):
        found.append(reader.string().decode("utf-8", "replace"))
    return found


def _verified(authority: bytes, signed: bytes, signature: bytes) -> bool:
    import paramiko  # type: ignore[import-untyped]

    _strings(signature)  # paramiko takes a signature whose length is wrong
    kind = _Reader(authority).string().decode("ascii")
    if kind not in _KEY_FIELDS:  # a certificate must not sign another; FIDO is not checked here
        return False
    try:
        key = paramiko.PKey.from_type_string(kind, authority)
        return bool(key.verify_ssh_sig(signed, paramiko.Message(signature)))
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType):
        return False
