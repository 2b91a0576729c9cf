"""What is in use now of the memory that frameworks reserve, where probes tell of it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.reservation import CONTEXT_BYTES
from gpumon.store import NodeView

#: what is in use in the pool of an inference engine is its cache
_CACHES = ("vllm",)


class InUse(NamedTuple):
    """In the pools of all processes on a device."""

    used_bytes: float
    pid: int | None  # the only one with a pool; several have no course together
    since: float  # epoch s by the node's clock, when the first of them began


def in_use(node: NodeView, key: int, now: float) -> InUse | None:
    """None where the pool of one that holds more than a context is not known."""
    processes = node.processes_on(key)
    keys = [(key, each.pid) for each in processes]
    pools = node.numbers("pool", keys, "used_bytes", now)
    known = [(each, pool) for each, pool in zip(processes, pools) if pool is not None]
    if not known or any(each.framework in _CACHES for each in processes):
        return None
    held = node.numbers("usage", keys, "mem_bytes", now)
    for pool, mem in zip(pools, held):
        if pool is None and (mem is None or mem > CONTEXT_BYTES):
            return None
    return InUse(
        sum(pool for _, pool in known),
        known[0][0].pid if len(known) == 1 else None,
        min(each.start for each, _ in known),
    )
