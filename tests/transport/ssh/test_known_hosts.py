"""known_hosts files, compared with what ssh-keygen finds in them."""

from __future__ import annotations

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.transport.ssh.known_hosts import HostKey, KnownHosts, matches, read_known_hosts
from tests.transport.sshd import keygen, public


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return [public(keygen(folder / f"key{number}")) for number in range(3)]


def shown(key):
    kind, text = key.split()
    return HostKey(kind, base64.b64decode(text))


def verdict(file, key, *names):
    return KnownHosts([str(file), "/nowhere"], names).verdict(shown(key))


def test_bad_lines_hide_no_good_ones(tmp_path, keys):
    file = tmp_path / "known_hosts"
    file.write_bytes(
        b"# comment\n\n\xff\xfe broken\nn1\nn1 ssh-ed25519\nn1 ssh-ed25519 AAAA!\n"
        b"n1 ssh-rsa " + keys[1].split()[1].encode() + b"\n"  # the type is not the key's
        b"@strange n1 " + keys[1].encode() + b"\n|1|x|y " + keys[1].encode() + b"\n"
        b"|9|AAAA|AAAA " + keys[1].encode() + b"\n"
        b"  n1\t" + keys[0].encode() + b" comment here\n"
    )  # fmt: skip
    assert [one.key for one in read_known_hosts(str(file)) if one.names == "n1"] == [
        shown(keys[0]).key
    ]
    assert verdict(file, keys[0], "n1") == ("known", f"{file}:11")


def test_standings(tmp_path, keys):
    file = tmp_path / "known_hosts"
    file.write_text(f"n1,n2 {keys[0]}\n@revoked * {keys[2]}\n*.x,!bad.x {keys[0]}\n")
    assert verdict(file, keys[0], "n2").standing == "known"
    assert verdict(file, keys[1], "n1") == ("changed", f"{file}:1")
    assert verdict(file, keys[0], "n3") == ("unknown", "")
    assert verdict(file, keys[2], "n3") == ("revoked", f"{file}:2")
    assert verdict(file, keys[0], "good.x").standing == "known"
    assert verdict(file, keys[0], "bad.x").standing == "unknown"


def test_a_host_with_a_port_is_also_looked_for_without(tmp_path, keys):
    file = tmp_path / "known_hosts"
    file.write_text(f"n1 {keys[0]}\n")
    assert verdict(file, keys[0], "[n1]:23", "n1").standing == "known"
    # another key may be for another server of that host
    assert verdict(file, keys[1], "[n1]:23", "n1").standing == "unknown"


def test_a_key_of_another_type_is_not_a_change(tmp_path, keys):
    rsa = public(keygen(tmp_path / "rsa", "rsa"))
    file = tmp_path / "known_hosts"
    file.write_text(f"n1 {keys[0]}\n")
    assert verdict(file, rsa, "n1").standing == "unknown"
    assert KnownHosts([str(file)], ["n1"]).types() == ["ssh-ed25519"]


NAMES = ["n1", "[n1]:2222", "node.hpc.example", "10.1.2.3", "fe80::1"]


@pytest.mark.parametrize("hashed", [False, True])
def test_the_same_lines_as_ssh_keygen_finds(tmp_path, keys, hashed):
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{name} {keys[0]}\n" for name in NAMES))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True)
    for name in [*NAMES, "n2", "[n1]:22"]:
        done = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True)
        ours = KnownHosts([str(file)], [name]).verdict(shown(keys[0])).standing
        assert (ours == "known") == (done.returncode == 0), name


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_name_field_breaks_the_matching(field, name):
    assert matches(field, name) in (True, False)
