"""Whether a step can start on nodes now: one on a node that does not answer marks the job.

Slurm notices minutes later that a node is gone (SlurmdTimeout), and not at all that the way from
here to it is. So its slurmd is asked, as srun would: one that lives ends a connection on which
nothing comes. The question is asked where srun runs, by whatever Python is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from gpumon.model.text import clean
from gpumon.slurm.client import Slurm
from gpumon.slurm.nodes import NodeState
from gpumon.slurm.runner import Runner, SlurmError
from gpumon.transport.stream import Failure

_SLURMD_PORT = 6818
#: s; of each node to answer, of all together
_ANSWER_S, _ALL_S = 5.0, 60.0
#: prints the words (ADDRESS PORT, with a blank between) that nobody answers; runs on any Python 3
_PROBE = f"""\
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def answers(word):
    address, _, port = word.rpartition(" ")
    try:
        with socket.create_connection((address, int(port)), {_ANSWER_S}) as line:
            line.shutdown(socket.SHUT_WR)
            try: line.recv(1)
            except ConnectionError: pass
    except OSError: return False
    return True
words = sys.argv[1:]
with ThreadPoolExecutor(128) as pool:
    for word, is_there in zip(words, pool.map(answers, words)):
        if not is_there: print(word)
"""


class Reachable:
    """Asks Slurm and the nodes of one cluster."""

    def __init__(self, slurm: Slurm, runner: Callable[[], Runner], python: str = "") -> None:
        """`runner`: runs a program where srun runs; it raises Failure. `python`: of there."""
        self._slurm = slurm
        self._runner = runner
        self._python = python or sys.executable

    def absent(self, names: Sequence[str]) -> Mapping[str, str]:
        """The nodes on which no step can start, with the reasons; where nobody can tell, none."""
        try:
            nodes = self._slurm.nodes(names)
            port = self._slurm.config().slurmd_port
        except (SlurmError, Failure):
            return {}  # srun will not get a step either, and says why
        away = {
            node.name: f"Slurm calls {node.name} {clean(node.state, 60)}; no step is started there"
            for node in nodes
            if node.is_away
        }
        default = int(port) if port.isascii() and port.isdigit() else _SLURMD_PORT
        silent = self._silent([node for node in nodes if node.name not in away], default)
        return {**away, **silent}

    def _silent(self, nodes: Sequence[NodeState], port: int) -> Mapping[str, str]:
        names = {f"{node.address} {node.port or port}": node.name for node in nodes}
        try:
            argv = [self._python, "-I", "-c", _PROBE, *names]
            done = self._runner().run(argv, env={}, timeout_s=_ALL_S)
        except (SlurmError, Failure):
            return {}
        lines = done.out.decode("utf-8", "replace").splitlines() if not done.code else []
        return {
            names[line]: f"slurmd of {names[line]} does not answer; no step is started there"
            for line in lines
            if line in names
        }
