"""Every reason why there is no stream, from the real thing, and what is said then."""

from __future__ import annotations

import pty
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.ssh.transport import SshTransport
from gpumon.transport.stream import Failure, Transport
from tests.support.ports import free_port
from tests.support.waiting import HANGS_S
from tests.transport.ssh.test_streams import CAT, Nobody
from tests.transport.sshd import keygen, public, read_all


@pytest.fixture(params=["ssh", "openssh"])
def fail(request):
    """Opens a stream that must fail; the failure."""

    def attempt(node="n1", login=None, timeout_s=30.0):
        if request.param == "ssh":
            transport: Transport = SshTransport(Nobody(), login, timeout_s)
        else:
            transport = OpensshTransport(login, timeout_s)
        with pytest.raises(Failure) as caught:
            transport.open(node, CAT)
        transport.close()
        failure = caught.value
        assert failure.text.isprintable()
        return failure

    vars(attempt)["kind"] = request.param
    return attempt


@pytest.fixture
def hasty(monkeypatch):
    """No pauses between the tries."""
    monkeypatch.setattr("gpumon.transport.remote._FIRST_PAUSE_S", 0.01)


def nature(failure):
    return failure.final, failure.try_next


def test_a_name_that_nobody_knows(world, fail):
    failure = fail("no-such-node.invalid")
    assert failure.text == (
        "unknown host no-such-node.invalid; `ssh no-such-node.invalid` fails as well"
    )
    assert nature(failure) == (True, True)


def test_a_port_where_nothing_listens(world, fail):
    port = free_port()
    world.host("n1", port)
    failure = fail()
    assert f"not reachable at port {port}: Connection refused" in failure.text
    assert nature(failure) == (False, True)
    assert failure.command == "ssh n1"


def test_a_port_where_nothing_listens_behind_a_login_host(world, fail):
    world.sshd("login")
    world.host("n1", free_port())
    failure = fail(login="login")
    assert failure.text.startswith("login cannot reach 127.0.0.1 port ")
    assert failure.text.lower().endswith(("connect failed", "connection refused"))
    assert nature(failure) == (False, True)


def test_a_server_that_is_silent(world, fail):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        world.host("n1", silent.getsockname()[1])
        failure = fail(timeout_s=1.0)
    assert failure.text.startswith("timed out: ")
    assert nature(failure) == (False, True)


def test_a_frozen_server(world, fail):
    server = world.sshd("n1")
    server.signal(signal.SIGSTOP)
    assert fail(timeout_s=1.0).text.startswith("timed out: ")


def test_a_server_that_speaks_something_else(world, fail, hasty):
    with socket.create_server(("127.0.0.1", 0)) as web:
        world.host("n1", web.getsockname()[1])

        def serve():
            for _ in range(8):
                try:
                    taken, _ = web.accept()
                except OSError:
                    return
                taken.sendall(b"HTTP/1.0 400 \x1b[2JBad\r\n" * 200)
                time.sleep(0.2)
                taken.close()

        threading.Thread(target=serve, daemon=True).start()
        assert nature(fail(timeout_s=4.0)) == (False, True)


def test_a_server_that_turns_all_away(world, fail, hasty):
    """It closes every connection before a word, as sshd does beyond MaxStartups."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        world.host("n1", door.getsockname()[1])
        tries = []

        def serve():
            while True:
                try:
                    visitor, _ = door.accept()
                except OSError:
                    return
                tries.append(1)
                visitor.close()

        threading.Thread(target=serve, daemon=True).start()
        failure = fail()
    assert "refuses connections" in failure.text
    assert len(tries) == 6
    assert nature(failure) == (False, True)


# -- host keys
def test_an_unknown_host_key(world, fail):
    world.sshd("n1", known=False)
    failure = fail()
    assert failure.text == "host key of n1 is not known; run: ssh n1"
    assert nature(failure) == (True, True)
    assert world.known_hosts.read_text() == ""


def test_an_unknown_host_key_behind_a_login_host(world, fail):
    world.sshd("login")
    world.sshd("n1", known=False)
    assert fail(login="login").text == "host key of n1 is not known; run: ssh -J login n1"


def test_a_changed_host_key(world, fail):
    server = world.sshd("n1", known=False)
    other = public(keygen(world.folder / "other"))
    world.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}\n")
    failure = fail()
    assert failure.text.startswith("WARNING: the host key of n1 differs from the one in ")
    assert f"{world.known_hosts}:1" in failure.text
    assert nature(failure) == (True, False)


def test_a_revoked_host_key(world, fail):
    server = world.sshd("n1")
    with world.known_hosts.open("a") as file:
        file.write(f"@revoked * {public(server.host_key)}\n")
    failure = fail()
    assert failure.text.startswith("WARNING: the host key of n1 is revoked in ")
    assert nature(failure) == (True, False)


# -- logins
def test_no_key_is_accepted(world, fail):
    world.sshd("n1", AuthorizedKeysFile="none")
    failure = fail()
    assert "no key was accepted (offered: publickey)" in failure.text
    other = {"ssh": "openssh", "openssh": "srun"}[fail.kind]
    assert failure.text.endswith(f"try --via {other}")
    assert nature(failure) == (True, True)


def test_a_password_of_a_node_is_not_asked_for(world, fail):
    """A job may have 64 nodes."""
    options = {"PasswordAuthentication": "yes", "KbdInteractiveAuthentication": "yes"}
    world.sshd("n1", AuthorizedKeysFile="none", **options)
    assert "no key was accepted" in fail().text


def test_too_many_keys(world, fail):
    keys = [keygen(world.folder / f"key{number}") for number in range(8)]
    world.agent(*keys)
    world.sshd("n1", MaxAuthTries="3")
    failure = fail()
    assert "too many keys were offered" in failure.text
    assert "IdentitiesOnly" in failure.text


def test_words_of_the_server_are_shown_clean(world, fail):
    """pam_slurm_adopt's refusal, as a shell that ends."""
    said = "Access denied by pam_slurm_adopt: you have no active jobs on this node"
    world.sshd("n1", ForceCommand=f"printf '\\033[2J{said}\\n' >&2; exit 254")
    failure = fail()
    assert failure.text.endswith(f"the login shell does not start: ?[2J{said}")
    assert nature(failure) == (False, True)


def test_a_shell_that_hangs(world, fail):
    """A home directory that does not answer."""
    world.sshd("n1", ForceCommand="sleep 60")
    failure = fail(timeout_s=2.0)
    assert "shell" in failure.text
    assert nature(failure) == (False, True)


@pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "a b", "", "n1;x", "n\x1b1", "@", "x@"])
def test_what_is_no_name_of_a_host(world, fail, name):
    failure = fail(name)
    assert failure.text == "not a valid host name"
    assert nature(failure) == (True, False)


def test_a_configuration_that_cannot_be_read(world, fail):
    world.config.write_text("NoSuchOption yes\n")
    failure = fail()
    assert "invalid ssh configuration for n1" in failure.text
    assert "Bad configuration option" in failure.text
    assert failure.command == "ssh -G n1"


def test_without_the_system_s_ssh(world, monkeypatch):
    server = world.sshd("n1")
    monkeypatch.setenv("PATH", str(world.folder))
    with pytest.raises(Failure, match="ssh is not installed here"):
        OpensshTransport().open("127.0.0.1", CAT)
    with pytest.raises(Failure, match=r"not reachable at port 22|is not known|no key"):
        SshTransport(Nobody()).open("127.0.0.1", CAT)
    assert server.logins() == 0


def test_the_user_s_own_leniency_is_left_to_ssh(world):
    """StrictHostKeyChecking accept-new: paramiko stays strict; the next way is not."""
    world.sshd("n1", known=False)
    world.write_config(*world.blocks, StrictHostKeyChecking="accept-new")
    with pytest.raises(Failure, match="is not known") as caught:
        SshTransport(Nobody()).open("n1", CAT)
    assert caught.value.try_next
    stream = OpensshTransport().open("n1", ["/bin/echo", "here"])
    assert read_all(stream) == b"here\n"
    stream.close()


def test_the_launcher_that_was_closed_opens_nothing(world):
    world.sshd("n1")
    transport = SshTransport(Nobody())
    transport.close()
    with pytest.raises(Failure, match="cancelled"):
        transport.open("n1", CAT)


@pytest.mark.terminal
def test_openssh_s_jumps_never_ask_on_the_terminal(world):
    """ssh gives BatchMode to itself, not to the ssh of its jump: that must find no terminal."""
    world.sshd("login", AuthorizedKeysFile="none", PasswordAuthentication="yes")
    world.sshd("n1")
    program = (
        "import sys\nfrom gpumon.transport.openssh import OpensshTransport\n"
        "try: OpensshTransport('login').open('n1', ['true'])\n"
        "except Exception as error: print('FAILED', error)\n"
    )
    _ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
        timeout=HANGS_S, start_new_session=True,
    )  # fmt: skip
    assert b"FAILED" in done.stdout
    assert b"password" not in done.stdout.split(b"offered")[0]
