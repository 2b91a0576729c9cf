"""The real agent over real servers, by both ways; and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.sources.openssh import OpensshLauncher
from gpumon.sources.ship import cargo, ship_argv
from gpumon.sources.ssh import SshLauncher
from gpumon.wire import Decoder
from tests.e2e.program import HANGS_S, environment
from tests.sources.test_ssh_streams import Nobody


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
@pytest.mark.parametrize("login", [None, "login"])
def test_the_agent_brings_itself_and_samples_arrive(world, kind, login):
    world.sshd("login")
    world.sshd("n1")
    launcher = SshLauncher(Nobody(), login) if kind == "ssh" else OpensshLauncher(login)
    stream = launcher.open("n1", ship_argv("--interval", "0.2", "--count", "2"))
    stream.write(cargo())
    decoder, rest, items = Decoder(), b"", []
    while data := stream.read():
        *lines, rest = (rest + data).split(b"\n")
        items += filter(None, map(decoder.line, lines))
    stream.close()
    launcher.close()
    assert isinstance(items[0], Header), stream.complaint()
    assert sum(isinstance(item, Sample) for item in items) >= 2


def test_paramiko_is_loaded_with_the_first_connection_only():
    program = (
        "import sys\n"
        "from gpumon.sources import ssh, openssh, prompt, sshconfig, knownhosts, hostcert\n"
        "launcher = ssh.SshLauncher(prompt.TerminalPrompter())\n"
        "assert 'paramiko' not in sys.modules\n"
        "try: launcher.open('no-such-host.invalid', ['true'])\n"
        "except ssh.Failure: pass\n"
        "assert 'paramiko' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
