"""Memory over time: what allocators take of a GPU, and what programs hold on the host.

Facts about allocators are from their sources: TensorFlow's gpu_device.cc (all but a reserve),
JAX's XLA_PYTHON_CLIENT_MEM_FRACTION (0.75), vLLM's gpu_memory_utilization (0.9), PyTorch's
caching allocator (freed blocks stay reserved).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import NamedTuple

from tests.simulator.machine import GIB, MIB, Board

Curve = Callable[[float], float]
CONTEXT = 420 * MIB


class Held(NamedTuple):
    """Memory of one process on one GPU: as the driver shows it by age, and what it needed."""

    shown: Curve
    need: float
    framework: str
    reserves: bool = False  # shown memory is a reservation that tells nothing of the need
    live: Curve | None = None  # in use in its framework's pool, at most so far; None: it has none


def _stairs(steps: Sequence[tuple[float, float]], first: float) -> Curve:
    def value(age: float) -> float:
        now = first
        for since, size in steps:
            if age >= since:
                now = size
        return now

    return value


def caching(rng: Random, live: float, board: Board) -> Held:
    """PyTorch: reserved blocks rise to the live peak and a little more, and are never given back.

    Lengths of batches vary, so new maxima come ever more rarely.
    """
    room = board.mem_bytes - board.reserved_bytes - CONTEXT - 200 * MIB
    live = min(live, room)
    top = min(live * rng.uniform(1.03, 1.35), room)
    at, steps = rng.uniform(3, 15), []
    for share in sorted((rng.uniform(0.2, 0.9) for _ in range(5)), key=float):
        steps.append((at, CONTEXT + share * top))
        at *= rng.uniform(1.4, 2.2)
    steps += [(at, CONTEXT + 0.95 * top), (at * 3, CONTEXT + 0.985 * top), (at * 9, CONTEXT + top)]
    shown = _stairs(steps, CONTEXT)
    return Held(
        shown, live + CONTEXT, "torch", live=lambda age: (shown(age) - CONTEXT) * live / top
    )


def tensorflow(rng: Random, need: float, board: Board) -> Held:
    """All but a reserve of 1 to 2 GiB, in one allocation at the start."""
    reserve = {"7": 1050, "8": 1536}.get(board.cc[0], 1800) * MIB
    top = board.mem_bytes - board.reserved_bytes - reserve
    at = rng.uniform(4, 12)
    shown = _stairs([(at, top), (at + 20, top + 60 * MIB)], CONTEXT)
    return Held(shown, need, "tf", True, _grown(need, at))


def _grown(need: float, at: float) -> Curve:
    """In use within a reservation: weights first, then the largest batch."""
    return _stairs([(at, 0.6 * (need - CONTEXT)), (at + 60, need - CONTEXT)], 0.0)


def jax(rng: Random, need: float, board: Board) -> Held:
    top = 0.75 * board.mem_bytes + CONTEXT
    at = rng.uniform(3, 9)
    return Held(_stairs([(at, top)], CONTEXT), need, "jax", True, _grown(need, at))


def vllm(rng: Random, weights: float, board: Board) -> Held:
    """Weights from disk, a profiling run, then a cache up to nine tenths of the GPU."""
    load = rng.uniform(30, 120)
    top = 0.9 * board.mem_bytes - board.reserved_bytes

    def shown(age: float) -> float:
        if age < load:
            return CONTEXT + (weights - CONTEXT) * max(0.0, age / load)
        return weights + 3 * GIB if age < load + 5 else top

    return Held(shown, weights + 3 * GIB, "vllm", True, lambda age: shown(age) - CONTEXT)


def direct(rng: Random, size: float, framework: str = "") -> Held:
    """cudaMalloc of what the program computes with: molecular dynamics, solvers, encoders."""
    at = rng.uniform(5, 30)
    return Held(_stairs([(at, 0.8 * size), (2 * at, size)], min(CONTEXT, size)), size, framework)


def leaking(held: Held, bytes_per_s: float, since_s: float) -> Held:
    """Tensors that are kept by mistake, on top."""

    def more(age: float) -> float:
        return bytes_per_s * max(0.0, age - since_s)

    live = held.live
    return held._replace(
        shown=lambda age: held.shown(age) + more(age),
        live=None if live is None else lambda age: live(age) + more(age),
    )


# -- the host


def settles(rng: Random, peak: float, after_s: float) -> Curve:
    """Loads its data, then holds it; buffers make small waves."""
    wave = rng.uniform(0.0, 0.04)
    period = rng.uniform(40, 400)

    def value(second: float) -> float:
        level = peak * (1 - exp(-3 * second / after_s))
        return level * (1 - wave * ((second % period) / period))

    return value


def spikes(base: Curve, height: float, every_s: float, length_s: float) -> Curve:
    """Now and then a copy of everything, as checkpoints make."""
    return lambda s: base(s) + (height if s > every_s and s % every_s < length_s else 0.0)


def grows(base: Curve, bytes_per_s: float) -> Curve:
    """A list that is never emptied."""
    return lambda second: base(second) + bytes_per_s * second


def saturates(base: Curve, by: float, time_s: float) -> Curve:
    """Caches of the program itself that fill up: rises ever more slowly, and is no leak."""
    return lambda second: base(second) + by * (1 - exp(-second / time_s))
