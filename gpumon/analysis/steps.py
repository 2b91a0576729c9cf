"""Steps of the processes that the probe reports on, and of the job: how many, how long, and where
they wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, NodeData, ProgramData, RunData
from gpumon.analysis.signals import is_of_job, job_devices, job_processes, node_of
from gpumon.frames.places import Place, ranked

_MOST_PLACES = 5


def probed(node: NodeData) -> list[ProgramData]:
    """The processes of the job on a node that the probe reports on, by rank."""
    own = [each for each in node.programs if is_of_job(each.facts) or not each.facts.user]
    return sorted(own, key=lambda each: (each.rank is None, each.rank or 0, each.facts.pid))


def probed_on(run: RunData, device: DeviceData) -> list[ProgramData]:
    """Those on a device; all of its node where the driver's process numbers are of another
    namespace.
    """
    node = node_of(run, device)
    programs = [] if node is None else probed(node)
    if device.node not in _with_known_numbers(run):
        return programs
    here = {each.facts.pid for each in job_processes(device)}
    return [each for each in programs if each.facts.pid in here]


@once
def _with_known_numbers(run: RunData) -> set[str]:
    """Nodes on whose devices the driver names a process that the probe reports on."""
    known = {(node.node, each.facts.pid) for node in run.nodes for each in node.programs}
    return {
        device.node
        for device in run.devices
        for process in device.processes
        if (device.node, process.facts.pid) in known
    }


class Rank(NamedTuple):
    """One process over the run. None where it is not known; shares in % of its looks."""

    node: str
    pid: int
    rank: int | None
    devices: tuple[str, ...]  # labels, gpu01:0; empty where they are not known
    steps: float | None  # while it was observed
    steps_per_s: float | None  # pauses count
    step_mean_s: float | None
    step_p95_s: float | None  # of ten seconds, in the mean
    data_wait_percent: float | None
    workers: int  # of its data loader, at a time
    places: tuple[tuple[Place, float], ...]  # where it stood most
    worker_places: tuple[tuple[Place, float], ...]

    @property
    def name(self) -> str:
        """`rank 3`, else `PID 4312`."""
        return f"PID {self.pid}" if self.rank is None else f"rank {self.rank}"


class Steps(NamedTuple):
    """Of the job: ranks that step together make one step, programs beside each other make two."""

    steps: float | None
    steps_per_s: float | None
    step_mean_s: float | None  # mean of the ranks
    step_p95_s: float | None
    data_wait_percent: float | None  # mean of the ranks that make steps


@once
def ranks_of(run: RunData) -> list[Rank]:
    """Of all nodes, those first that have a rank."""
    ranks = [_rank(run, node, each) for node in run.nodes for each in probed(node)]
    return sorted(ranks, key=lambda each: (each.rank is None, each.rank or 0))


def _rank(run: RunData, node: NodeData, program: ProgramData) -> Rank:
    p95 = program.track("step_p95_us").average()
    watched_s = program.last - program.first
    steps = program.steps
    is_known = node.node in _with_known_numbers(run)
    return Rank(
        node.node,
        program.facts.pid,
        program.rank,
        tuple(
            each.label
            for each in job_devices(run)
            if is_known and each.node == node.node and program in probed_on(run, each)
        ),
        steps,
        steps / watched_s if steps is not None and watched_s > 0 else None,
        _step_s(program),
        None if p95 is None else p95 / 1e6,
        program.track("data_wait_percent").average(),
        program.workers,
        _mostly(program.places()),
        _mostly(program.worker_places()),
    )


def _step_s(program: ProgramData) -> float | None:
    """The time of all buckets with steps, over the steps in them."""
    known = [each for each in program.track("step_us").known() if each > 0]
    return len(known) / sum(1 / each for each in known) / 1e6 if known else None


def _mostly(looks: Counter[Place]) -> tuple[tuple[Place, float], ...]:
    return tuple((place, 100 * part) for place, part in list(ranked(looks))[:_MOST_PLACES])


def steps_of(ranks: Sequence[Rank]) -> Steps | None:
    """None where the probe saw no step."""
    times = [each.step_mean_s for each in ranks if each.step_mean_s is not None]
    steps = _of_job((each.rank, each.steps) for each in ranks)
    if not times and not steps:
        return None
    stepping = [each.data_wait_percent for each in ranks if each.steps or each.step_mean_s]
    waits = [each for each in stepping if each is not None]
    tails = [each.step_p95_s for each in ranks if each.step_p95_s is not None]
    return Steps(
        steps,
        _of_job((each.rank, each.steps_per_s) for each in ranks),
        sum(times) / len(times) if times else None,
        max(tails, default=None),
        sum(waits) / len(waits) if waits else None,
    )


def _of_job(values: Iterable[tuple[int | None, float | None]]) -> float | None:
    """Programs beside each other have the same ranks, or none: theirs are added up."""
    together: dict[int | None, float] = defaultdict(float)
    for rank, value in values:
        if value is not None:
            together[rank] += value
    return max(together.values(), default=None)


class StepsNow(NamedTuple):
    """Of the job in its last minute. None where it is not known."""

    per_s: float | None
    step_s: float | None  # mean of the ranks
    data_wait_percent: float | None  # the same
    still_s: float  # since the last step of any
    programs: list[ProgramData]  # that are there, by rank


@once
def steps_now(run: RunData) -> StepsNow | None:
    """None where the probe reports on nothing that makes steps."""
    programs = [
        each
        for node in run.nodes
        for each in probed(node)
        if each.stepped is not None and run.end - each.last <= _NOW_S
    ]
    if not programs:
        return None
    times = [(each.rank, _recently(run, each, "step_us")) for each in programs]
    known = [time for _, time in times if time]
    waits = [_recently(run, each, "data_wait_percent") for each in programs]
    waited = [each for each in waits if each is not None]
    stepped = max(each.stepped or 0.0 for each in programs)
    return StepsNow(
        _of_job((rank, 1e6 / time) for rank, time in times if time),
        sum(known) / len(known) / 1e6 if known else None,
        sum(waited) / len(waited) if waited else None,
        max(0.0, max(each.last for each in programs) - stepped),
        programs,
    )


_NOW_S = 60.0


def _recently(run: RunData, program: ProgramData, name: str) -> float | None:
    return program.track(name).average(max(0, run.count - run.bins(_NOW_S)), run.count)
