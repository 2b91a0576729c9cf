"""What a process needs of a device, where a probe inside it tells of its framework's pool.

Need lies between what was in use in the pool and what the pool reserved, each at its peak, and in
both cases what the process holds beside the pool: the CUDA context, libraries, NCCL's buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isclose, nan
from typing import NamedTuple

from gpumon.analysis.reservation import CONTEXT_BYTES, LEAST_CONTEXT_BYTES
from gpumon.analysis.rundata import PoolData, ProcessData, Track

#: s before its process's end that a pool may last have been told of; peaks reach no further
_LATE_S = 30.0
#: of the device, and at least so much: more beside a pool is somebody's data, of unknown need
_MOST_BESIDE, _MOST_BESIDE_BYTES = 0.1, 3.0 * (1 << 30)
#: of the device; what moves less within a bin stands still
_STILL = 0.01
#: of the differences in time: the probe's figures may be two seconds old
_USUALLY = 0.9
NAMES = {"torch": "PyTorch", "tf": "TensorFlow", "jax": "JAX"}


class Need(NamedTuple):
    """Of one process, or of those of a device together; bytes."""

    in_use_bytes: float  # in pools, at most
    reserved_bytes: float  # by pools, at most
    beside_bytes: float  # outside them
    by: str  # PyTorch, …; "the frameworks" of several
    is_fragmented: bool = False  # allocations had to be retried
    is_beside_known: bool = True  # else what a context usually takes
    pids: tuple[int, ...] = ()

    @property
    def low_bytes(self) -> float:
        """If the pool had no gaps."""
        return self.in_use_bytes + self.beside_bytes

    @property
    def high_bytes(self) -> float:
        """With all that the pool kept."""
        return max(self.in_use_bytes, self.reserved_bytes) + self.beside_bytes

    @property
    def proven_bytes(self) -> float:
        """What another GPU must hold, before any margin: all of the pool where its gaps were in the
        way.
        """
        return self.high_bytes if self.is_fragmented else self.low_bytes


def need_of(process: ProcessData, total_bytes: float | None, mem: Track) -> Need | None:
    """None where the pool was not told of until the process's end, or does not tell its need.

    `mem`: the process's memory as the driver sees it.
    """
    pool, held = process.pool, mem.peak()
    if pool is None or pool.peak_bytes is None or held is None or not total_bytes:
        return None
    if pool.last < process.last - _LATE_S or pool.peak_bytes > total_bytes:
        return None
    beside = _beside(pool, mem, held, total_bytes)
    if beside is None or beside > max(_MOST_BESIDE * total_bytes, _MOST_BESIDE_BYTES):
        return None
    reserved = pool.reserved_peak_bytes
    return Need(
        pool.peak_bytes,
        max(held - beside, pool.peak_bytes) if reserved is None else reserved,
        beside,
        next((NAMES[tag] for tag in process.frameworks if tag in NAMES), "its framework"),
        bool(pool.retries),
        pool.reserved_bytes.known_count() > 0 or beside != CONTEXT_BYTES,
        (process.facts.pid,),
    )


def together(needs: list[Need]) -> Need:
    """Of processes that ran at the same time."""
    names = dict.fromkeys(each.by for each in needs if each.by)
    return Need(
        sum(each.in_use_bytes for each in needs),
        sum(each.reserved_bytes for each in needs),
        sum(each.beside_bytes for each in needs),
        next(iter(names)) if len(names) == 1 else "the frameworks",
        any(each.is_fragmented for each in needs),
        all(each.is_beside_known for each in needs),
        tuple(pid for each in needs for pid in each.pids),
    )


def course_of(pools: Iterable[PoolData], beside_bytes: float) -> Track:
    """What is needed of a device over time: in use in these pools together, and beside them."""
    tracks = [pool.used_bytes for pool in pools]
    return Track(
        *(
            array("f", [_sum(each, beside_bytes) for each in zip(*columns)])
            for columns in zip(*((each.mean, each.low, each.high) for each in tracks))
        )
    )


def _sum(values: Iterable[float], beside_bytes: float) -> float:
    known = [value for value in values if value == value]
    return beside_bytes + sum(known) if known else nan


def _beside(pool: PoolData, mem: Track, held: float, total_bytes: float) -> float | None:
    """What the process holds outside its pool.

    By what the pool says it reserved, bin by bin; else by its limit, where it took all of that at
    once; else what a context and its libraries take, because TensorFlow tells neither.
    """
    if pool.reserved_bytes.known_count():
        found = _differences(pool.reserved_bytes, mem, _STILL * total_bytes)
        most = sorted(found)[int(_USUALLY * (len(found) - 1))] if found else None
        return None if most is None else max(LEAST_CONTEXT_BYTES, most)
    limit = pool.limit_bytes
    if limit is not None and limit < held and isclose(limit, held, rel_tol=0.1):
        return max(LEAST_CONTEXT_BYTES, held - limit)
    return CONTEXT_BYTES


def _differences(reserved: Track, mem: Track, still_bytes: float) -> list[float]:
    """Of bins in which both stood still; of all, where there is none."""
    bins = [
        (mine - its, max(mem.high[n] - mem.low[n], reserved.high[n] - reserved.low[n]))
        for n, (mine, its) in enumerate(zip(mem.mean, reserved.mean))
        if mine == mine and its == its
    ]
    still = [difference for difference, moved in bins if moved <= still_bytes]
    return still or [difference for difference, _ in bins]
