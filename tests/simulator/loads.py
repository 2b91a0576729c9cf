"""What nodes truly do in a segment of a run: each GPU, the cores, the disks, the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Gpu(NamedTuple):
    """One GPU over a cycle of its program (a training step, a request)."""

    busy: float = 0.0  # share of the cycle with a kernel resident
    waiting: float = 0.0  # part of `busy` in which kernels only spin in a collective
    sm: float = 0.9  # SM activity of a kernel that computes, 0 to 1
    tensor: float = 0.0
    fp32: float = 0.0
    fp64: float = 0.0
    dram: float = 0.3
    power: float = 0.7  # of the range between idle and the limit, while computing
    pcie: float = 2e8  # B/s each way, over the cycle
    nvlink: float = 0.0
    cycle_s: float = 0.4
    encoder: float = 0.0  # share of the time
    decoder: float = 0.0
    requests_per_s: float = 0.0  # instead of `busy`: work comes at random times
    request_s: float = 0.0
    clock: float = 1.0  # of the full clock
    throttled: int = 0  # NVML's mask of reasons
    foreign: float = 0.0  # share of the time in which somebody else's kernels run
    for_peer: float = 0.0  # part of `busy` in which it only waits for a GPU that is late
    guest: float = 0.0  # B held by somebody else's process, whose kernels may never run

    @property
    def active(self) -> float:
        """Share of the time in which any of its engines works."""
        if self.requests_per_s:
            return min(1.0, self.requests_per_s * self.request_s)
        copying = min(1.0, self.pcie / 2e10) if self.pcie > 1e9 else 0.0
        return max(self.busy, self.encoder, self.decoder, copying)


IDLE = Gpu(pcie=0.0)


class Cores(NamedTuple):
    """What the program would use of cores if it had as many as it likes, over its cycle."""

    demand: float = 1.0  # cores, for this share of the time …
    share: float = 1.0
    base: float = 0.0  # … and this for the rest
    confined: int = 0  # all threads are bound to so many cores; 0: to none
    blocked: float = 0.0  # share of the time in which its threads wait for storage
    threads: int = 0  # threads there are, asleep or not; 0: as the demand
    period_s: float = 1.0  # of the cycle

    def used(self, cores: float) -> float:
        """Cores' worth of CPU time with so many of them."""
        most = min(cores, self.confined or cores)
        return self.share * min(self.demand, most) + (1 - self.share) * min(self.base, most)

    def wanted(self, cores: float) -> float:
        """How many times the CPU time that it gets of so many it would use."""
        used = self.used(cores)
        return (self.share * self.demand + (1 - self.share) * self.base) / used if used else 1.0

    def slowdown(self, cores: float) -> float:
        """How much longer the same work takes with so many cores than with as many as it likes."""
        most = min(cores, self.confined or cores)
        return self.share * max(1.0, self.demand / most) + (1 - self.share) * max(
            1.0, self.base / most
        )


class Node(NamedTuple):
    """One node in a segment."""

    gpus: Sequence[Gpu] = ()
    cores: Cores = Cores()
    read: float = 0.0  # B/s from storage
    write: float = 0.0
    net: float = 0.0  # B/s each way
    asleep: Sequence[int] = ()  # ranks that use no core


class Segment(NamedTuple):
    """A stretch of the run in which its nodes do the same thing all the time."""

    seconds: float
    name: str  # stage, compile, train, eval, checkpoint, idle, hang …
    nodes: Sequence[Node]


#: share of GPU time by what limits its kernels: bf16, tf32, fp32, fp64, bw, latency
Kernels = Mapping[str, float]
