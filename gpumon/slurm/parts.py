"""The parts of a job that agents follow: each component of it on each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpumon.slurm.job import Job


class Part(NamedTuple):
    """A job's share of a node, under the name that it has on the screen."""

    name: str
    job: Job
    node: str


def parts_of(jobs: Sequence[Job], only: Sequence[str] = ()) -> list[Part]:
    """What there is to follow of the jobs (components of one het job), on all nodes or `only`.

    An agent speaks for one job. So of two components on one node each has an agent: the first
    under the node's name, the other as `node1+1`, by its offset.
    """
    found: dict[str, Part] = {}
    for job in jobs:
        for node in job.nodes:
            name = f"{node}+{job.het_offset or 0}" if node in found else node
            found[name] = Part(name, job, node)
    return [part for part in found.values() if not only or part.node in only]
