"""How scrapes are answered: who may, how many, and how it ends."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import bcrypt
import pytest

from gpumon.errors import UsageError
from gpumon.exporter.access import Gate, read_web_config
from gpumon.exporter.serve import parse_address
from tests.exporter.conftest import Start
from tests.support.waiting import until

slow = pytest.mark.slow


@slow
def test_it_ends_on_a_signal(exporter: Start) -> None:
    started = exporter("a100x4")
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(60) == 143
    assert started.log.read_text().count("\n") == 1


@slow
def test_a_client_that_never_reads_delays_nobody(exporter: Start) -> None:
    started = exporter("a100x4")
    port = int(started.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    assert "gpumon_gpu_up" in started.scrape()
    for each in idle:
        each.close()


@slow
def test_too_many_at_once_are_refused_and_it_recovers(exporter: Start) -> None:
    started = exporter("a100x4")
    port = int(started.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    for each in idle:
        each.close()

    def answers() -> bool:
        try:
            return "gpumon_gpu_up" in started.scrape()
        except OSError:
            return False

    until(answers)


@slow
def test_who_sends_a_byte_now_and_then_does_not_keep_others_out(exporter: Start) -> None:
    started = exporter("a100x4")
    port = int(started.url.rpartition(":")[2])
    slow_ones = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]

    def answers() -> bool:
        for each in slow_ones:
            with suppress(OSError):
                each.send(b"G")
        try:
            return "gpumon_gpu_up" in started.scrape()
        except OSError:
            return False

    until(answers)
    for each in slow_ones:
        each.close()


@slow
@pytest.mark.parametrize(
    "sent",
    [
        b"\0\xff\n\r\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n",
        b"HEAD /metrics HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX: " + 100_000 * b"x" + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + 500 * b"X: y\r\n" + b"\r\n",
        b"GET /%00../metrics HTTP/1.1\r\nAuthorization: \xff\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
    ids=range(9),
)  # fmt: skip
def test_garbage_is_refused_and_the_next_scrape_answered(exporter: Start, sent: bytes) -> None:
    started = exporter("a100x4")
    where = ("127.0.0.1", int(started.url.rpartition(":")[2]))
    # it may hang up before all was sent
    with socket.create_connection(where) as client, suppress(OSError):
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"gpumon_gpu" not in client.recv(1 << 16)
    assert "gpumon_gpu_up" in started.scrape()
    assert "Traceback" not in started.log.read_text()


@slow
def test_a_port_in_use_is_one_line(exporter: Start) -> None:
    started = exporter("a100x4")
    address = started.url.partition("//")[2]
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "exporter", "--listen", address],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Address already in use; give another --listen" in done.stderr


@slow
def test_tls_and_users(exporter: Start, tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    hashed = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    config = tmp_path / "web.yml"
    config.write_text(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
        f"basic_auth_users:\n  ann: {hashed}\n"
    )
    started = exporter("a100x4", "--web-config", str(config))
    assert started.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(cert))
    url = f"{started.url}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, context=trusted)
    wrong = urllib.request.Request(url, headers={"Authorization": "Basic YW5uOm5laW4="})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(wrong, context=trusted)
    right = urllib.request.Request(url, headers={"Authorization": "Basic YW5uOmdlaGVpbQ=="})
    with urllib.request.urlopen(right, context=trusted) as answer:
        assert b"gpumon_gpu_up" in answer.read()
    assert "geheim" not in started.log.read_text()


@slow
def test_a_file_for_the_textfile_collector(exporter: Start, tmp_path: Path) -> None:
    path = tmp_path / "gpumon.prom"
    started = exporter("a100x4", "--textfile", str(path))
    until(path.exists)
    text = path.read_text()
    assert "gpumon_gpu_up{" in text
    assert "# EOF" not in text
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir() if "prom" in each.name] == ["gpumon.prom"]
    assert started.process.poll() is None


@slow
@pytest.mark.parametrize("path", ["/", "/-/healthy", "/metrics?x=1"])
def test_other_pages(exporter: Start, path: str) -> None:
    with urllib.request.urlopen(exporter("no_driver").url + path) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9835", ("127.0.0.1", 9835)),
        (":9835", ("", 9835)),
        ("[::1]:0", ("::1", 0)),
        ("node01:80", ("node01", 80)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9835", "host", "host:x", "host:70000", "::1:80", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "not valid YAML"),
        ("- a", "must be a mapping"),
        ("tls_server: {}", "not supported"),
        ("tls_server_config: {cert_file: x, key_file: y}", "certificate or key"),
        ("tls_server_config: {key_file: y}", "cert_file must name a file"),
        ("tls_server_config: {cert_file: 3}", "cert_file must name a file"),
        ("basic_auth_users: {ann: geheim}", "must be a bcrypt hash"),
        ("basic_auth_users: [ann]", "must be a mapping"),
    ],
)
def test_a_wrong_web_config_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "web.yml"
    path.write_text(content)
    with pytest.raises(UsageError, match=said) as refused:
        read_web_config(str(path))
    assert "\n" not in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_an_empty_web_config_lets_everybody_in(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("")
    assert read_web_config(str(path)) == (None, {})
    assert Gate({}).admits("")


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !", "Bearer YTpi", "Basic YTpi", "Basic /w=="]
)
def test_a_wrong_header_is_refused(header: str) -> None:
    gate = Gate({"ann": bcrypt.hashpw(b"geheim", bcrypt.gensalt(4))})
    assert not gate.admits(header)
    assert gate.admits("Basic YW5uOmdlaGVpbQ==")
    assert not gate.admits(header)
