"""Whether a step can start on nodes: what Slurm says of them, and whether their slurmd lives."""

from __future__ import annotations

import socket
import threading

import pytest

from gpumon.slurm.nodes import NodeState
from gpumon.slurm.runner import LocalRunner, Result, SlurmError
from gpumon.slurm.scontrol import Config
from gpumon.transport import reachable
from gpumon.transport.reachable import Reachable


class Slurm:
    """Says what it is told to."""

    def __init__(self, *nodes):
        self._nodes = nodes

    def nodes(self, names):
        if not self._nodes:
            raise SlurmError("no controller")
        return list(self._nodes)

    def config(self):
        return Config(slurmd_port="1")


@pytest.fixture
def listening():
    """A port of this machine; `alive` ends its connections, as slurmd does."""
    opened = []

    def make(alive):
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def serve():
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    line.recv(1)

        if alive:
            threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield make
    for server in opened:
        server.close()


def test_who_answers_and_who_does_not(listening, monkeypatch):
    monkeypatch.setattr(reachable, "_PROBE", reachable._PROBE.replace("5.0", "1.0"))
    nodes = [
        NodeState("n1", "MIXED", "127.0.0.1", listening(alive=True)),
        NodeState("n2", "MIXED", "127.0.0.1", listening(alive=False)),  # hangs
        NodeState("n3", "MIXED", "127.0.0.1", None),  # refuses, at the cluster's port
        NodeState("n4", "DOWN*", "127.0.0.1", listening(alive=True)),
        NodeState("n5", "IDLE", "no-such-host.invalid", 1),
    ]
    absent = Reachable(Slurm(*nodes), LocalRunner).absent([node.name for node in nodes])
    assert absent == {
        **{
            name: f"slurmd of {name} does not answer; no step is started there"
            for name in ("n2", "n3", "n5")
        },
        "n4": "Slurm calls n4 DOWN*; no step is started there",
    }


def test_where_nobody_can_tell_srun_is_let_try():
    class Dumb:
        def run(self, argv, *, env, timeout_s):
            return Result(127, b"", "no python3")

    node = NodeState("n1", "MIXED", "127.0.0.1", 1)
    assert Reachable(Slurm(node), Dumb, "python3").absent(["n1"]) == {}
    assert Reachable(Slurm(), LocalRunner).absent(["n1"]) == {}
