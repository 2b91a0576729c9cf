"""Logging in with paramiko: agent, key files, certificates, passwords, codes, and who is asked."""

from __future__ import annotations

import getpass
import os
import subprocess
import threading
from functools import partial
from unittest.mock import Mock

import pytest

from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.prompt import Question
from gpumon.transport.ssh.transport import SshTransport
from gpumon.transport.stream import Failure
from tests.support.waiting import HANGS_S
from tests.transport.paramiko_server import AskingServer
from tests.transport.ssh.test_streams import CAT
from tests.transport.sshd import keygen, public, read_all

#: a machine under load may need longer than people wait
Transport = partial(SshTransport, timeout_s=HANGS_S)


class Person:
    """Answers by kind, from lists; None: cancels."""

    def __init__(self, **answers):
        self._answers = {kind.replace("_", "-"): list(given) for kind, given in answers.items()}
        self.asked: list[Question] = []

    def ask(self, question):
        self.asked.append(question)
        given = self._answers.get(question.kind) or [None]
        return given.pop(0)


def hello(transport, node="n1"):
    stream = transport.open(node, ["/bin/echo", "hello"])
    try:
        return read_all(stream) == b"hello\n"
    finally:
        stream.close()


@pytest.fixture
def login(world):
    """Starts a login host that asks; the configuration leads `login` to it."""
    running = []

    def start(**asks):
        host_key = keygen(world.folder / f"login_key{len(running)}")
        server = AskingServer(host_key, **asks)
        running.append(server)
        world.host("login", server.port)
        with world.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{server.port} {public(host_key)}\n")
        return server

    yield start
    for server in running:
        server.stop()


# -- keys
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_file_of_each_kind(world, kind):
    key = keygen(world.folder / f"file_{kind}", kind)
    server = world.sshd("n1", AuthorizedKeysFile=f"{key}.pub")
    world.write_config(*world.blocks, IdentityFile=str(key))
    assert hello(Transport(Person()))
    assert server.logins() == 1


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_of_the_agent(world, kind):
    key = keygen(world.folder / f"held_{kind}", kind)
    world.agent(key)
    os.remove(key)
    world.sshd("n1", AuthorizedKeysFile=f"{key}.pub")
    assert hello(Transport(Person()))


def test_an_agent_that_the_configuration_names(world, monkeypatch):
    key = keygen(world.folder / "held")
    world.agent(key)
    sock = os.environ["SSH_AUTH_SOCK"]
    monkeypatch.delenv("SSH_AUTH_SOCK")
    world.sshd("n1", AuthorizedKeysFile=f"{key}.pub")
    world.write_config(*world.blocks, IdentityAgent=sock)
    assert hello(Transport(Person()))


def test_with_identities_only_the_agent_s_others_are_not_offered(world):
    """Eight keys in the agent and three tries: only the configured one may be offered."""
    world.agent(*(keygen(world.folder / f"other{number}") for number in range(8)), world.key)
    world.sshd("n1", MaxAuthTries="2")
    world.write_config(*world.blocks, IdentitiesOnly="yes")
    assert hello(Transport(Person()))


def test_the_agent_s_configured_key_is_offered_first(world):
    world.agent(*(keygen(world.folder / f"other{number}") for number in range(8)), world.key)
    world.sshd("n1", MaxAuthTries="2")
    assert hello(Transport(Person()))


def test_a_dead_agent_is_no_reason_to_fail(world, monkeypatch):
    world.sshd("n1")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(world.folder / "nothing"))
    assert hello(Transport(Person()))


def test_a_passphrase_is_asked_once_for_many_nodes(world):
    key = keygen(world.folder / "locked", passphrase="ge heim")
    world.sshd("n1", "n2", "n3", AuthorizedKeysFile=f"{key}.pub")
    world.write_config(*world.blocks, IdentityFile=str(key))
    person = Person(passphrase=["wrong", "ge heim"])
    transport = Transport(person)
    done = []
    threads = [
        threading.Thread(target=lambda node=node: done.append(hello(transport, node)))
        for node in ("n1", "n2", "n3")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 3
    assert [(one.kind, one.attempt, one.secret) for one in person.asked] == [
        ("passphrase", 1, True), ("passphrase", 2, True),
    ]  # fmt: skip
    assert person.asked[0].host == str(key)


def test_a_cancelled_passphrase_is_not_asked_for_again(world):
    key = keygen(world.folder / "locked", passphrase="ge heim")
    world.sshd("n1", "n2", AuthorizedKeysFile=f"{key}.pub")
    world.write_config(*world.blocks, IdentityFile=str(key))
    person = Person()
    transport = Transport(person)
    for node in ("n1", "n2"):
        with pytest.raises(Failure, match="no key was accepted"):
            transport.open(node, CAT)
    assert len(person.asked) == 1


def test_the_passphrase_of_a_key_in_the_agent_is_not_asked(world):
    key = keygen(world.folder / "locked")
    world.agent(key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "ge heim", "-f", key], check=True)
    world.sshd("n1", AuthorizedKeysFile="none")
    world.write_config(*world.blocks, IdentityFile=str(key))
    person = Person()
    with pytest.raises(Failure):
        Transport(person).open("n1", CAT)
    assert person.asked == []


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
@pytest.mark.parametrize("named", [False, True])
def test_a_certificate_of_the_user(world, kind, named):
    """The server knows the authority only, not the key."""
    authority = keygen(world.folder / "user_ca")
    key = keygen(world.folder / "certified", kind)
    sign = [
        "ssh-keygen",
        "-q",
        "-s",
        authority,
        "-I",
        "test",
        "-n",
        getpass.getuser(),
        f"{key}.pub",
    ]
    subprocess.run(sign, check=True)
    world.sshd("n1", AuthorizedKeysFile="none", TrustedUserCAKeys=f"{authority}.pub")
    more = {}
    if named:
        os.rename(f"{key}-cert.pub", world.folder / "elsewhere")
        more["CertificateFile"] = str(world.folder / "elsewhere")
    world.write_config(*world.blocks, IdentityFile=str(key), **more)
    assert hello(Transport(Person()))


def test_two_keys_that_are_both_needed(world):
    second = keygen(world.folder / "second")
    both = world.folder / "both.pub"
    both.write_text(f"{public(world.key)}\n{public(second)}\n")
    server = world.sshd(
        "n1", AuthorizedKeysFile=str(both), AuthenticationMethods="publickey,publickey"
    )
    world.write_config(*world.blocks, IdentityFile=f"{world.key}\n  IdentityFile {second}")
    assert hello(Transport(Person()))
    assert "Partial publickey" in server.log()


# -- people
def test_one_login_with_a_password_carries_all_nodes(world, login):
    server = login(password="right")
    world.sshd("n1", "n2", "n3")
    person = Person(password=["wrong", "right"])
    transport = Transport(person, "login")
    done = []
    threads = [
        threading.Thread(target=lambda node=node: done.append(hello(transport, node)))
        for node in ("n1", "n2", "n3")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 3
    assert server.logins == 1
    assert [one.attempt for one in person.asked] == [1, 2]
    assert person.asked[0].host == "login"
    assert person.asked[0].kind == "password"
    transport.close()


def test_a_lost_login_connection_is_made_again_with_the_same_password(world, login):
    server = login(password="right")
    world.sshd("n1")
    person = Person(password=["right"])
    transport = Transport(person, "login")
    assert hello(transport)
    server.drop()
    assert hello(transport)
    assert server.logins == 2
    assert len(person.asked) == 1


def test_a_login_connection_that_no_write_reaches_is_made_again(world, login, monkeypatch):
    """A write may find it dead before its reader does."""
    server = login(password="right")
    world.sshd("n1")
    transport = Transport(Person(password=["right"]), "login")
    assert hello(transport)
    (carrier,) = transport._carriers.values()
    monkeypatch.setattr(
        carrier.result().transport, "_send_user_message", Mock(side_effect=EOFError)
    )
    assert hello(transport)
    assert server.logins == 2


DUO = [
    [("Password for ada:", False, "right")],
    [("Passcode (1-3):", True, "123456"), ("PIN:", False, "99")],
]


def test_a_second_factor_is_asked_once_in_its_own_words(world, login):
    server = login(rounds=DUO)
    world.sshd("n1", "n2")
    person = Person(password=["right"], code=["123456", "99"])
    transport = Transport(person, "login")
    assert hello(transport)
    assert hello(transport, "n2")
    assert server.logins == 1
    assert [(one.kind, one.secret) for one in person.asked] == [
        ("password", True), ("code", False), ("code", True),
    ]  # fmt: skip
    stream = transport.open_login(["/bin/cat"])  # as srun
    stream.write(b"x")
    assert stream.read() == b"x"
    stream.close()
    assert server.logins == 1
    assert person.asked[1].text == "Two factors\n1. Push\n2. ?[2JCode\nPasscode (1-3):"


def test_a_code_is_never_used_twice(world, login):
    server = login(rounds=DUO)
    world.sshd("n1")
    person = Person(password=["right"], code=["123456", "99", "123456", "99"])
    transport = Transport(person, "login")
    assert hello(transport)
    server.drop()
    assert hello(transport)
    assert [one.kind for one in person.asked].count("code") == 4
    assert [one.kind for one in person.asked].count("password") == 1


def test_a_wrong_password_in_a_conversation_is_asked_for_anew(world, login):
    login(rounds=DUO)
    world.sshd("n1")
    person = Person(password=["wrong", "right"], code=["123456", "99"])
    assert hello(Transport(person, "login"))
    assert [one.attempt for one in person.asked if one.kind == "password"] == [1, 2]


def test_a_key_and_then_a_code(world, login):
    """Partial success: the key is good, and a second factor follows."""
    base64_key = public(world.key).split()[1]
    server = login(rounds=[[("Code:", False, "7")]], key=base64_key)
    world.sshd("n1")
    person = Person(code=["7"])
    assert hello(Transport(person, "login"))
    assert server.logins == 1


@pytest.mark.parametrize("asks", [{"password": "right"}, {"rounds": DUO}])
def test_a_cancelled_login_is_final(world, login, asks):
    login(**asks)
    world.sshd("n1", "n2")
    person = Person()
    transport = Transport(person, "login")
    for node in ("n1", "n2"):
        with pytest.raises(Failure, match="@login: the login was cancelled") as caught:
            transport.open(node, CAT)
        assert caught.value.final
        assert caught.value.try_next
    assert len(person.asked) == 1


@pytest.mark.parametrize("asks", [{"password": "right"}, {"rounds": DUO}])
def test_wrong_answers_are_final_after_three(world, login, asks):
    login(**asks)
    world.sshd("n1")
    person = Person(password=["a", "b", "c", "d"])
    with pytest.raises(Failure, match="@login did not accept the answers") as caught:
        Transport(person, "login").open("n1", CAT)
    assert caught.value.final
    assert len(person.asked) == 3


def test_a_question_without_a_prompt_needs_nobody(world, login):
    """Duo's push on the telephone: a round that only says so."""
    login(rounds=[[]])
    world.sshd("n1")
    person = Person()
    assert hello(Transport(person, "login"))
    assert person.asked == []


# -- users
def test_behind_a_login_host_the_user_is_the_same(world):
    """No server has that user; what it was asked for stands in its log."""
    login = world.sshd("login")
    with pytest.raises(Failure, match="no-such-ada@login: no key was accepted"):
        Transport(Person(), "no-such-ada@login").open("n1", CAT)
    assert "no-such-ada" in login.log()


# -- host keys
def test_hashed_and_pattern_lines_of_known_hosts(world):
    server = world.sshd("n1")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", world.known_hosts], check=True)
    assert world.known_hosts.read_text().startswith("|1|")
    assert hello(Transport(Person()))
    world.known_hosts.write_text(f"bad line\n[127.0.0.?]:* {public(server.host_key)}\n")
    assert hello(Transport(Person()))


def test_the_key_that_is_known_is_asked_for(world):
    """The server prefers its ed25519 key; known_hosts has only its RSA key."""
    rsa = keygen(world.folder / "host_rsa", "rsa")
    server = world.sshd("n1", known=False, PidFile=f"none\nHostKey {rsa}")
    world.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public(rsa)}\n")
    assert hello(Transport(Person()))


def test_host_certificates_are_left_to_openssh(world):
    """The server has one, and known_hosts its authority alone."""
    authority, key = keygen(world.folder / "host_ca"), keygen(world.folder / "node_key")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "n1", "-h", "-n", "127.0.0.1"]
    subprocess.run([*sign, f"{key}.pub"], check=True)
    hosted = f"none\nHostKey {key}\nHostCertificate {key}-cert.pub"
    world.sshd("n1", known=False, PidFile=hosted)
    old = f"[127.0.0.1]:* {public(keygen(world.folder / 'before'))}"  # as it was before
    world.known_hosts.write_text(f"@cert-authority * {public(authority)}\n{old}\n")
    with pytest.raises(Failure, match="openssh checks the certificates") as caught:
        Transport(Person()).open("n1", CAT)
    assert caught.value.try_next
    assert hello(OpensshTransport())
