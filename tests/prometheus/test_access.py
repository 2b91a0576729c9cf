"""Where a server is, and the credentials that go with every request."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gpumon.errors import UsageError
from gpumon.prometheus.access import access_to
from gpumon.site.prometheus import Prometheus


def _sent(access_headers: object) -> str:
    assert isinstance(access_headers, dict)
    return str(access_headers.get("Authorization", ""))


def test_the_url_loses_what_is_no_part_of_it() -> None:
    assert (
        access_to(Prometheus(), "http://prom:9090/base/?x=1#y", {}).url == "http://prom:9090/base"
    )


@pytest.mark.parametrize(
    "url",
    ["", "prom:9090", "ftp://prom", "http://", "http://prom:0", "http://prom:x", "http://[::1"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="valid"):
        access_to(Prometheus(), url, {})


def test_credentials_in_the_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        access_to(Prometheus(), "https://ann:geheim@prom.example.org", {})
    assert "geheim" not in str(refused.value)
    assert "netrc" in str(refused.value)


def test_a_token_comes_from_the_environment_first(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-file\n")
    site = Prometheus(url="https://prom", token_file=str(tmp_path / "token"))
    assert _sent(access_to(site, "", {}).headers) == "Bearer of-file"
    env = {"GPUMON_PROMETHEUS_TOKEN": "of-env"}
    assert _sent(access_to(site, "", env).headers) == "Bearer of-env"


def test_a_password_file_goes_with_the_username(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    site = Prometheus("https://prom", username="ann", password_file=str(tmp_path / "password"))
    kind, _, coded = _sent(access_to(site, "", {}).headers).partition(" ")
    assert (kind, base64.b64decode(coded)) == ("Basic", b"ann:geheim")


def test_netrc_is_by_host(tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine prom.example.org login ann password geheim\n")
    env = {"NETRC": str(tmp_path / "netrc")}
    assert _sent(access_to(Prometheus(), "https://prom.example.org:9090", env).headers)
    assert not _sent(access_to(Prometheus(), "https://other.example.org", env).headers)


def test_the_sites_credentials_go_to_its_own_server_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    site = Prometheus("https://prom.example.org", token_file=str(tmp_path / "token"))
    assert _sent(access_to(site, "https://prom.example.org/x", {}).headers)
    assert not _sent(access_to(site, "https://evil.example.org", {"NETRC": "/dev/null"}).headers)


def test_a_token_of_the_environment_goes_where_the_user_says() -> None:
    env = {"GPUMON_PROMETHEUS_TOKEN": "t"}
    assert _sent(access_to(Prometheus(), "https://prom", env).headers) == "Bearer t"


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: 1", "a\x1b[31m"])
def test_a_secret_cannot_add_a_header(token: str) -> None:
    with pytest.raises(UsageError, match="control characters"):
        access_to(Prometheus(), "https://prom", {"GPUMON_PROMETHEUS_TOKEN": token})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    site = Prometheus("https://prom", token_file=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="none: No such file"):
        access_to(site, "", {})


def test_no_secret_is_in_the_repr() -> None:
    assert "geheim" not in repr(
        access_to(Prometheus(), "https://prom", {"GPUMON_PROMETHEUS_TOKEN": "geheim"})
    )
