"""The real agent over real servers, by both ways; and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.payload import agent_argv, payload
from gpumon.transport.ssh.transport import SshTransport
from gpumon.wire.decoder import Decoder
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S
from tests.transport.ssh.test_streams import Nobody


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
@pytest.mark.parametrize("login", [None, "login"])
def test_the_agent_brings_itself_and_samples_arrive(world, kind, login):
    world.sshd("login")
    world.sshd("n1")
    transport = SshTransport(Nobody(), login) if kind == "ssh" else OpensshTransport(login)
    stream = transport.open("n1", agent_argv("--interval", "0.2", "--count", "2"))
    stream.write(payload())
    decoder, rest, items = Decoder(), b"", []
    while data := stream.read():
        *lines, rest = (rest + data).split(b"\n")
        items += filter(None, map(decoder.line, lines))
    stream.close()
    transport.close()
    assert isinstance(items[0], Header), stream.complaint()
    assert sum(isinstance(item, Sample) for item in items) >= 2


def test_paramiko_is_loaded_with_the_first_connection_only():
    program = (
        "import sys\n"
        "from gpumon.transport import openssh, prompt\n"
        "from gpumon.transport.ssh import config, known_hosts, transport as ssh\n"
        "transport = ssh.SshTransport(prompt.TerminalPrompter())\n"
        "assert 'paramiko' not in sys.modules\n"
        "try: transport.open('no-such-host.invalid', ['true'])\n"
        "except ssh.Failure: pass\n"
        "assert 'paramiko' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
