"""Questions to real servers, and to those that fail."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
import urllib3

from gpumon.prometheus.access import Access
from gpumon.prometheus.client import PrometheusError, Server, TooMuchError, _pool_of
from tests.prometheus.conftest import Start
from tests.support.ports import free_port

_START = 1_795_200_000


def _history(count: int, metric: str = "m") -> str:
    lines = [f'{metric}{{a="b"}} {n} {_START + 30 * n}' for n in range(count)]
    return "\n".join([f"# TYPE {metric} gauge", *lines, "# EOF\n"])


def test_a_range_selector_gives_the_scrapes_themselves(prometheus: Start) -> None:
    server = Server(Access(prometheus(_history(100))))
    (found,) = server.series("m[600s]", _START + 600)
    assert found.labels == {"__name__": "m", "a": "b"}
    assert list(found.times)[-1] == _START + 600
    assert list(found.values)[-1] == 20
    assert {b - a for a, b in zip(found.times, found.times[1:])} == {30.0}
    assert server.queries == 1


def test_what_the_server_does_not_have_is_nothing(prometheus: Start) -> None:
    assert Server(Access(prometheus())).series("m[600s]", _START) == []


def test_a_wrong_query_is_the_servers_own_words(prometheus: Start) -> None:
    with pytest.raises(PrometheusError, match=r"status 400.*parse error"):
        Server(Access(prometheus())).series("m{", _START)


def test_values_of_a_label(prometheus: Start) -> None:
    server = Server(Access(prometheus(_history(10))))
    assert server.values("a", "m", _START, _START + 300) == ["b"]


def test_an_answer_has_a_bound(prometheus: Start) -> None:
    with pytest.raises(TooMuchError):
        Server(Access(prometheus(_history(5000))), max_bytes=10_000).series(
            "m[200000s]", _START + 150_000
        )


# -- credentials and certificates


def test_a_server_that_wants_credentials(prometheus: Start) -> None:
    hashed = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    url = prometheus(web=f"basic_auth_users:\n  ann: {hashed}\n")
    with pytest.raises(PrometheusError, match=r"requires credentials.*netrc") as refused:
        Server(Access(url)).series("up", _START)
    assert "geheim" not in str(refused.value)
    known = Access(url, {"Authorization": "Basic YW5uOmdlaGVpbQ=="})
    assert Server(known).series("up", _START) == []


def _certificate(folder: Path, name: str) -> str:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         f"/CN={name}", "-addext", f"subjectAltName={name}", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return f"tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n"


def test_a_certificate_must_be_known_and_of_this_name(prometheus: Start, tmp_path: Path) -> None:
    url = prometheus(web=_certificate(tmp_path, "IP:127.0.0.1"))
    with pytest.raises(PrometheusError, match=r"no valid certificate.*ca_file"):
        Server(Access(url)).series("up", _START)
    assert Server(Access(url, ca_file=str(tmp_path / "cert.pem"))).series("up", _START) == []


def test_a_certificate_of_another_name_is_refused(prometheus: Start, tmp_path: Path) -> None:
    url = prometheus(web=_certificate(tmp_path, "DNS:other.example.org"))
    with pytest.raises(PrometheusError, match="no valid certificate"):
        Server(Access(url, ca_file=str(tmp_path / "cert.pem"))).series("up", _START)


# -- servers that fail in ways that a real one cannot be made to


@contextmanager
def _answering(*parts: bytes, hold: threading.Event | None = None) -> Iterator[str]:
    """A server that sends these bytes to whoever asks, then waits for `hold`, and closes."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)
                for part in parts:
                    client.sendall(part)
                if hold is not None:
                    hold.wait()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        if hold is not None:
            hold.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _http(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_http(b"", "500 Internal Server Error"), "HTTP status 500"),
        (_http(b"<html>", "503 Service Unavailable"), "not available now"),
        (_http(b'{"status":"success","data":{"resu', length=5000), "cannot be reached|incomplete"),
        (_http(b'{"status":"success","data":{"resu'), "incomplete answer"),
        (_http(b"<html>hello</html>"), "is not Prometheus"),
        (_http(b"[]"), "is not Prometheus"),
        (_http(b'{"error":"bad\x1b[31m"}', "422 Unprocessable"), "status 422"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
def test_each_failure_is_one_sentence(answer: bytes, said: str) -> None:
    with _answering(answer) as url, pytest.raises(PrometheusError, match=said) as refused:
        Server(Access(url)).series("up", _START)
    text = str(refused.value)
    assert "\n" not in text
    assert "\x1b" not in text
    assert "Traceback" not in text
    assert text.startswith("127.0.0.1:")


def test_a_server_that_never_answers() -> None:
    silent = threading.Event()
    with _answering(hold=silent) as url, pytest.raises(PrometheusError, match="in time"):
        Server(Access(url), answer_s=0.3).series("up", _START)


def test_an_answer_that_never_ends() -> None:
    silent = threading.Event()
    begun = _http(b'{"status":', length=1000)
    with _answering(begun, hold=silent) as url, pytest.raises(PrometheusError, match="in time"):
        Server(Access(url), answer_s=0.3).series("up", _START)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(PrometheusError, match=r"cannot be reached.*check its URL"):
        Server(Access(f"http://127.0.0.1:{free_port()}")).series("up", _START)


@pytest.mark.parametrize(
    "result",
    [
        b"null", b"7", b"[null,7,{}]", b'[{"metric":{},"values":[[1,"x"],["y"],null,[2,"NaN"]]}]',
        b'[{"metric":{"a":7},"value":[1]}]', b'[{"metric":[],"value":[1,"2"]}]',
    ],
)  # fmt: skip
def test_what_is_no_series_is_left_out(result: bytes) -> None:
    body = b'{"status":"success","data":{"result":' + result + b"}}"
    with _answering(_http(body)) as url:
        assert Server(Access(url)).series("up", _START) == []


def test_hostile_labels_lose_their_control_characters() -> None:
    body = (
        b'{"status":"success","data":{"result":[{"metric":{"n":"\\u001b[31mx"},"value":[1,"2"]}]}}'
    )
    with _answering(_http(body)) as url:
        (found,) = Server(Access(url)).series("up", _START)
    assert "\x1b" not in found.labels["n"]


def test_no_proxy_names_an_ipv6_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "::1")
    for url in ("http://[::1]:9090", "http://[::1]"):
        assert not isinstance(_pool_of(Access(url), 5), urllib3.ProxyManager)
    assert isinstance(_pool_of(Access("http://[::2]"), 5), urllib3.ProxyManager)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_credentials_are_not_sent_to_another_host(status: int) -> None:
    seen: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):

        def answer(listening: socket.socket, text: str) -> None:
            client, _ = listening.accept()
            with client:
                seen.append(client.recv(1 << 16))
                client.sendall(text.encode())

        elsewhere = f"http://localhost:{other.getsockname()[1]}/api/v1/query"
        moved = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
        last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        for args in ((first, moved), (other, last)):
            threading.Thread(target=answer, args=args, daemon=True).start()
        url = f"http://127.0.0.1:{first.getsockname()[1]}"
        access = Access(url, {"Authorization": "Bearer geheim"})
        with pytest.raises(PrometheusError, match="not Prometheus"):
            Server(access, answer_s=10).series("m", _START)
    assert b"geheim" in seen[0]
    assert b"geheim" not in seen[1]
