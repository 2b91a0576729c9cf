"""GPUs that wait for data, or for what else the cores of their node do for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, NotEvaluable, to_write
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.ledger import HELD_BACK
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.changes import action_of, cpus_line
from gpumon.analysis.rightsize.cores import cores_per_gpu, more_cpus
from gpumon.analysis.rightsize.requested import cores_of, requested
from gpumon.analysis.rules.advice import COPY_HERE
from gpumon.analysis.rules.gpu_ineffective import LowBusy, Shown
from gpumon.analysis.rules.gpu_waits import (
    MOVES_BYTES_PER_S,
    NO_CORES,
    beside_share,
    by_node,
    in_turns,
    level_of,
    says,
)
from gpumon.analysis.rules.loader import loader_action, loader_actions, waits_held, waits_of
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import percent
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import DeviceData, NodeData, RunData, Track
from gpumon.analysis.signals import (
    Held,
    Span,
    busy_track,
    devices_on,
    first_active,
    io_tracks,
    job_processes,
    mean_of,
    seconds_of,
    sustained,
    warm_up_end,
)
from gpumon.analysis.thresholds import Percent, Seconds, of_site
from gpumon.analysis.waiting import bound_nodes


class InputBound(NamedTuple):
    seconds: Seconds = 300
    busy_low_percent: Percent = 10
    busy_high_percent: Percent = 70
    warning_percent: Percent = 60  # busy above is information
    pressure_percent: Percent = 20  # of CPU or I/O, or the host's iowait
    cpu_percent: Percent = 90  # of the job's cores, or of each loader's
    wait_percent: Percent = 30  # of a probed process's time, in its data loader
    wait_seconds: Seconds = 120  # ... for so long: measured, it needs no warm-up


#: GPUs that wait rest now and then, for longer where readings are polled
_CONSEQUENCES = ("low-busy", "host-stall", "idle-time")


@rule(
    "input-bound",
    title="GPUs wait while the job's cores or workers are saturated, or storage is slow",
    why="The GPU waits for data or for the CPU; a faster GPU would not help.",
    remedy="more workers and cores; data staged to the node's own disk",
    needs=(gpus,),
    folds=_CONSEQUENCES,
    wastes=HELD_BACK,
)
def input_bound(run: RunData, t: InputBound) -> Answers:
    """One of: the job's cores are full; every worker process is; the job's cpu.pressure. Variant
    storage: io.pressure or the host's iowait. Information where GPU and host only work in turns.
    Where the probe measured that a process waits in its data loader, none of these is needed.

    Guards: by mean and correlation, never by a sawtooth; where the GPU is as little busy without
    the sign, the sign is not the cause; the host's iowait counts only where the job itself moves
    data; servers wait for requests, interactive jobs for people; processes bound to few cores have
    a finding of their own; programs that poll for messages keep their cores busy while they wait;
    where no thread waits for a core, full cores are information, as more may not help.

    Source: no peer; simulated loops (findings, 3.3); the thresholds are proposed.
    """
    for each in _waiting(run):
        if isinstance(each, NotEvaluable):
            yield each
        elif not _are_environments(run, *each):
            yield _input_bound(run, *each, t.warning_percent)


@rule(
    "cpu-environments",
    title="the environments of reinforcement learning keep the cores full while GPUs wait",
    why="The GPU can only learn from what the environments on the CPU produce.",
    remedy="more cores and environments, simulation on the GPU, or a smaller GPU",
    needs=(gpus,),
    folds=_CONSEQUENCES,
    wastes=HELD_BACK,
)
def cpu_environments(run: RunData) -> Answers:
    """The signs of `input-bound` on cores, for programs of reinforcement learning: their workers
    are simulators and no data loaders. Information, as such programs use GPUs little by design,
    unless the GPU is used so little that `low-busy` warns.

    Source: as of `input-bound`.
    """
    least = of_site(run.site, "low-busy", LowBusy).warning_percent
    for each in _waiting(run):
        if not isinstance(each, NotEvaluable) and _are_environments(run, *each):
            yield _input_bound(run, *each, least)


@once
def _waiting(run: RunData) -> list[NotEvaluable | tuple[NodeData, str, Shown]]:
    """The GPUs that wait, of each node by the variant; and what is unknown."""
    t = of_site(run.site, "input-bound", InputBound)
    if kind_of(run) is Kind.REINFORCEMENT:
        t = t._replace(busy_low_percent=_USED_PERCENT)
    return list(by_node(run, lambda device, node: _input_held(run, device, node, t)))


def nodes_short_of_cores(run: RunData) -> set[str]:
    """Those whose cores hold the GPUs up, as a finding about these says."""
    held_up = (each for each in _waiting(run) if not isinstance(each, NotEvaluable))
    return {
        node.node
        for node, variant, shown in held_up
        if variant in _ON_CORES and not _polls(run, variant, shown)
    }


def storage_waits(run: RunData, node: NodeData) -> list[Span]:
    """When GPUs of this node wait for storage, as far as `input-bound` warns of that."""
    most = of_site(run.site, "input-bound", InputBound).warning_percent
    return [
        span
        for each in _waiting(run)
        if not isinstance(each, NotEvaluable)
        and each[0] is node
        and each[1] == "storage"
        and each[2].means()["busy_percent"] < most
        and level_of(run, each[2]) == "warning"
        for span in each[2].spans
    ]


#: busy from which on a GPU is used at all
_USED_PERCENT = 1.0


def _are_environments(run: RunData, node: NodeData, variant: str, shown: Shown) -> bool:
    return variant in _ON_CORES and kind_of(run, shown.devices) is Kind.REINFORCEMENT


def _input_held(
    run: RunData, device: DeviceData, node: NodeData, t: InputBound
) -> tuple[Held, str]:
    """The first sign that held, and its variant; where busy fits and no sign is known, why."""
    low, high = t.busy_low_percent, t.busy_high_percent
    first = warm_up_end(run, device)
    busy = busy_track(device)
    waiting = sustained(run, t.seconds, lambda means: low <= means[0] <= high, [busy], first)
    if any(each.node is node for each in bound_nodes(run)):
        return Held([], waiting.known), ""
    begin = first_active(device) or 0
    measured = waits_held(run, device, begin, t.wait_seconds, t.wait_percent, (_USED_PERCENT, high))
    if measured.spans:
        return measured, _limit_of(run, device, node, t, measured.spans)
    if not waiting.spans:
        return Held([], waiting.known), ""
    known = False
    for sign in _signs(run, device, node, t):

        def holds(means: Sequence[float], limit: float = sign.limit) -> bool:
            return low <= means[0] <= high and min(means[1:]) >= limit

        held = sustained(run, t.seconds, holds, [busy, *sign.tracks], first)
        if held.spans and _explains(run, device, sign, held.spans, low):
            return held, sign.variant
        known = known or (sign.variant != "storage" and held.known)
    turns = in_turns(run, node, device, waiting.spans)
    if turns == "fetches":
        return waiting, "turns"
    if turns == "unknown":
        return Held([], False), NO_CORES
    return Held([], known), "" if known else "neither the job's CPU use nor its pressure is known"


def _limit_of(
    run: RunData, device: DeviceData, node: NodeData, t: InputBound, spans: Sequence[Span]
) -> str:
    """The variant by what is at its limit while a data loader is waited for; else `loader`."""
    for sign in _signs(run, device, node, t):
        means = [mean_of(track, spans) for track in sign.tracks]
        if all(mean is not None and mean >= sign.limit for mean in means):
            return sign.variant
    return "loader"


class _Sign(NamedTuple):
    """What may hold the input up: all of the tracks must reach the limit."""

    variant: str  # full, workers, cpu, storage
    tracks: list[Track]
    limit: float


def _signs(run: RunData, device: DeviceData, node: NodeData, t: InputBound) -> Iterator[_Sign]:
    pressures = [
        _Sign(variant, [node.job[name]], t.pressure_percent)
        for variant, name in (("cpu", "cpu_pressure_percent"), ("storage", "io_pressure_percent"))
        if name in node.job
    ]
    if workers := _workers(run, device, node):
        yield _Sign("workers", workers, t.cpu_percent)
    yield from pressures[:1]
    if node.cpus and "cpu_cores_used" in node.job:
        yield _Sign("full", [node.job["cpu_cores_used"]], t.cpu_percent / 100 * node.cpus)
    yield from pressures[1:]
    if "iowait_percent" in node.host and _moves_data(run, node):
        yield _Sign("storage", [node.host["iowait_percent"]], t.pressure_percent)


def _moves_data(run: RunData, node: NodeData) -> bool:
    """The job, and not only others on its node."""
    rates = [rate for each in io_tracks(run, node.node) if (rate := each.average()) is not None]
    blocked = node.blocked.average() or 0.0
    return blocked >= 1 or any(rate >= MOVES_BYTES_PER_S for rate in rates)


def _explains(
    run: RunData, device: DeviceData, sign: _Sign, spans: Sequence[Span], low_percent: float
) -> bool:
    """Whether the GPU is busier where the sign is absent; also where it never is for long. Not
    where the GPU is fully busy for minutes with the sign: then phases of the program explain it.
    """
    busy = busy_track(device)
    first = warm_up_end(run, device)

    def is_full(means: Sequence[float]) -> bool:
        return means[0] >= _FULLY_PERCENT and min(means[1:]) >= sign.limit

    keeps_up = sustained(run, _PHASE_S, is_full, [busy, *sign.tracks], first)
    if seconds_of(run, keeps_up.spans) >= _COMPARED_S:
        return False
    inside = mean_of(busy, spans) or 0.0
    held = {at for first, last in spans for at in range(first, last)}
    columns = zip(busy.mean, *(each.mean for each in sign.tracks))
    without = [
        now
        for at, (now, *values) in enumerate(columns)
        if at not in held and now >= low_percent and max(values) < _ABSENT * sign.limit
    ]
    return len(without) < run.bins(_COMPARED_S) or fmean(without) >= inside + _BUSIER


#: a sign is absent below this part of its limit; over so many s in all, the GPU must then be busier
#: by so many points
_ABSENT, _COMPARED_S, _BUSIER = 0.6, 300.0, 10.0
#: so long at so much a GPU is fully busy: no luck of single readings
_PHASE_S, _FULLY_PERCENT = 120.0, 85.0


def _workers(run: RunData, device: DeviceData, node: NodeData) -> list[Track]:
    """CPU use of the workers of the processes on the device: their children, or forks with the same
    command, that are on no device themselves. Those that hardly work do not count.
    """
    on_device = {each.facts.pid for each in job_processes(device)}
    commands = {each.facts.command for each in job_processes(device)} - {""}
    on_any = {each.facts.pid for other in devices_on(run, node) for each in other.processes}
    return [
        track
        for pid, (facts, track) in node.processes.items()
        if (facts.ppid in on_device or facts.command in commands)
        and pid not in on_any
        and (track.average() or 0.0) >= _WORKS_PERCENT
    ]


#: of a core, from which on a worker counts
_WORKS_PERCENT = 20.0


def _polls(run: RunData, variant: str, shown: Shown) -> bool:
    """Programs of several ranks poll for messages: their cores are full whatever they wait for."""
    return variant == "full" and kind_of(run, shown.devices) in (Kind.DYNAMICS, Kind.SOLVER)


def _input_bound(
    run: RunData, node: NodeData, variant: str, shown: Shown, warning_percent: float
) -> Finding:
    """A warning where the GPUs are less busy than this."""

    def mean(tracks: dict[str, Track], name: str) -> float | None:
        return mean_of(tracks.get(name, Track()), shown.spans)

    kind = kind_of(run, shown.devices)
    busy = shown.means()["busy_percent"]
    cores, iowait = mean(node.job, "cpu_cores_used"), mean(node.host, "iowait_percent")
    pressure, io = mean(node.job, "cpu_pressure_percent"), mean(node.job, "io_pressure_percent")
    parts = [f"GPU busy {percent(busy)}"]
    if cores is not None and node.cpus:
        parts.append(f"{cores:.1f} of {node.cpus} cores are busy")
    if variant in _ON_CORES and pressure is not None:
        parts.append(f"CPU pressure {percent(pressure)}")
    if variant not in _ON_CORES:
        parts += [f"I/O pressure {percent(io)}"] if io is not None else []
        parts += [f"iowait {percent(iowait)}"] if iowait is not None else []
    waits = waits_of(run, shown.devices, shown.spans)
    parts += [waits.says()] if waits is not None else []
    what = ", ".join(parts)
    why_not = ""  # more cores may not help
    if _polls(run, variant, shown):
        why_not = _POLLING
    elif variant == "full" and pressure is not None and pressure < _NO_WAIT_PERCENT:
        why_not = _LESS_ON_CORES.get(kind, _ENOUGH)
    idle = _on_idle_cores(run, node, kind, variant, shown)
    is_normal = bool(why_not) or variant == "turns" or busy >= warning_percent
    is_own = kind is Kind.LEARNING and variant in _ON_CORES and _is_own(run, node, shown)
    loads = variant not in _ON_CORES or (kind in _LOADS and not is_own and not why_not)
    actions = idle or _input_actions(run, node, kind, variant, why_not, is_own=is_own)
    verb, rest = _WAITS[variant if loads else "other"]
    confidence = {"full": "medium", "turns": "low"}.get(variant, "high")
    if waits is not None and (variant == "loader" or waits.percent >= _MUCH_PERCENT):
        confidence = "high"
        rest = f"for data ({waits.line})" if waits.line else rest
        if variant == "loader":
            actions = loader_actions(run, node, waits)
    return shown.finding(
        run,
        "info" if is_normal else level_of(run, shown),
        what,
        says(shown, verb, rest),
        confidence=confidence,
        numbers={
            "busy_percent": busy,
            "cpu_cores_mean": cores,
            "cpu_pressure_percent": pressure,
            "io_pressure_percent": io,
            "iowait_percent": iowait,
            "data_wait_percent": waits.percent if waits is not None else None,
        },
        actions=actions,
        uses_more=bool(idle),
    )


def _is_own(run: RunData, node: NodeData, shown: Shown) -> bool:
    """The processes on the GPUs use most of the cores themselves: by threads that load data, or by
    an optimizer that was offloaded.
    """
    share = beside_share(run, node, shown.spans)
    return share is not None and share < _LOADERS_SHARE


#: % of the time in a data loader that proves what other signs suggest (proposed)
_MUCH_PERCENT = 20.0
#: % of the time in which a thread waits for a core where there are enough of them (proposed)
_NO_WAIT_PERCENT = 5.0
#: of the CPU use, that loaders have at least (proposed)
_LOADERS_SHARE = 0.2


#: variants in which cores are the limit, and kinds of programs that load data with them
_ON_CORES = ("full", "workers", "cpu")
_LOADS = (Kind.LEARNING, Kind.UNKNOWN)
#: verb, and what follows it
_WAITS = {
    **dict.fromkeys(_ON_CORES, ("wait", "for data (CPU cores)")),
    "storage": ("wait", "for data (storage)"),
    "loader": ("wait", "for data"),
    "turns": ("work", "in turns with the CPU cores"),
    "other": ("wait", "for the CPU cores"),
}


def _input_actions(
    run: RunData, node: NodeData, kind: Kind, variant: str, why_not: str, *, is_own: bool
) -> tuple[Action, ...]:
    """`why_not`: what to do instead where more cores may not help."""
    if variant == "turns":
        text = "If the GPU waits for data, prepare the next batch while the GPU works."
        return (to_write(text),)
    if variant == "storage":
        return (_LESS_WRITING if _mostly_writes(node) else _STAGE,)
    if why_not:
        return (to_write(why_not),)
    if is_own:
        return _more_cores(run, node, _PROFILE, _PROFILE)
    loader = kind is Kind.LEARNING
    use, less = _USE_CORES.get(kind, _WORKERS), _LESS_ON_CORES.get(kind, _PREPARE)
    return _more_cores(run, node, use, less, loader=loader)


def _on_idle_cores(
    run: RunData, node: NodeData, kind: Kind, variant: str, shown: Shown
) -> tuple[Action, ...]:
    """More workers, where these are at their limit while cores of the job idle; else nothing."""
    cores = mean_of(node.job.get("cpu_cores_used", Track()), shown.spans)
    if variant != "workers" or cores is None or not node.cpus:
        return ()
    idle = int(node.cpus - cores)
    if idle < max(_IDLE_CORES, _IDLE_SHARE * node.cpus):
        return ()
    if kind is not Kind.LEARNING:
        many = "environments" if kind is Kind.REINFORCEMENT else "workers"
        return (to_write(f"Start more {many}: {idle} cores are idle."),)
    workers = len(_workers(run, shown.devices[0], node))
    wanted = ceil(workers * 0.9 / (shown.means()["busy_percent"] / 100))
    most = workers + idle // len(devices_on(run, node))
    loader = loader_action(min(wanted, most))
    return (replace(loader, text=f"Start more workers: {idle} cores are idle."),)


#: so many idle cores, and this part of all, that more workers need no more cores (proposed)
_IDLE_CORES, _IDLE_SHARE = 2, 0.25


_STAGE = Action(
    "shell",
    COPY_HERE,
    text="Copy the data to the node's own disk first, if it fits, and read it there; few large "
    "files (shards), not many small ones.",
)
_LESS_WRITING = to_write("Write checkpoints and output less often, or in the background.")


def _mostly_writes(node: NodeData) -> bool:
    written = node.job.get("write_bytes_per_s", Track()).average() or 0.0
    return written > (node.job.get("read_bytes_per_s", Track()).average() or 0.0)


def _more_cores(
    run: RunData, node: NodeData, use: str, less: str, *, loader: bool = False
) -> tuple[Action, ...]:
    """ceil(cores · 0.9 / busy), at most the GPUs' fair share of a node (findings, 10.2).

    `use`, `less`: how to use more cores, and what to do where there are no more.
    """
    cores = more_cpus(run)
    if cores is None:
        return (to_write(f"{_why_no_more(run, node)}{less}"),)
    line = cpus_line(requested(run), cores)
    if not loader:
        return (action_of(line, use),)
    return action_of(line), loader_action(max(1, cores // len(devices_on(run, node))))


def _why_no_more(run: RunData, node: NodeData) -> str:
    """What bounds the cores of the job, where that is reached."""
    request, share, whole = requested(run), cores_per_gpu(run), cores_of(node)
    if not request.cpus or not request.gpus:
        return ""
    if whole is not None and request.cpus >= whole:
        return "The job already has all cores of its node. "
    if share is None or request.cpus < int(share * request.gpus):
        return ""
    more = "more than " if request.cpus > share * request.gpus else ""
    return f"The job already has {more}its fair share of cores ({share:.0f} per GPU). "


_POLLING = "Ranks that wait for messages look busy: compare the time with more and fewer cores."
_ENOUGH = (
    "No thread waited for a core: profile what the program computes on its cores, and compare the "
    "time with more threads and cores."
)
_PREPARE = "Prepare the data once, before the run."
_PROFILE = "Profile what the program computes on its cores: data, or an offloaded optimizer."
_LESS_ON_CORES = {
    Kind.REINFORCEMENT: "Simulate on the GPU, run simulation and learning at the same time, or "
    "request a smaller GPU.",
    Kind.DYNAMICS: "Move more of the work to the GPU (gmx mdrun -nb gpu -pme gpu -update gpu).",
    Kind.SOLVER: "Compare the time with fewer GPUs.",
}
_ON_THEM = "on the additional cores"
_WORKERS = f"Start more workers or threads {_ON_THEM}."
_USE_CORES = {
    Kind.REINFORCEMENT: f"Start more environments {_ON_THEM}, or simulate on the GPU instead.",
    Kind.DYNAMICS: f"Start one thread per core {_ON_THEM} (OMP_NUM_THREADS, -ntomp).",
    Kind.SOLVER: f"Start one thread per core {_ON_THEM} (OMP_NUM_THREADS).",
}
