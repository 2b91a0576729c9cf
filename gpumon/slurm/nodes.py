"""Nodes from `scontrol -o show node`: whether they respond, and their address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.slurm import values

_PAIR = re.compile(r"(?:^|\s)(NodeName|NodeAddr|Port|State)=(\S+)")
#: flags and states in which Slurm does not reach a node, or will not for long
_AWAY = frozenset(
    ("DOWN", "ERROR", "FAIL", "FUTURE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN",
     "POWERING_UP", "REBOOT_ISSUED")
)  # fmt: skip


class NodeState(NamedTuple):
    """One node. `state` as Slurm prints it: `MIXED+NOT_RESPONDING`, `DOWN*`."""

    name: str
    state: str
    address: str
    port: int | None  # of its slurmd, where it is not the cluster's

    @property
    def is_away(self) -> bool:
        return self.state.endswith("*") or not _AWAY.isdisjoint(re.split(r"[+*]+", self.state))


def argv(names: Sequence[str]) -> list[str]:
    return ["scontrol", "-o", "show", "node", ",".join(names)]


def parse(output: bytes) -> list[NodeState]:
    """The lines that name a node."""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        told: dict[str, str] = {}
        for name, value in _PAIR.findall(line):
            told.setdefault(name, values.known(value))  # before any comment of the site's
        if told.get("NodeName"):
            port = told.get("Port", "")
            found.append(
                NodeState(
                    told["NodeName"],
                    told.get("State", ""),
                    told.get("NodeAddr", "") or told["NodeName"],
                    int(port) if port.isascii() and port.isdigit() else None,
                )
            )
    return found
