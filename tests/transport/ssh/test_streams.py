"""Both ways by ssh against real servers: bytes, words, ends. One behaviour, two transports."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from gpumon.slurm.runner import NoSlurmError, SlurmError, SlurmTimeoutError
from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.ssh.transport import SshTransport
from gpumon.transport.stream import Failure
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S, until
from tests.transport.sshd import read_all

PYTHON = sys.executable
EVERY_BYTE = bytes(range(256))
SAY_PID = "import os, sys; print(os.getpid(), flush=True); "
#: as the agent does: ends with its input
UNTIL_EOF = SAY_PID + "sys.stdin.read()"
CAT = ["/bin/cat"]


class Nobody:
    """Nobody is there to answer."""

    def ask(self, question):
        return None


@pytest.fixture(params=["ssh", "openssh"])
def launch(request):
    """Makes transports of one kind, closed at the end."""
    made = []

    def make(login=None, timeout_s=20.0):
        if request.param == "ssh":
            made.append(SshTransport(Nobody(), login, timeout_s))
        else:
            made.append(OpensshTransport(login, timeout_s))
        return made[-1]

    vars(make)["kind"] = request.param
    yield make
    for transport in made:
        transport.close()


def test_a_slow_shell_is_given_more_time_when_tried_again(world, launch):
    """Start-up files that take turns, in a home directory of many nodes."""
    world.sshd("n1", ForceCommand='sleep 7; eval "$SSH_ORIGINAL_COMMAND"')
    transport, refused = launch(timeout_s=3.0), []
    while len(refused) < 5:
        try:
            stream = transport.open("n1", ["echo", "here"])
            break
        except Failure as failure:
            refused.append(failure.text)
    assert 1 <= len(refused) <= 4
    assert "shell" in refused[0]
    assert stream.read() == b"here\n"
    stream.close()


def test_bytes_arrive_unchanged_both_ways(world, launch):
    world.sshd("n1")
    stream = launch().open("n1", CAT)
    sent = EVERY_BYTE * 4096  # more than any window in one piece
    thread = threading.Thread(target=stream.write, args=(sent,))
    thread.start()
    got = b""
    while len(got) < len(sent):
        piece = stream.read()
        assert piece
        got += piece
    thread.join()
    assert got == sent
    stream.close()
    assert stream.read() == b""


@pytest.mark.parametrize(
    "word", ["two words", "a'b\"c", "line\nline", "$HOME `id` $(id)", "*", "", "\\", "ä é", "-x;y&"]
)
def test_words_arrive_unchanged(world, launch, word):
    world.sshd("n1")
    code = "import sys, os; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))"
    stream = launch().open("n1", [PYTHON, "-c", code, word, "last"])
    assert read_all(stream) == word.encode() + b"|last"
    stream.close()


def test_what_the_start_up_files_print_is_dropped(world, launch):
    """The server's ForceCommand stands for a .bashrc that prints; the last line has no end."""
    world.sshd("n1", ForceCommand="printf 'Welcome\\n%s' to-n1; eval \"$SSH_ORIGINAL_COMMAND\"")
    stream = launch().open("n1", ["/bin/echo", "own"])
    assert read_all(stream) == b"own\n"
    stream.close()


def test_the_last_line_of_standard_error_is_the_complaint(world, launch):
    world.sshd("n1")
    code = "import sys; sys.stderr.write('first\\nno \\x1b[31mmodule\\n'); sys.stdin.read()"
    stream = launch().open("n1", [PYTHON, "-c", code])
    until(lambda: stream.complaint() == "no ?[31mmodule")
    stream.close()


def test_standard_error_never_stops_the_command(world, launch):
    """Nobody reads 8 MB of it: its window is full long before."""
    world.sshd("n1")
    code = "import sys; sys.stderr.write('x' * 2**23 + '\\nend\\n'); print('through')"
    stream = launch().open("n1", [PYTHON, "-c", code])
    assert read_all(stream) == b"through\n"
    until(lambda: stream.complaint() == "end")
    stream.close()


def test_close_ends_a_blocked_read_and_the_command(world, launch):
    world.sshd("n1")
    stream = launch().open("n1", [PYTHON, "-c", UNTIL_EOF])
    pid = int(stream.read())
    ended = threading.Event()
    threading.Thread(target=lambda: (read_all(stream), ended.set()), daemon=True).start()
    closed(stream)
    assert ended.wait(HANGS_S)
    until(lambda: not psutil.pid_exists(pid))
    assert write_fails(stream)


def test_a_killed_server_ends_the_stream(world, launch):
    server = world.sshd("n1")
    stream = launch().open("n1", CAT)
    server.signal(signal.SIGKILL)
    assert read_all(stream) == b""
    assert write_fails(stream)
    stream.close()


def test_close_does_not_wait_for_a_frozen_server(world, launch):
    server = world.sshd("n1")
    stream = launch().open("n1", CAT)
    ended = threading.Event()
    threading.Thread(target=lambda: (read_all(stream), ended.set()), daemon=True).start()
    server.signal(signal.SIGSTOP)
    writing = threading.Thread(target=lambda: swallow(stream, b"x" * 2**25), daemon=True)
    writing.start()  # until everything between is full
    writing.join(1.0)
    assert writing.is_alive()
    closed(stream)
    assert ended.wait(HANGS_S)
    writing.join(HANGS_S)
    assert not writing.is_alive()


def closed(stream):
    """Close it, and fail where that hangs."""
    closing = threading.Thread(target=stream.close, daemon=True)
    closing.start()
    closing.join(HANGS_S / 2)
    assert not closing.is_alive()


def swallow(stream, data):
    with contextlib.suppress(OSError):
        stream.write(data)


def write_fails(stream):
    """Soon, and by OSError: what lies between may still take some."""
    until = time.monotonic() + HANGS_S
    while time.monotonic() < until:
        try:
            stream.write(b"x" * 65536)
        except OSError:
            return True
    return False


CLIENT = """
import sys, time
from gpumon.transport.{module} import {name}
from tests.transport.ssh.test_streams import Nobody
transport = {make}
stream = transport.open("n1", sys.argv[1:])
print(int(stream.read()), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("login", [None, "login"])
def test_a_client_killed_with_9_leaves_nothing_on_the_node(world, launch, login):
    world.sshd("n1")
    world.sshd("login")
    kind = launch.kind
    name = "SshTransport" if kind == "ssh" else "OpensshTransport"
    make = f"{name}(Nobody(), {login!r})" if kind == "ssh" else f"{name}({login!r})"
    module = "ssh.transport" if kind == "ssh" else kind
    program = CLIENT.format(module=module, name=name, make=make)
    client = subprocess.Popen(
        [PYTHON, "-c", program, PYTHON, "-c", UNTIL_EOF],
        env=environment(PATH=os.environ["PATH"]), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid = int(client.stdout.readline())
    ours = psutil.Process(client.pid).children(recursive=True)
    assert psutil.pid_exists(pid)
    client.kill()
    client.wait()
    until(lambda: not psutil.pid_exists(pid))
    until(lambda: not any(alive(one) for one in ours))


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


# -- jumps
def test_the_configuration_s_jumps_are_taken(world, launch):
    world.sshd("login")
    world.sshd("inner")
    node = world.sshd()
    world.host("n1", node.port, ProxyJump="login,inner")
    stream = launch().open("n1", ["/bin/echo", "here"])
    assert read_all(stream) == b"here\n"
    assert [server.logins() for server in world.servers] == [1, 1, 1]
    stream.close()


def test_a_given_login_host_replaces_the_configured_jumps(world, launch):
    login = world.sshd("login")
    node = world.sshd()
    world.host("n1", node.port, ProxyJump="no-such-host.invalid")
    stream = launch("login").open("n1", ["/bin/echo", "here"])
    assert read_all(stream) == b"here\n"
    assert login.logins() == 1
    stream.close()


def test_a_login_host_without_forwarding_says_so(world, launch):
    world.sshd("login", AllowTcpForwarding="no")
    world.sshd("n1")
    with pytest.raises(Failure) as caught:
        launch("login").open("n1", CAT)
    assert caught.value.text == "login does not allow jumps to n1 (AllowTcpForwarding)"
    assert caught.value.command == "ssh -J login n1"
    assert caught.value.final
    assert caught.value.try_next


def test_jumps_in_a_circle_end(world, launch):
    world.host("n1", 22, ProxyJump="a")
    world.host("a", 22, ProxyJump="b")
    world.host("b", 22, ProxyJump="a")
    with pytest.raises(Failure, match="ProxyJump loop: a -> b -> a"):
        launch().open("n1", CAT)


# -- many at once
def test_a_storm_of_connections_gets_through_a_small_server(world, launch):
    """sshd drops every connection from the third unfinished one on: each must be tried again."""
    server = world.sshd("n1", MaxStartups="3:60:6")
    transport = launch()
    streams, failures = [], []

    def one():
        try:
            streams.append(transport.open("n1", CAT))
        except Failure as failure:
            failures.append(failure.text)

    threads = [threading.Thread(target=one) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for stream in streams:
        stream.close()
    assert (len(streams), failures) == (16, [])
    assert "MaxStartups" in server.log()  # it did drop some


# -- commands on the login host
def test_commands_run_on_the_login_host(world, launch):
    world.sshd("login")
    transport = launch("login")
    argv = ["/bin/sh", "-c", 'printf "%s|%s" "$0" "$TZ"; echo warned >&2; exit 3', "a 'b'"]
    done = transport.run(argv, env={"TZ": "Europe/X y"}, timeout_s=HANGS_S)
    assert (done.code, done.out) == (3, b"a 'b'|Europe/X y")
    assert done.err.strip().endswith("warned")


def test_a_command_s_own_255_is_not_ssh_s(world, launch):
    world.sshd("login")
    done = launch("login").run(["/bin/sh", "-c", "exit 255"], env={}, timeout_s=HANGS_S)
    assert done.code == 255


def test_a_command_that_is_not_there(world, launch):
    world.sshd("login")
    with pytest.raises(NoSlurmError, match="no-such-sacct not found on login"):
        launch("login").run(["no-such-sacct"], env={}, timeout_s=HANGS_S)


def test_a_command_that_takes_too_long(world, launch):
    world.sshd("login")
    transport = launch("login")
    assert transport.run(["echo", "once"], env={}, timeout_s=HANGS_S).out == b"once\n"
    with pytest.raises(SlurmTimeoutError, match="sleep took too long on login"):
        transport.run(["sleep", "600"], env={}, timeout_s=1.5)
    assert transport.run(["echo", "again"], env={}, timeout_s=HANGS_S).out == b"again\n"


def test_a_login_host_that_is_not_there(world, launch):
    with pytest.raises(SlurmError, match="unknown host"):
        launch("no-such-host.invalid").run(["squeue"], env={}, timeout_s=HANGS_S)


def test_more_commands_than_the_server_has_sessions(world, launch):
    world.sshd("login", MaxSessions="1")
    transport = launch("login")
    found = []

    def one():
        found.append(transport.run(["sleep", "0.2"], env={}, timeout_s=HANGS_S).code)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    assert found == [0] * 4


def test_a_program_on_the_login_host(world, launch):
    """srun is started so: both ends stay open, and closing it leaves the connection to others."""
    world.sshd("login")
    transport = launch("login")
    streams = [transport.open_login(CAT) for _ in range(2)]
    for number, stream in enumerate(streams):
        stream.write(b"%d\n" % number)
        assert stream.read() == b"%d\n" % number
    streams[0].close()
    assert streams[0].read() == b""
    streams[1].write(b"still\n")
    assert streams[1].read() == b"still\n"
    assert transport.run(["/bin/echo", "x"], env={}, timeout_s=HANGS_S).out == b"x\n"
    streams[1].close()


def test_a_program_that_is_not_on_the_login_host_says_so(world, launch):
    world.sshd("login")
    stream = launch("login").open_login(["/no/srun"])
    assert read_all(stream) == b""
    until(stream.complaint)
    assert "/no/srun" in stream.complaint()
