"""What hangs on a node before the agent runs stays there for seconds, however everything ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from gpumon.transport import payload as ship
from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.ssh.transport import SshTransport
from tests.e2e.program import environment
from tests.support.waiting import until
from tests.transport.ssh.test_streams import Nobody

#: each is a shell that some system has as /bin/sh; those that are here
SHELLS = [
    words
    for words in (
        ["/bin/sh"],
        ["dash"],
        ["bash", "--posix"],
        ["busybox", "sh"],
        ["mksh"],  # not ksh93: its pipes are sockets, which /proc does not open again
    )
    if shutil.which(words[0])
]
MARK = "GPUMON_TEST_LIVES"

#: what a `python3` of a node may do instead of running; PYTHON stands for one that works
PROBED = 'case "$*" in *version_info*) exec PYTHON "$@";; esac; '
HANGS = {
    "at once": "exec sleep 600",
    "in a child": "sleep 600; echo",
    "in a child whose parent ended": "(sleep 600 & sleep 600) & sleep 600",
    "in a session of its own": "setsid -w sleep 600",
    "deaf": "trap '' TERM HUP INT USR1 USR2 ALRM; while :; do sleep 600; done",
    "after the probe": PROBED + "exec sleep 600",
    "after the probe, in a child": PROBED + "sleep 600; echo",
    "after the probe, deaf": PROBED + "trap '' TERM HUP INT; while :; do sleep 600; done",
}
RUNS = 'exec PYTHON "$@"'


def left(mark: str) -> list[psutil.Process]:
    """The processes, not dead, whose environment has this mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return []


class Node:
    """A node whose first `python3` does this; `left` is whatever was started there and lives."""

    def __init__(self, folder: Path, script: str) -> None:
        folder.mkdir()
        self._mark = str(folder)
        python = folder / "python3"
        python.write_text(f"#!/bin/sh\n{script.replace('PYTHON', sys.executable)}\n")
        python.chmod(0o755)
        self.environ = environment() | {MARK: self._mark, "PATH": f"{folder}:{os.environ['PATH']}"}
        self.program: subprocess.Popen[bytes] | None = None

    @property
    def left(self) -> list[psutil.Process]:
        return left(self._mark)

    def start(self, shell: Sequence[str] = ("/bin/sh",)) -> subprocess.Popen[bytes]:
        argv = ship.agent_argv("--until-eof", "--interval", "0.2")
        self.program = subprocess.Popen(
            [*shell, *argv[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.environ, start_new_session=True,
        )  # fmt: skip
        return self.program

    def until_it_hangs(self) -> None:
        def hangs() -> bool:
            """Or has been ended for that already."""
            has_ended = self.program is not None and self.program.poll() is not None
            return has_ended or any("600" in words(process) for process in self.left)

        until(hangs)

    def are_the_shell_and_its_agent(self) -> bool:
        """Whether nothing else is left; a `sleep` may stay for a second."""
        assert self.program is not None
        left = [process for process in self.left if process.name() != "sleep"]
        return [process.ppid() for process in left if process.pid != self.program.pid] == [
            self.program.pid
        ]

    def all_gone(self) -> int:
        """The exit code of what was started."""
        assert self.program is not None
        program = self.program
        until(
            lambda: program.poll() is not None and not self.left,
            lambda: f"left behind: {self.left}",
        )
        return program.returncode

    def close(self) -> None:
        for process in self.left:
            process.kill()
        if self.program is not None:
            self.program.kill()
            self.program.wait()
            for pipe in (self.program.stdin, self.program.stdout, self.program.stderr):
                assert pipe is not None
                pipe.close()


@pytest.fixture
def nodes(tmp_path):
    """Makes nodes; whatever is left there is killed at the end."""
    made = []

    def make(script):
        made.append(Node(tmp_path / f"n{len(made)}", script))
        return made[-1]

    yield make
    for node in made:
        node.close()


def send(program, *, whole=True):
    """The agent's modules, or as good as all of them."""
    program.stdin.write(ship.payload() if whole else ship.payload()[:-1])
    program.stdin.flush()


def ends_by(*numbers):
    def end(program):
        for number in numbers:
            program.send_signal(number)
        program.stdin.close()

    return end


EVENTS = {
    "the input ends": ends_by(),
    "SIGTERM": ends_by(signal.SIGTERM),
    "SIGHUP": ends_by(signal.SIGHUP),
    "SIGKILL": ends_by(signal.SIGKILL),
}


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("sent", [True, False])
def test_nothing_stays_when_the_reader_goes(nodes, event, sent):
    """Each way to hang at once: the shell, what it started and what that did are gone."""
    hanging = {name: nodes(script) for name, script in HANGS.items()}
    for node in hanging.values():
        program = node.start()
        if sent:
            send(program)
    for node in hanging.values():
        node.until_it_hangs()
        EVENTS[event](node.program)
    codes = {name: node.all_gone() for name, node in hanging.items()}
    if event != "SIGKILL":
        in_shell = [codes[name] for name in HANGS if not name.startswith("after")]
        assert in_shell == [0] * len(in_shell), codes


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_in_every_shell(nodes, shell):
    good, *hanging = map(nodes, [RUNS, HANGS["in a child"], HANGS["after the probe"]])
    for node in hanging:
        send(node.start(shell))
    program = good.start(shell)
    send(program)
    assert program.stdout.readline().startswith(b'{"wire"')
    assert good.are_the_shell_and_its_agent()
    program.stdin.close()
    assert good.all_gone() == 0
    assert program.stderr.read() == b""
    for node in hanging:
        node.until_it_hangs()
        node.program.stdin.close()
        node.all_gone()


@pytest.mark.slow
def test_what_hangs_while_the_reader_waits_has_a_deadline(nodes, monkeypatch):
    """Nothing is said, nothing ends: a network that was cut keeps both ends open for minutes."""
    monkeypatch.setattr(ship, "_SHELL", ship._SHELL.replace(f"-lt {ship._START_S}", "-lt 4"))
    hanging = {name: nodes(script) for name, script in HANGS.items()}
    for node in hanging.values():
        send(node.start())
    for node in hanging.values():
        node.until_it_hangs()
    ended = {name: (node.all_gone(), node) for name, node in hanging.items()}
    said = f"python3 {ship.HUNG_PYTHON}\n"
    for name, (code, node) in ended.items():
        if not name.startswith("after"):
            assert (code, node.program.stderr.read().decode()) == (0, said), name


def test_the_next_python_is_tried_after_one_that_hangs(nodes, monkeypatch):
    shortened = ship._SHELL.replace(f"-lt {ship._PYTHON_S}", "-lt 2").replace("-ge 10", "-ge 2")
    monkeypatch.setattr(ship, "_SHELL", shortened)
    node = nodes(HANGS["deaf"])
    working = Path(node.environ["PATH"].split(":")[0]) / "python3.14"
    working.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    working.chmod(0o755)
    program = node.start()
    send(program)
    assert program.stdout.readline().startswith(b'{"wire"')
    assert node.are_the_shell_and_its_agent()
    program.stdin.close()
    assert node.all_gone() == 0


#: what a node's `python3` may do before it runs, or instead
ILL = {
    "sound": RUNS,
    "slow": "sleep 5; " + RUNS,
    "slow after the probe": PROBED + "sleep 5; " + RUNS,
    "fails": PROBED + "exit 3",
    "is killed": PROBED + "kill -9 $$",
    "does not load": PROBED + "exec PYTHON -c 'import no_such_module'",
}
#: what was sent when the input ended
INPUTS = {
    "nothing": b"",
    "half of the length": b"12",
    "no module": b"12345\n",
    "half of the modules": ship.payload()[:50_000],
    "all": ship.payload(),
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_whatever_python_and_the_input_do_it_ends_with_0(nodes, shell):
    """Under srun anything else would be the step's exit code, and the job's DerivedExitCode."""
    started = {(ill, given): nodes(script) for ill, script in ILL.items() for given in INPUTS}
    for (_, given), node in started.items():
        program = node.start(shell)
        with contextlib.suppress(BrokenPipeError):
            program.stdin.write(INPUTS[given])
            program.stdin.close()
    codes = {what: node.all_gone() for what, node in started.items()}
    assert {what: code for what, code in codes.items() if code} == {}


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_an_agent_that_is_killed_leaves_an_exit_code_of_0(nodes, shell):
    """By the kernel for want of memory, say."""
    node = nodes(RUNS)
    program = node.start(shell)
    send(program)
    header = json.loads(program.stdout.readline())
    os.kill(header["agent"]["pid"], signal.SIGKILL)
    assert node.all_gone() == 0


def test_modules_that_come_late_are_waited_for(nodes):
    node = nodes(RUNS)
    program = node.start()
    data = ship.payload()
    for piece in (data[:3], data[3:70_000], data[70_000:]):
        time.sleep(0.5)
        program.stdin.write(piece)
        program.stdin.flush()
    assert program.stdout.readline().startswith(b'{"wire"')
    program.stdin.close()
    assert node.all_gone() == 0


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
@pytest.mark.parametrize("end", ["closed", "killed", "silent"])
def test_over_real_servers(world, nodes, monkeypatch, kind, end):
    """The stream is closed, its connection dies, or nothing more is heard of it."""
    if end == "silent":
        monkeypatch.setattr(ship, "_SHELL", ship._SHELL.replace(f"-lt {ship._START_S}", "-lt 8"))
    hanging = [nodes(HANGS[name]) for name in ("in a child", "deaf", "after the probe")]
    streams = []
    for number, node in enumerate(hanging):
        setup = " ".join(f"{name}='{node.environ[name]}'" for name in (MARK, "PATH"))
        server = world.sshd(
            f"n{number}", ForceCommand=f'export {setup}; eval "$SSH_ORIGINAL_COMMAND"'
        )
        transport = SshTransport(Nobody()) if kind == "ssh" else OpensshTransport()
        stream = transport.open(f"n{number}", ship.agent_argv("--heartbeat"))
        stream.write(ship.payload())
        streams.append((server, stream))
    for node, (server, stream) in zip(hanging, streams):
        node.until_it_hangs()
        if end == "closed":
            stream.close()
        elif end == "killed":
            for session in server.servers():
                session.kill()
    for node in hanging:
        until(lambda node=node: not node.left)
    for _, stream in streams:
        stream.close()
