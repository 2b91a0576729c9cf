"""Whether a step has room in a job's memory: one without may end the job's program.

What Slurm tells of the running steps is looked at before a step starts, as even its slurmstepd
needs a MiB. That is rarely exact, so the step's own shell looks again (`transport.payload`); where
it found too little, no other step is tried for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from gpumon.analysis.accounting import meaning_of
from gpumon.collect.cgroup.room import NO_ROOM, START_BYTES, lacking
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job, Step
from gpumon.slurm.runner import SlurmError
from gpumon.slurm.sacct import nodes_of

#: after a step's shell has found too little; a job's memory mostly grows
_AGAIN_S = 600.0


class JobRoom:
    """Of one job. Thread-safe."""

    def __init__(self, job: Job, slurm: Slurm) -> None:
        self._job = job
        self._slurm = slurm
        self._lock = threading.Lock()
        self._refused: dict[str, tuple[float, str]] = {}  # until when, and why

    def lacking(self, nodes: Sequence[str]) -> Mapping[str, str]:
        """The nodes on which no step may start, with the reasons; may ask Slurm."""
        now = time.monotonic()
        with self._lock:
            found = {node: why for node, (until, why) in self._refused.items() if now < until}
        free = self._free([node for node in nodes if node not in found])
        found.update((node, lacking(each)) for node, each in free.items() if each < START_BYTES)
        return {node: why for node, why in found.items() if node in nodes}

    def note(self, nodes: Sequence[str], complaint: str) -> None:
        """Why a step on these nodes ended before it began."""
        if complaint.startswith(NO_ROOM):
            until = time.monotonic() + _AGAIN_S
            with self._lock:
                self._refused.update((node, (until, complaint)) for node in nodes)

    def _free(self, nodes: Sequence[str]) -> Mapping[str, int]:
        """What is free on each, at least; only nodes of which that is known. A figure that may
        have page cache in it tells nothing: there is always as much as fits.
        """
        given = {each.node: each.mem_bytes for each in self._job.allocations}
        if len(self._job.nodes) == 1:
            given.setdefault(self._job.nodes[0], self._job.allocated.mem_bytes)
        if not any(given.get(node) for node in nodes):
            return {}
        try:
            config = self._slurm.config()
            steps = self._slurm.usage([self._job.raw_id]).get(self._job.raw_id, ())
        except SlurmError:
            return {}
        job = replace(
            self._job,
            slurm_version=config.version,
            acct_gather=config.gathered_by,
            acct_params=config.gather_params,
        )
        if meaning_of(job).cache is not False or not steps:
            return {}
        return {
            node: limit - sum(_on(node, step) for step in steps)
            for node in nodes
            if (limit := given.get(node))
        }


def _on(node: str, step: Step) -> int:
    """What a step uses on a node, at most: of several nodes sstat tells the sum and the largest
    task's peak.
    """
    nodes = nodes_of(step.node_list)
    total = step.usage.total.get("mem") or 0.0
    if node not in nodes or (step.id == "extern" and len(nodes) > 1):
        return 0
    tasks = ceil((step.tasks or 1) / len(nodes))
    largest = step.max_rss_bytes
    return int(total if len(nodes) == 1 or largest is None else min(total, largest * tasks))
