"""How a server is reached: its address, and credentials from files, the environment or netrc.

Secrets never come from the command line, and never appear in an error or a report.
"""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit, urlunsplit

from gpumon.errors import UsageError
from gpumon.model.text import clean
from gpumon.site.prometheus import Prometheus

#: of a file with a secret
_MAX_BYTES = 64 << 10


@dataclass(frozen=True)
class Access:
    """Where the server is, and what every request to it carries."""

    url: str  # without a slash at its end
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)  # that all series must have
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def host(self) -> str:
        """For messages."""
        return clean(urlsplit(self.url).netloc, 200)


def access_to(site: Prometheus, url: str = "", env: Mapping[str, str] = os.environ) -> Access:
    """The way to `url`, or to the site's server. A site's credentials go to its own server alone.

    Raises UsageError: one line, which names no secret.
    """
    at = _checked(url or site.url)
    is_site = not url or _checked(site.url or url).netloc == at.netloc
    own = site if is_site else Prometheus(labels=site.labels)
    return Access(
        urlunsplit(at).rstrip("/"),
        _headers(own, at.hostname or "", env),
        own.labels,
        own.ca_file,
        own.cert_file,
        own.key_file,
    )


def _checked(url: str) -> SplitResult:
    try:
        at = urlsplit(url)
        port = at.port
    except ValueError:
        raise UsageError(f"{clean(url, 200)!r} is not a valid URL") from None
    if at.username is not None or at.password is not None:
        raise UsageError(
            "the Prometheus URL contains credentials, which other users can see; put them in "
            "$GPUMON_PROMETHEUS_TOKEN, ~/.netrc or the site file's token_file"
        )
    if at.scheme not in ("http", "https") or not at.hostname or port == 0:
        raise UsageError(
            f"{clean(url, 200)!r} is not a valid Prometheus URL: expected http://HOST:PORT"
        )
    return at._replace(query="", fragment="")


def _headers(site: Prometheus, host: str, env: Mapping[str, str]) -> dict[str, str]:
    """The Authorization header: of the environment, else of the site's file, else of netrc."""
    from urllib3.util import make_headers

    token = env.get("GPUMON_PROMETHEUS_TOKEN") or (
        _secret(site.token_file) if site.token_file else ""
    )
    if token:
        return {"Authorization": f"Bearer {_one_line(token)}"}
    user = env.get("GPUMON_PROMETHEUS_USER") or site.username
    password = env.get("GPUMON_PROMETHEUS_PASSWORD") or (
        _secret(site.password_file) if site.password_file else ""
    )
    if not (user and password):
        user, password = _of_netrc(host, env)
    if not user:
        return {}
    basic = make_headers(basic_auth=f"{_one_line(user)}:{_one_line(password)}")
    return {"Authorization": basic["authorization"]}


def _secret(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_MAX_BYTES).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"{clean(path, 200)}: {why}; Prometheus needs this credential") from None


def _one_line(secret: str) -> str:
    """As a header can carry it."""
    if not secret.isprintable():
        raise UsageError("the credentials for Prometheus contain control characters")
    return secret


def _of_netrc(host: str, env: Mapping[str, str]) -> tuple[str, str]:
    path = env.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, ValueError, netrc.NetrcParseError):
        return "", ""
    return (found[0], found[2] or "") if found else ("", "")
