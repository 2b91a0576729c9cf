"""Stacks over real servers, by both ways of ssh."""

from __future__ import annotations

import pytest

from gpumon.transport.openssh import OpensshTransport
from gpumon.transport.ssh.transport import SshTransport
from tests.collect.stacks.programs import standing
from tests.sources.test_stacks import Asking
from tests.transport.ssh.test_streams import Nobody


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_the_agent_that_was_sent_answers(world, tmp_path, kind):
    world.sshd("n1")
    way = SshTransport(Nobody()) if kind == "ssh" else OpensshTransport()
    with standing(tmp_path) as child, Asking(way, names=("n1",)) as asking:
        (told,) = asking.ask("n1", child.pid)
    assert told.stack.by == "py-spy"
    assert [frame.function for frame in told.stack.main] == ["wait_here", "main", "<module>"]
