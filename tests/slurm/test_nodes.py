"""`scontrol show node`: states in which no step can start, addresses, hostile lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.slurm.nodes import NodeState, parse

LINE = (
    b"NodeName=node4 Arch=x86_64 CoresPerSocket=8  CPUAlloc=2 NodeAddr=198.18.1.14 "
    b"NodeHostName=node4 Port=17 Version=22.05.8 OS=Linux 6.1 #1 SMP State=MIXED+NOT_RESPONDING "
    b"ThreadsPerCore=1 Reason=State=IDLE NodeAddr=evil [root@now]\n"
)


def test_a_line():
    assert parse(LINE) == [NodeState("node4", "MIXED+NOT_RESPONDING", "198.18.1.14", 17)]
    assert parse(b"NodeName=n1 State=IDLE\n\nNode n2 not found\n") == [
        NodeState("n1", "IDLE", "n1", None)
    ]


@pytest.mark.parametrize(
    ("state", "away"),
    [
        ("IDLE", False), ("MIXED", False), ("ALLOCATED+DRAIN", False), ("COMPLETING", False),
        ("MIXED+CLOUD", False), ("IDLE*", True), ("MIXED+NOT_RESPONDING", True), ("DOWN", True),
        ("DOWN*+DRAIN", True), ("IDLE+POWERED_DOWN", True), ("ALLOCATED+REBOOT_ISSUED", True),
    ],
)  # fmt: skip
def test_states(state, away):
    assert NodeState("n", state, "n", None).is_away is away


@given(st.binary(max_size=300))
def test_whatever_is_printed_is_read(noise):
    for node in parse(noise + b"\n" + LINE):
        assert node.name
        assert node.address
