"""Who may scrape: TLS and users by the web configuration file of Prometheus's own exporters.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.errors import UsageError
from gpumon.model.text import clean, shown

_MAX_BYTES = 1 << 20
_TLS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_OPTIONAL,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAnyClientCert": ssl.CERT_REQUIRED,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class WebConfig(NamedTuple):
    """`tls`: None for plain HTTP. `users`: name -> bcrypt hash; none: everybody may scrape."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = {}


def read_web_config(path: str) -> WebConfig:
    """Raises UsageError: one line with the file and the key."""
    import yaml

    try:
        with open(path, "rb") as file:
            content = yaml.safe_load(file.read(_MAX_BYTES)) or {}
    except OSError as error:
        raise UsageError(f"{clean(path, 200)}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = clean(str(error).split("\n")[0], 100)
        raise UsageError(f"{clean(path, 200)}: not valid YAML ({why})") from None
    table = _table(path, content, "the file")
    _known(path, table, ("tls_server_config", "basic_auth_users", "http_server_config"))
    tls = _table(path, table.get("tls_server_config") or {}, "tls_server_config")
    users = _table(path, table.get("basic_auth_users") or {}, "basic_auth_users")
    return WebConfig(_context(path, tls) if tls else None, _users(path, users))


def _table(path: str, value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{clean(path, 200)}: {name} must be a mapping")
    return value


def _known(path: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise UsageError(
                f"{clean(path, 200)}: {shown(name)} is not supported; known: {', '.join(names)}"
            )


def _context(path: str, tls: Mapping[str, Any]) -> ssl.SSLContext:
    _known(path, tls, _TLS)
    where = os.path.dirname(os.path.abspath(path))

    def file_of(name: str) -> str:
        value = tls.get(name)
        if not isinstance(value, str) or not value:
            raise UsageError(f"{clean(path, 200)}: tls_server_config.{name} must name a file")
        return os.path.join(where, value)

    def choice(name: str, choices: Mapping[str, Any], default: str) -> Any:
        value = str(tls.get(name) or default)
        if value not in choices:
            raise UsageError(
                f"{clean(path, 200)}: tls_server_config.{name} must be one of {', '.join(choices)}"
            )
        return choices[value]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = choice("min_version", _VERSIONS, "TLS12")
    try:
        context.load_cert_chain(file_of("cert_file"), file_of("key_file"))
        if tls.get("client_ca_file"):
            context.load_verify_locations(file_of("client_ca_file"))
    except OSError as error:
        why = clean(error.strerror or str(error), 100)
        raise UsageError(f"{clean(path, 200)}: certificate or key: {why}") from None
    context.verify_mode = choice("client_auth_type", _CLIENTS, "NoClientCert")
    return context


def _users(path: str, users: Mapping[str, Any]) -> dict[str, bytes]:
    for name, hashed in users.items():
        if not isinstance(hashed, str) or not hashed.startswith("$2"):
            raise UsageError(
                f"{clean(path, 200)}: basic_auth_users.{clean(name, 60)} must be a bcrypt hash; "
                "make one with 'htpasswd -nBC 10 USER'"
            )
    return {name: hashed.encode() for name, hashed in users.items()}


class Gate:
    """Checks the header of requests; an answer that was right once is remembered, for bcrypt is
    slow on purpose.
    """

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self._known: set[bytes] = set()
        self._key = os.urandom(32)

    def admits(self, header: str) -> bool:
        if not self._users:
            return True
        digest = hmac.digest(self._key, header.encode(), hashlib.sha256)
        if digest in self._known:
            return True
        kind, _, coded = header.partition(" ")
        try:
            user, _, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except ValueError:
            return False
        if kind.lower() != "basic":
            return False
        import bcrypt

        # who does not exist takes as long as who does
        hashed = self._users.get(user) or next(iter(self._users.values()))
        try:
            is_right = bcrypt.checkpw(password.encode()[:72], hashed) and user in self._users
        except ValueError:
            return False
        if is_right:
            self._known.add(digest)
        return is_right
