"""What a job truly needed, and what each of its GPUs truly did in every second.

All of it comes from the program that was simulated, nothing from samples, rules or thresholds:
a yardstick for what a report says of waste, and for what its lines free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from tests.simulator.follow import SLOWER, as_requested, core_slowdown, longest, most_memory
from tests.simulator.job import SimJob
from tests.simulator.loads import Gpu, Segment
from tests.simulator.truth import facts, happened

Place = tuple[int, int]  # node, GPU
Window = tuple[float, float]


class State(Enum):
    """What a GPU of a job does; of two that hold, the first."""

    NOT_HELD = "not held"
    LOST = "lost"
    HUNG = "hung"
    WORKING = "working"  # in turn with waiting, many times a minute: see its used share
    WAITING = "waiting"  # for a peer, spinning
    OTHERS = "another user's"  # work on it, and none of the job's
    ALONE = "idle beside working ones"
    TURNS = "idle while others have their turn"
    NEVER = "idle, as all GPUs of the job from its start to its end"
    BEFORE = "idle before the first work"
    BETWEEN = "idle between"
    BEHIND = "idle behind the last work"


#: nothing of a GPU is wasted then by the job that holds it
NO_WASTE = (State.NOT_HELD, State.OTHERS)


class Stretch(NamedTuple):
    """One state of one GPU, from `since` to `until`, in seconds of the run."""

    since: float
    until: float
    state: State
    used: float = 0.0  # share of it in which the GPU did something for the job
    cause: str = ""  # of what was not used: host, data, storage, peer, requests; "": nothing

    @property
    def seconds(self) -> float:
        return self.until - self.since


class Needs(NamedTuple):
    """What the next, identical job needs; of memory and time, in 99 of 100 runs."""

    mem: tuple[float, ...]  # B, by node: with the page cache that it reads again and again
    cores: int  # of a node; with fewer it takes over a tenth longer
    gpus: int  # of all nodes: those that worked, and one where it does not start without
    gpus_at_once: int  # of them, the most at one time: enough for a script that is changed
    limit_s: float


# -- every second ------------------------------------------------------------------------------


def timeline(job: SimJob) -> dict[Place, list[Stretch]]:
    """Of each GPU that the job held, from its start to its end, without a hole."""
    rows: dict[Place, list[Stretch]] = {
        (node, key): [] for node in range(job.request.nodes) for key in range(job.request.gpus)
    }
    parts = list(_parts(job))
    first = next((since for since, _, each in parts if _works(each)), None)
    last = max((until for _, until, each in parts if _works(each)), default=0.0)
    in_turns = _in_turns([each for _, _, each in parts])
    for since, until, segment in parts:
        together = _together(since, first, last)
        for place, row in rows.items():
            row.append(_stretch(job, place, since, until, segment, together, in_turns))
    return {place: list(_joined(row)) for place, row in rows.items()}


def _parts(job: SimJob) -> Iterator[tuple[float, float, Segment]]:
    """What happened, parted where a GPU is lost."""
    at = job.program.lost[0] if job.program.lost is not None else -1.0
    for since, until, segment in happened(job):
        if since < at < until:
            yield since, at, segment
            since = at
        yield since, until, segment


def _works(segment: Segment) -> bool:
    return segment.name != "hang" and any(
        used_share(gpu) for node in segment.nodes for gpu in node.gpus
    )


def used_share(gpu: Gpu) -> float:
    """Of the time in which the GPU does something for the job; to spin for a late peer is none.

    Collectives of a program that is in step are work: they move data.
    """
    return gpu.active * (1 - gpu.for_peer)


def _together(since: float, first: float | None, last: float) -> State:
    """What it is called that no GPU of the job works then."""
    if first is None:
        return State.NEVER
    return State.BEFORE if since < first else State.BEHIND if since >= last else State.BETWEEN


def _in_turns(segments: Sequence[Segment]) -> set[Place]:
    """GPUs that idle only while others work that idle while these work."""
    sets = {at_work(each) for each in segments} - {frozenset()}
    every = frozenset().union(*sets)
    return {place for place in every
            if any(place not in each for each in sets)
            and all(one.isdisjoint(other) or place not in one | other
                    for one in sets for other in sets if one != other)}  # fmt: skip


def at_work(segment: Segment) -> frozenset[Place]:
    return frozenset(
        (number, key)
        for number, node in enumerate(segment.nodes)
        for key, gpu in enumerate(node.gpus)
        if segment.name != "hang" and used_share(gpu)
    )


def _stretch(
    job: SimJob, place: Place, since: float, until: float, segment: Segment, together: State,
    in_turns: set[Place],
) -> Stretch:  # fmt: skip
    gpu, lost = _gpu(segment, place), job.program.lost
    if lost is not None and place == (0, lost[1]) and since >= lost[0]:
        return Stretch(since, until, State.LOST)
    if segment.name == "hang":
        return Stretch(since, until, State.HUNG, 0.0, "peer" if gpu.for_peer else "")
    if gpu.active:
        used = used_share(gpu)
        state = State.WORKING if used else State.WAITING
        return Stretch(since, until, state, used, _missing(job, segment, gpu) if used < 1 else "")
    if gpu.foreign:
        return Stretch(since, until, State.OTHERS)
    if _works(segment):
        state = State.TURNS if place in in_turns else State.ALONE
        return Stretch(since, until, state, 0.0, "peer" if segment.name in _OF_ONE else "")
    return Stretch(since, until, together, 0.0, _CAUSES.get(segment.name.split(": ")[-1], "host"))


#: segments in which one rank has something to do for all
_OF_ONE = ("eval", "checkpoint")
#: what the cores, or nothing, do in a segment in which no GPU works; others: they compute
_CAUSES = {
    "stage": "storage", "load": "storage", "write": "storage", "checkpoint": "storage",
    "nothing": "", "think": "", "serve": "requests",
}  # fmt: skip


def _gpu(segment: Segment, place: Place) -> Gpu:
    gpus = segment.nodes[place[0]].gpus
    return gpus[place[1]] if place[1] < len(gpus) else Gpu(pcie=0.0)


def _missing(job: SimJob, segment: Segment, gpu: Gpu) -> str:
    """For what a GPU waits between its kernels."""
    causes = job.program.causes
    if gpu.for_peer:
        return "peer"
    if gpu.requests_per_s or segment.name == "serve":
        return "requests"
    named = {"input": "data", "starved": "data", "unequal": "peer", "storage": "storage"}
    return next((named[each] for each in named if each in causes), "host")


def _joined(row: Iterable[Stretch]) -> Iterator[Stretch]:
    """Neighbours of one state as one, as far as they are equal in all else."""
    last: Stretch | None = None
    for each in row:
        if last is not None and last[2:] == each[2:]:
            last = last._replace(until=each.until)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


# -- sums --------------------------------------------------------------------------------------


def wasted_s(job: SimJob, windows: Sequence[Window] = ()) -> float:
    """GPU seconds that the job held and did not use; `windows`: only in these."""
    return sum(
        (1 - each.used) * _within(each, windows)
        for row in timeline(job).values()
        for each in row
        if each.state not in NO_WASTE
    )


def _within(stretch: Stretch, windows: Sequence[Window]) -> float:
    if not windows:
        return stretch.seconds
    return sum(
        max(0.0, min(stretch.until, until) - max(stretch.since, since)) for since, until in windows
    )


def observed(job: SimJob) -> list[Window]:
    """What of the run was recorded."""
    found, at = [], job.view.since
    until = min(job.view.until, job.ended.seconds)
    for since, to in sorted(job.view.gaps):
        found.append((at, min(since, until)))
        at = to
    return [(since, to) for since, to in [*found, (at, until)] if since < to]


def last_useful_s(job: SimJob) -> float:
    """When a GPU of the job last worked for it; of a job without, when its cores did."""
    found = 0.0
    for _, until, segment in happened(job):
        used = max(node.cores.used(job.request.cpus) for node in segment.nodes)
        if _works(segment) or (segment.name != "hang" and used >= 0.1):
            found = until
    return found


# -- needs -------------------------------------------------------------------------------------


def needs(job: SimJob) -> Needs:
    request, program = job.request, job.program
    known = facts(job)
    worked = sum(active > 0.02 * known.seconds for active in known.active_s.values())
    least = int(program.needs_gpu and request.gpus > 0)
    at_once = max((len(at_work(each)) for _, _, each in happened(job)), default=0)
    return Needs(
        tuple(min(request.mem, each + program.reread) for each in most_memory(job)),
        _cores(job), max(least, worked), max(least, at_once), longest(job),
    )  # fmt: skip


def _cores(job: SimJob) -> int:
    """The fewest of a node, in steps of what one rank must have."""
    request = job.request
    least = request.tasks if job.program.needs_ranks else 1
    low, high = min(least, request.cpus), request.cpus
    made = as_requested(request)
    while low < high:
        made.cpus = middle = (low + high) // 2
        if core_slowdown(job, made) > SLOWER:
            low = middle + 1
        else:
            high = middle
    return min(request.cpus, max(low, least * request.threads_per_core))
