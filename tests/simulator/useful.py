"""How much of what was truly wasted the ready lines of a report free, and whether it counts right.

Rule 0 of the plan decides where a line is allowed: only of a run that completed, all its steps and
all tasks of an array, and of no session; on whole nodes none of memory and cores. Memory that comes
with the cores, by the site's default, is not wasted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.report.model import Report
from tests.simulator.array import SimArray
from tests.simulator.follow import Next, after, harm
from tests.simulator.job import Request, SimJob
from tests.simulator.judge import site
from tests.simulator.labels import needs, observed, wasted_s
from tests.simulator.machine import GIB

HOUR = 3600.0
#: what lines free, and in which unit
RESOURCES = {"GPUs": "GPU-h", "memory": "GiB-h", "cores": "core-h", "limit": "h"}
#: cores that are left as room, of those needed
_ROOM = 1.2
#: of what was requested: less waste needs no line
_LEAST = 0.2
#: of the GPU-hours: where less was truly wasted, a relative error says nothing
_LEAST_WASTED = 0.1


class Freed(NamedTuple):
    """Of one job and one resource."""

    resource: str
    wasted: float
    freed: float  # by lines that are safe together
    unsafe: bool  # there are lines, and they are not

    @property
    def share(self) -> float:
        return self.freed / self.wasted


def freed(job: SimJob | SimArray, report: Report, accounting: bool = False) -> list[Freed]:
    """What its lines free, followed all together; without what was hardly wasted."""
    tasks = job.tasks if isinstance(job, SimArray) else [job]
    if not all(map(_is_proof, tasks)):
        return []
    changes = [each.change for each in report.recommendations]
    request = tasks[0].request
    made = after(request, changes)
    unsafe = any(harm(each, changes, accounting) for each in tasks)
    hours = sum(each.ended.seconds for each in tasks) / HOUR
    found = []
    for resource, had, need, has in _amounts(request, made, tasks):
        factor = len(tasks) / HOUR if resource == "limit" else hours
        wasted = had - need
        if had <= 0 or wasted < _LEAST * had:
            continue
        spared = 0.0 if unsafe else min(max(0.0, had - has), wasted)
        unit = GIB if resource == "memory" else 1.0
        found.append(Freed(resource, wasted * factor / unit, spared * factor / unit,
                           unsafe and has < had))  # fmt: skip
    return found


def _is_proof(job: SimJob) -> bool:
    program = job.program
    return job.ended.state == "COMPLETED" and not program.failed_step and not program.interactive


def _amounts(
    request: Request, made: Next, tasks: Sequence[SimJob]
) -> Iterator[tuple[str, float, float, float]]:
    """Resource, requested, needed, and requested with the lines."""
    known = [needs(each) for each in tasks]
    gpus, nodes = max(each.gpus for each in known), request.nodes
    if request.gpus and gpus:  # of one that used none the script is to be mended, not the request
        yield "GPUs", request.gpus * nodes, gpus, made.gpus * made.nodes
    if not request.whole:
        cores = max(each.cores for each in known)
        room = min(request.cpus, _ROOM * cores)
        yield "cores", request.cpus * nodes, room * nodes, made.cpus * made.nodes
        default = site().mem_default_per_core_bytes.get(request.partition, 0)
        mem = max(default * room, *(max(each.mem) for each in known))  # which comes with the cores
        yield "memory", request.mem * nodes, mem * nodes, made.mem * made.nodes
    if not request.limit_words:
        yield "limit", request.limit_s, max(each.limit_s for each in known), made.limit_s


class Told(NamedTuple):
    """GPU-hours that a report calls wasted, and that truly were, of the time recorded."""

    said: float
    true: float
    held: float

    @property
    def is_large(self) -> bool:
        return self.true >= _LEAST_WASTED * self.held

    @property
    def error(self) -> float:
        """Relative where much was wasted; else, of all that was held, what was told beside it."""
        return abs(self.said - self.true) / (self.true if self.is_large else self.held)


def told(job: SimJob | SimArray, report: Report) -> Told | None:
    if isinstance(job, SimArray) or not job.request.gpus:
        return None
    windows = observed(job)
    seconds = sum(until - since for since, until in windows)
    if not seconds:
        return None
    held = seconds * job.request.gpus * job.request.nodes / HOUR
    return Told(report.waste_gpu_hours, wasted_s(job, windows) / HOUR, held)
