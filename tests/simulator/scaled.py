"""The same job once more: seen with other noise, half as often, twice as long, twice as wide.

What is told of it must not change: nothing about it did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpumon.report.model import Report
from tests.simulator.job import NODE_CORES, NODE_MEM, Request, SimJob
from tests.simulator.loads import Node, Segment
from tests.simulator.memory import Curve, Held

#: of one node; of all
_MOST_GPUS, _MOST_NODES = 16, 8
#: causes that are times and rates, not shares
_AT, _RATE = "hang", "host-leak"


def noise(job: SimJob) -> SimJob:
    """Its readings with other noise."""
    return _again(job, view=replace(job.view, noise=1))


def sampling(job: SimJob) -> SimJob:
    return _again(job, view=replace(job.view, interval_s=2 * job.view.interval_s))


def time(job: SimJob) -> SimJob:
    """All takes twice as long, its limit too; its steps are as short, and twice as many."""
    program, view = job.program, job.view
    causes = dict(program.causes)
    if _AT in causes:
        causes[_AT] *= 2
    if _RATE in causes:
        causes[_RATE] /= 2
    longer = replace(
        program,
        segments=[each._replace(seconds=2 * each.seconds) for each in program.segments],
        host=[_slower(each) for each in program.host],
        shmem=[_slower(each) for each in program.shmem],
        held=[[[_held_slower(each) for each in gpu] for gpu in node] for node in program.held],
        lost=program.lost and (2 * program.lost[0], program.lost[1]),
        dead=program.dead and (2 * program.dead[0], program.dead[1]),
        spike=program.spike and (2 * program.spike[0], program.spike[1]),
        causes=causes,
    )
    return _again(
        job, program=longer,
        request=replace(job.request, limit_s=2 * job.request.limit_s),
        fate=replace(job.fate, at=2 * job.fate.at),
        view=replace(view, since=2 * view.since, until=2 * view.until,
                     gaps=tuple((2 * since, 2 * to) for since, to in view.gaps)),
        xids=[(2 * at, key, text) for at, key, text in job.xids],
    )  # fmt: skip


def ranks(job: SimJob) -> SimJob | None:
    """Twice as many ranks on each node, each with what one had; None: it has none, or no room."""
    program, request = job.program, job.request
    if not _has_ranks(job) or "-n " in request.submit_line:
        return None
    if (2 * request.gpus > _MOST_GPUS or 2 * request.cpus > NODE_CORES
            or 2 * request.mem > NODE_MEM or request.whole):  # fmt: skip
        return None
    causes = dict(program.causes)
    if _RATE in causes:
        causes[_RATE] *= 2
    wider = replace(
        program,
        segments=[Segment(each.seconds, each.name, tuple(map(_wider, each.nodes)))
                  for each in program.segments],
        host=[_twice(each) for each in program.host],
        shmem=[_twice(each) for each in program.shmem],
        held=[[gpu for gpu in node for _ in range(2)] for node in program.held],
        ranks=2 * program.ranks, workers=2 * program.workers,
        spike=program.spike and (program.spike[0], 2 * program.spike[1]),
        reread=2 * program.reread, causes=causes,
    )  # fmt: skip
    tasks = 2 * request.tasks if request.tasks > 1 or not request.gpus else request.tasks
    return _again(job, program=wider, request=_larger(request, tasks))


def nodes(job: SimJob) -> SimJob | None:
    """Twice as many nodes, each as one was; None: it has no ranks, or no room."""
    program, request = job.program, job.request
    if not _has_ranks(job) or 2 * request.nodes > _MOST_NODES or program.dead is not None:
        return None
    more = replace(
        program,
        segments=[each._replace(nodes=tuple(each.nodes) * 2) for each in program.segments],
        host=list(program.host) * 2, shmem=list(program.shmem) * 2, held=list(program.held) * 2,
    )  # fmt: skip
    return _again(job, program=more, request=replace(request, nodes=2 * request.nodes))


Variant = Callable[[SimJob], "SimJob | None"]
VARIANTS: dict[str, Variant] = {
    "noise": noise, "sampling": sampling, "time": time, "ranks": ranks, "nodes": nodes,
}  # fmt: skip


def verdict(report: Report) -> frozenset[tuple[str, str]]:
    """What must not change: ids and levels of what is critical or a warning."""
    return frozenset(
        (each.id, each.level) for each in report.findings if each.level in ("critical", "warning")
    )


def _again(job: SimJob, **changed: object) -> SimJob:
    known = {"program": job.program, "request": job.request, "fate": job.fate, "view": job.view,
             "xids": job.xids, **changed}  # fmt: skip
    return SimJob(job.seed, job.number, job.story, **known)


def _has_ranks(job: SimJob) -> bool:
    """Whether it is made of alike ranks, one on each GPU that it uses, or of MPI."""
    program, request = job.program, job.request
    if program.lost is not None or job.xids or program.interactive:
        return False
    if not request.gpus:
        return program.needs_ranks and request.tasks > 1
    used = sum(bool(each) for each in program.held[0]) if program.held else 0
    is_slice = request.board is not None and bool(request.board.mig)
    return used == program.ranks and not is_slice and not program.needs_ranks


def _wider(node: Node) -> Node:
    cores = node.cores
    return node._replace(
        gpus=tuple(gpu for gpu in node.gpus for _ in range(2)),
        cores=cores._replace(demand=2 * cores.demand, base=2 * cores.base,
                             confined=2 * cores.confined, threads=2 * cores.threads),
        read=2 * node.read, write=2 * node.write, net=2 * node.net,
        asleep=tuple(2 * key + n for key in node.asleep for n in (0, 1)),
    )  # fmt: skip


def _larger(request: Request, tasks: int) -> Request:
    return replace(request, cpus=2 * request.cpus, gpus=2 * request.gpus, mem=2 * request.mem,
                   tasks=tasks)  # fmt: skip


def _slower(curve: Curve) -> Curve:
    return lambda second: curve(second / 2)


def _twice(curve: Curve) -> Curve:
    return lambda second: 2 * curve(second)


def _held_slower(held: Held) -> Held:
    live = None if held.live is None else _slower(held.live)
    return held._replace(shown=_slower(held.shown), live=live)


def names(changed: Sequence[frozenset[tuple[str, str]]]) -> str:
    """What one verdict has and the other has not: `+id:level -id:level`."""
    before, later = changed
    added = [f"+{id}:{level}" for id, level in sorted(later - before)]
    return " ".join(added + [f"-{id}:{level}" for id, level in sorted(before - later)])
