"""What ssh says of a host, and which way comes first because of it."""

from __future__ import annotations

import getpass
import os
import subprocess

import pytest

from gpumon.transport.ssh.config import (
    matches_pattern,
    node_settings,
    preferred_transport,
    route_to,
    ssh_settings,
)
from gpumon.transport.stream import Failure
from tests.support.waiting import until
from tests.transport.sshd import SSH, keygen

HOME = os.path.expanduser("~" + getpass.getuser())


def test_include_match_and_tokens_are_ssh_s(world, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/not/this")
    included = world.folder / "included"
    included.write_text("Match host n1\n  Port 2222\n")
    world.write_config(
        f"Include {included}\nMatch localuser nobody-at-all\n  User wrong\n"
        "Host n1\n  User ada\n  HostName %h.hpc.example\n  HostKeyAlias Alias\n"
        "  IdentityFile ~/keys/%r@%h\n  IdentitiesOnly yes\n  CertificateFile %d/c.pub\n"
        "  IdentityAgent none\n  ProxyJump bob@login:23,gate\n"
    )
    found = ssh_settings("n1")
    assert (found.host, found.hostname, found.user, found.port) == (
        "n1", "n1.hpc.example", "ada", 2222,
    )  # fmt: skip
    assert found.identity_files[0] == f"{HOME}/keys/ada@n1.hpc.example"
    assert found.certificate_files == (f"{HOME}/c.pub",)
    assert found.identities_only
    assert found.agent == ""
    assert found.jumps == "bob@login:23,gate"
    assert found.host_key_names == ("alias",)
    assert found.known_hosts_files == (str(world.known_hosts),)


def test_the_user_in_a_name_wins_and_none_is_nothing(world):
    world.write_config("Host n1\n  User ada\n  ProxyJump none\n  ControlPath none\n")
    found = ssh_settings("bob@n1")
    assert (found.host, found.user, found.jumps, found.control_path) == ("n1", "bob", "", "")
    assert found.label == "bob@n1"
    assert found.host_key_names == ("n1",)
    assert found._replace(port=23).host_key_names == ("[n1]:23", "n1")


def test_without_ssh_its_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    found = ssh_settings("ada@n1", "login")
    assert (found.hostname, found.user, found.port, found.jumps) == ("n1", "ada", 22, "login")
    assert f"{HOME}/.ssh/id_ed25519" in found.identity_files
    assert found.known_hosts_files[0] == f"{HOME}/.ssh/known_hosts"
    assert "/etc/ssh/ssh_known_hosts" in found.known_hosts_files
    assert found.agent == "/agent"
    assert preferred_transport("n1") is None


def test_an_ssh_that_hangs_ends(world, monkeypatch):
    monkeypatch.setattr("gpumon.transport.ssh.config._ASK_S", 0.5)
    (world.folder / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(Failure, match="no answer within"):
        ssh_settings("n1")


def test_the_way_to_a_host(world):
    world.write_config("Host n1\n  ProxyJump a,b\nHost a\n  ProxyJump gate\n")
    assert [hop.host for hop in route_to(ssh_settings("n1"))] == ["gate", "a", "b", "n1"]
    assert [hop.host for hop in route_to(node_settings("n1", "login"))] == ["login", "n1"]


def test_the_user_behind_a_login_host(world):
    world.write_config("Host n2\n  User root2\n")
    assert node_settings("n1").user == getpass.getuser()
    assert node_settings("n1", "ada@login").user == "ada"
    assert node_settings("n2", "ada@login").user == "root2"


# -- which way first
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("HostbasedAuthentication yes", "n1: HostbasedAuthentication"),
        ("PKCS11Provider /usr/lib/x.so", "n1: PKCS11Provider"),
        ("ProxyCommand nc %h %p", "n1: ProxyCommand"),
        ("KnownHostsCommand /bin/true", "n1: KnownHostsCommand"),
        ("User ada", None),
        ("GSSAPIAuthentication no", None),
        ("ControlPath /nowhere/master", None),
        ("ProxyJump login", None),
        ("ProxyJump kerberos", "kerberos: HostbasedAuthentication"),
    ],
)
def test_what_only_the_system_s_ssh_can_do(world, line, why):
    world.write_config(f"Host n1\n  {line}\nHost kerberos\n  HostbasedAuthentication yes\n")
    found = preferred_transport("n1")
    assert (found and (found.name, found.why)) == (why and ("openssh", why))


@pytest.mark.parametrize("ticket", [True, False])
def test_gssapi_counts_only_with_a_ticket(world, ticket):
    klist = world.folder / "bin" / "klist"
    klist.write_text(f"#!/bin/sh\n[ $1 = -s ] && exit {0 if ticket else 1}\n")
    klist.chmod(0o755)
    world.write_config("Host n1\n  GSSAPIAuthentication yes\n")
    found = preferred_transport("n1")
    if ticket:
        assert found
        assert found.why == "n1: GSSAPIAuthentication with a Kerberos ticket"
    else:
        assert found is None


def test_a_fido_key(world):
    (world.folder / "id_sk.pub").write_text("sk-ssh-ed25519@openssh.com AAAA x\n")
    world.write_config(f"Host n1\n  IdentityFile {world.folder}/id_sk\n")
    found = preferred_transport("n1")
    assert found
    assert found.why == "n1: a FIDO key"


def test_an_open_master_at_the_login_host(world):
    world.sshd("login")
    world.write_config(*world.blocks, ControlPath=str(world.folder / "cm-%n"))
    assert preferred_transport("n1", "login") is None
    master = subprocess.Popen(
        [SSH, "-F", str(world.config), "-M", "-N", "login"], stdin=subprocess.DEVNULL
    )
    try:
        until(lambda: preferred_transport("n1", "login") is not None)
        found = preferred_transport("n1", "login")
        assert found
        assert found == ("openssh", "login: an open ControlMaster")
    finally:
        master.terminate()
        master.wait()


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "", True), ("*", "n1", True), ("n?", "n1", True), ("n?", "n12", False),
        ("N1", "n1", True), ("n[1-4]", "n1", False), ("n[1-4]", "n[1-4]", True),
        ("*.hpc.*", "a.hpc.b", True), ("*.hpc.*", "hpc.b", False), ("a*b*c", "aXbXbXc", True),
        ("a*b*c", "aXbXbX", False), ("", "", True), ("", "a", False), ("a", "", False),
        ("a.c", "abc", False), ("*a" * 50 + "b", "a" * 5000, False),
    ],
)  # fmt: skip
def test_patterns(pattern, name, fits):
    assert matches_pattern(pattern, name) is fits


def test_a_key_file_beside_none_is_no_fido_key(world):
    keygen(world.folder / "plain")
    world.write_config(f"Host n1\n  IdentityFile {world.folder}/plain\n")
    assert preferred_transport("n1") is None
