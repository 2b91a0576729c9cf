"""Questions to a Prometheus server, bounded in size and time; every failure is one sentence.

The HTTP API is that of Prometheus 2 and 3, which Thanos, Mimir and VictoriaMetrics offer too:
https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError, TimeoutError

from gpumon.errors import GpumonError
from gpumon.model.text import clean
from gpumon.prometheus.access import Access

#: s: to connect; for an answer to begin and end
CONNECT_S, ANSWER_S = 5.0, 60.0
#: of one answer; a query that finds more is asked in parts
MAX_BYTES = 64 << 20
_MAX_MESSAGE = 200
#: of servers that scrape the same, for one that fails
_REPLICA_LABELS = frozenset(("replica", "prometheus_replica", "__replica__"))
_CHUNK = 1 << 18


class PrometheusError(GpumonError):
    """The server could not be asked, or refused; what happened, and what to do."""


class TooMuchError(PrometheusError):
    """The answer is larger than is read at once; a smaller window may do."""


class Series(NamedTuple):
    """A metric with its labels, and its points in order of time: epoch s, value."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]

    @property
    def name(self) -> str:
        return self.labels.get("__name__", "")


class Server:
    """One server; its connections are kept. For one thread."""

    def __init__(
        self, access: Access, answer_s: float = ANSWER_S, max_bytes: int = MAX_BYTES
    ) -> None:
        self._access = access
        self._answer_s, self._max_bytes = answer_s, max_bytes
        self._pool = _pool_of(access, answer_s)
        self.queries = 0  # so far
        self.busy_s = 0.0  # waiting for the server so far

    @property
    def host(self) -> str:
        return self._access.host

    @property
    def url(self) -> str:
        return self._access.url

    @property
    def labels(self) -> Mapping[str, str]:
        """What every selector must ask for."""
        return self._access.labels

    def series(self, query: str, at: float) -> list[Series]:
        """An instant query: of a range selector the raw points, else one value for each series."""
        result = self._asked("query", {"query": query, "time": f"{at:.3f}"})
        return of_one_replica(
            found for each in _listed(result, "result") if (found := _series_of(each))
        )

    def values(self, label: str, selector: str, start: float, end: float) -> list[str]:
        """The values that a label has in the series of a selector."""
        fields = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        found = self._data(f"label/{label}/values", fields)
        return [clean(each, 300) for each in found if isinstance(each, str)] if found else []

    # -- asking

    def _asked(self, what: str, fields: Mapping[str, str]) -> Any:
        return self._data(what, {**fields, "timeout": f"{self._answer_s:.0f}s"})

    def _data(self, what: str, fields: Mapping[str, str]) -> Any:
        began = time.monotonic()
        self.queries += 1
        try:
            body = self._body(what, fields, began + self._answer_s)
        finally:
            self.busy_s += time.monotonic() - began
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise PrometheusError(
                f"{self.host} sent an incomplete answer, or is not Prometheus; check its URL"
            ) from None
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise PrometheusError(f"{self.host} is not Prometheus; check its URL")
        return answer.get("data")

    def _body(self, what: str, fields: Mapping[str, str], until: float) -> bytes:
        # a GET can be too long for a proxy; label values are read by GET alone in older servers
        method = "GET" if what.startswith("label/") else "POST"
        form: dict[str, Any] = {"encode_multipart": False} if method == "POST" else {}
        try:
            response = self._pool.request(
                method,
                f"{self._access.url}/api/v1/{what}",
                fields=dict(fields),
                headers=dict(self._access.headers),
                preload_content=False,
                **form,
            )
            try:
                body = self._read(response, until)
            finally:
                response.release_conn()
        except HTTPError as error:
            raise PrometheusError(f"{self.host} {_why(error)}") from None
        if response.status != 200:
            raise _refusal(self.host, response.status, body)
        return body

    def _read(self, response: urllib3.BaseHTTPResponse, until: float) -> bytes:
        parts, size = [], 0
        for part in response.stream(_CHUNK):
            size += len(part)
            parts.append(part)
            if size > self._max_bytes:
                response.close()
                raise TooMuchError(
                    f"{self.host} sent more than {self._max_bytes >> 20} MiB at once"
                )
            if time.monotonic() > until:
                response.close()
                raise PrometheusError(
                    f"{self.host} did not finish its answer within {self._answer_s:.0f} s"
                )
        return b"".join(parts)


def _pool_of(access: Access, answer_s: float) -> urllib3.PoolManager:
    """TLS is verified by the system's certificates, or those that the site names."""
    from urllib.request import getproxies, proxy_bypass

    limits = urllib3.Timeout(connect=min(CONNECT_S, answer_s), read=answer_s)
    more: dict[str, Any] = {"timeout": limits, "retries": urllib3.Retry(2, connect=0, read=0)}
    if access.url.startswith("https:"):
        more |= {
            name: path
            for name, path in (
                ("ca_certs", access.ca_file),
                ("cert_file", access.cert_file),
                ("key_file", access.key_file),
            )
            if path
        }
    proxy = getproxies().get(access.url.split(":")[0])
    if proxy and not proxy_bypass(urlsplit(access.url).hostname or ""):
        return urllib3.ProxyManager(proxy, **more)
    return urllib3.PoolManager(**more)


def _why(error: HTTPError) -> str:
    """What stopped a request, and what to do."""
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, SSLError):
        return f"has no valid certificate ({clean(str(reason), 120)}); name its ca_file"
    if isinstance(reason, TimeoutError) and not isinstance(reason, NewConnectionError):
        return "does not answer in time; is it overloaded, or behind a firewall?"
    text = re.sub(r"\[Errno -?\d+\] ", "", clean(str(reason), 200).rpartition(": ")[2])
    return f"cannot be reached ({text}); check its URL"


#: what an error of the server means for who asks
_STATUS = {
    401: "requires credentials; set $GPUMON_PROMETHEUS_TOKEN, or use ~/.netrc",
    403: "refuses these credentials",
    404: "has no Prometheus API at this URL",
    429: "refuses more queries for now; try again later",
    502: "is not available behind its proxy",
    503: "is not available now, or gave up this query",
    504: "did not answer its proxy in time",
}


def _refusal(host: str, status: int, body: bytes) -> PrometheusError:
    try:
        told = json.loads(body).get("error", "")
    except (ValueError, AttributeError, RecursionError):
        told = ""
    said = clean(told, _MAX_MESSAGE) if isinstance(told, str) else ""
    if status == 422 and "too many samples" in said:
        return TooMuchError(f"{host} finds too many samples at once")
    text = _STATUS.get(status, f"answered with HTTP status {status}")
    return PrometheusError(f"{host} {text}" + (f" ({said})" if said else ""))


# -- answers


def _listed(data: Any, name: str) -> Sequence[Any]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, list) else ()


def _series_of(told: Any) -> Series | None:
    """None of what is none; values that are no numbers are left out, as are labels."""
    if not isinstance(told, dict) or not isinstance(told.get("metric"), dict):
        return None
    labels = {
        clean(name, 100): clean(value, 300)
        for name, value in told["metric"].items()
        if isinstance(value, str)
    }
    points = told.get("values") or [told.get("value")]
    times, values = [], []
    for point in points if isinstance(points, list) else ():
        known = _point(point)
        if known is not None:
            times.append(known[0])
            values.append(known[1])
    return Series(labels, times, values) if times else None


def of_one_replica(series: Iterable[Series]) -> list[Series]:
    """Each series once, from the replica with most points in the answer, else from another: their
    points lie between each other's and must not add up.
    """
    of_replica: dict[str, list[Series]] = defaultdict(list)
    for each in series:
        name = next((each.labels[name] for name in _REPLICA_LABELS if name in each.labels), "")
        of_replica[name].append(each)
    if len(of_replica) <= 1:
        return [each for found in of_replica.values() for each in found]
    best = sorted(
        of_replica.items(), key=lambda item: (-sum(len(s.times) for s in item[1]), item[0])
    )
    found: dict[frozenset[tuple[str, str]], Series] = {}
    for _, listed in best:
        for each in listed:
            labels = {k: v for k, v in each.labels.items() if k not in _REPLICA_LABELS}
            found.setdefault(frozenset(labels.items()), each._replace(labels=labels))
    return list(found.values())


def _point(told: Any) -> tuple[float, float] | None:
    try:
        at, value = float(told[0]), float(told[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    return (at, value) if isfinite(at) and isfinite(value) else None
