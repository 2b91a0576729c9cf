"""Parts that kinds of programs share: steps of training, phases, sizes of requests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.simulator.job import Program, Request
from tests.simulator.loads import IDLE, Cores, Gpu, Node, Segment
from tests.simulator.machine import A100, BOARDS, GIB, MIB, Board

MIN, HOUR = 60.0, 3600.0


class Kernel(NamedTuple):
    """Kernels of one kind: what they load, and what limits them."""

    sm: float
    tensor: float
    fp32: float
    fp64: float
    dram: float
    power: float
    limits: dict[str, float]


#: mixed-precision training of transformers and large convolutions
BF16 = Kernel(0.86, 0.45, 0.05, 0.0, 0.4, 0.78, {"bf16": 0.6, "bw": 0.3, "latency": 0.1})
TF32 = Kernel(0.84, 0.35, 0.12, 0.0, 0.45, 0.72, {"tf32": 0.6, "bw": 0.3, "latency": 0.1})
FP32 = Kernel(0.88, 0.0, 0.55, 0.0, 0.4, 0.75, {"fp32": 0.7, "bw": 0.2, "latency": 0.1})
FP64 = Kernel(0.85, 0.0, 0.03, 0.5, 0.45, 0.72, {"fp64": 0.7, "bw": 0.3})
#: decoding of a language model: limited by memory bandwidth
DECODE = Kernel(0.7, 0.1, 0.05, 0.0, 0.75, 0.55, {"bw": 0.9, "latency": 0.1})
#: many launches of tiny kernels: always one resident, hardly any SM at work
TINY = Kernel(0.15, 0.01, 0.06, 0.0, 0.05, 0.09, {"latency": 0.9, "fp32": 0.1})
MD = Kernel(0.82, 0.0, 0.6, 0.0, 0.25, 0.68, {"fp32": 0.75, "bw": 0.15, "latency": 0.1})


def load(kernel: Kernel, busy: float, waiting: float = 0.0, **rest: float) -> Gpu:
    return Gpu(busy, waiting, kernel.sm, kernel.tensor, kernel.fp32, kernel.fp64, kernel.dram,
               kernel.power, **rest)  # fmt: skip


class Step(NamedTuple):
    """One training step: what its parts take, in seconds, on each GPU."""

    compute: float
    comm: float = 0.0  # collectives that are not hidden behind computing
    host: float = 0.0  # Python between kernels
    items_cpu: float = 0.0  # CPU seconds that the loaders of this GPU need for one batch
    loaders: float = 4.0  # cores that these have

    @property
    def feeding(self) -> float:
        return self.items_cpu / self.loaders

    @property
    def seconds(self) -> float:
        return max(self.compute + self.comm + self.host, self.feeding)

    @property
    def busy(self) -> float:
        return (self.compute + self.comm) / self.seconds

    @property
    def input_wait(self) -> float:
        return max(0.0, self.feeding - self.compute - self.comm - self.host) / self.seconds

    @property
    def host_wait(self) -> float:
        return self.host / self.seconds

    @property
    def loader_cores(self) -> float:
        return self.items_cpu / self.seconds

    def gpu(self, kernel: Kernel, pcie: float = 4e8, nvlink: float = 0.0) -> Gpu:
        waiting = self.comm / (self.compute + self.comm)
        return load(kernel, self.busy, waiting, pcie=pcie, nvlink=nvlink, cycle_s=self.seconds)


def repeat(seconds: float, body: Sequence[Segment], rest: Segment) -> list[Segment]:
    """`rest`, with `body` put in again and again: epochs with their checkpoints."""
    found: list[Segment] = []
    left = seconds
    while left > 0:
        found.append(rest._replace(seconds=min(rest.seconds, left)))
        left -= rest.seconds
        if left > 0:
            found += body
            left -= sum(each.seconds for each in body)
    return found


def alike(seconds: float, name: str, nodes: int, node: Node) -> Segment:
    return Segment(seconds, name, (node,) * nodes)


def quiet(gpus: int, cores: float = 0.05, **rest: float) -> Node:
    """Nothing on the GPUs."""
    return Node((IDLE,) * gpus, Cores(cores), **rest)


def usual_board(rng: Random, *boards: Board) -> Board:
    return rng.choice(boards or (A100, A100, A100, *BOARDS[1:-1]))


def duration(rng: Random, least: float = 0.55, most: float = 2.4) -> float:
    """Hours, mostly few."""
    return HOUR * least * (most / least) ** rng.random()


def round_mem(size: float) -> float:
    """As people write it: whole GiB."""
    return max(1, round(size / GIB)) * GIB


def fitting_limit(rng: Random, seconds: float) -> float:
    """A limit somewhat longer than needed, on the quarter of an hour."""
    return max(900.0, round(seconds * rng.uniform(1.25, 2.2) / 900 + 0.5) * 900.0)


def fitting_mem(rng: Random, need: float) -> float:
    return round_mem(need * rng.uniform(1.15, 1.5) + 0.5 * GIB)


def request(
    rng: Random, program: Program, need: float, *, nodes: int = 1, cpus: int = 1, gpus: int = 0,
    board: Board | None = None, tasks: int = 1,
) -> Request:  # fmt: skip
    """A request that fits. `need`: host memory of a node."""
    form = "gpu" if gpus and rng.random() < 0.15 else "cpu" if rng.random() < 0.15 else "node"
    mem = fitting_mem(rng, need)
    parts = {"gpu": gpus, "cpu": cpus, "node": 1}[form]
    mem = max(parts * MIB * 512, round(mem / parts / (512 * MIB) + 0.5) * parts * 512 * MIB)
    limit = fitting_limit(rng, program.seconds)
    partition = "interactive" if program.interactive else "gpu" if gpus else "standard"
    tasks_form = rng.choice(("job", "node"))
    return Request(nodes, cpus, mem, limit, gpus, board, form, tasks, tasks_form, partition)
