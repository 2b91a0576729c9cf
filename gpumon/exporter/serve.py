"""The newest snapshot over HTTP, or into a file for node_exporter's textfile collector."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from gpumon.errors import GpumonError, UsageError
from gpumon.exporter.access import Gate, WebConfig
from gpumon.exporter.aliases import alias_metrics
from gpumon.exporter.metrics import metrics
from gpumon.exporter.sampling import NodeSampler, Snapshot
from gpumon.files import write_file

DEFAULT_ADDRESS = "127.0.0.1:9835"
#: s; who reads no faster is cut off
_CLIENT_S = 10.0
#: scrapes at once; more are refused, as their threads would be the node's
_MOST_CLIENTS = 16


class Page:
    """A snapshot as text, written once however often it is asked for."""

    def __init__(self, sampler: NodeSampler, names: tuple[str, ...], *, processes: bool) -> None:
        self._sampler, self._names, self._processes = sampler, names, processes
        self._lock = threading.Lock()
        self._texts: dict[str, tuple[int, bytes]] = {}

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The body, and its type."""
        encoder, kind = choose_encoder(accept)
        snapshot = self._sampler.snapshot
        with self._lock:
            generation, text = self._texts.get(kind, (-1, b""))
            if generation != snapshot.generation:
                text = encoder(self._registry(snapshot))
                self._texts[kind] = snapshot.generation, text
        return text, kind

    def plain(self) -> bytes:
        """In the format that node_exporter reads."""
        return generate_latest(self._registry(self._sampler.snapshot))

    def _registry(self, snapshot: Snapshot) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(lambda: self._all(snapshot)))
        return registry

    def _all(self, snapshot: Snapshot) -> Iterator[Metric]:
        yield from metrics(snapshot, processes=self._processes)
        for names in self._names:
            yield from alias_metrics(snapshot, names)


class _Once(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def parse_address(text: str) -> tuple[str, int]:
    """`ADDR:PORT`, `[::1]:PORT` or `:PORT` (all interfaces). Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not port.isdecimal()
        or not 0 <= int(port) < 65536
        or (":" in host and host[:1] != "[")
    ):
        raise UsageError(
            f"{text!r} is not a valid address: expected ADDR:PORT, e.g. 127.0.0.1:9835"
        )
    return host.strip("[]"), int(port)


class ExporterServer(ThreadingHTTPServer):
    """Answers scrapes; a slow one delays no other."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: Page, web: WebConfig) -> None:
        """Raises GpumonError where the address cannot be listened on."""
        host, port = address
        self.address_family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        self.page, self.gate, self._tls = page, Gate(web.users), web.tls
        self._room = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._open: dict[socket.socket, float] = {}  # since when, oldest first
        try:
            super().__init__((host or "::", port), _Handler)
        except OSError as error:
            why = error.strerror or str(error)
            raise GpumonError(
                f"cannot listen on {host}:{port}: {why}; give another --listen ADDR:PORT"
            ) from None

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)  # HTTPServer's looks up a name

    def process_request(self, request: object, client_address: object) -> None:
        if not self._room.acquire(blocking=False):
            self._cut_off_the_slow()
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def _cut_off_the_slow(self) -> None:
        """Who sends a byte now and then is within each timeout, and would stay for ever."""
        for each, since in list(self._open.items()):
            if time.monotonic() - since > _CLIENT_S:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        connection = request
        self._open[connection] = time.monotonic()
        try:
            request.settimeout(_CLIENT_S)
            if self._tls is not None:  # in the thread: a handshake may take long
                request = self._tls.wrap_socket(request, server_side=True)
                self._open[request] = self._open.pop(connection)
                connection = request
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            del self._open[connection]
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nothing to write about."""


class _Handler(BaseHTTPRequestHandler):
    server: ExporterServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gpumon", ""

    def do_GET(self) -> None:
        if not self.server.gate.admits(self.headers.get("Authorization", "")):
            challenge = ("WWW-Authenticate", 'Basic realm="gpumon"')
            self._answer(401, b"unauthorized\n", "text/plain", challenge)
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, *self.server.page.text(self.headers.get("Accept", "")))
        elif path == "/-/healthy":
            self._answer(200, b"ok\n", "text/plain")
        elif path == "/":
            self._answer(200, _INDEX, "text/html; charset=utf-8")
        else:
            self._answer(404, b"not found; see /metrics\n", "text/plain")

    def _answer(self, code: int, body: bytes, kind: str, *more: tuple[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Nothing: a service's log is for what goes wrong."""


_INDEX = b"""<!doctype html><title>gpumon exporter</title>
<h1>gpumon exporter</h1><p><a href="/metrics">metrics</a></p>
"""


def write_textfile(path: str, page: Page) -> None:
    """Beside, then renamed, so that no half of it is read. Raises GpumonError."""
    write_file(path, page.plain().decode())
    os.chmod(path, 0o644)
