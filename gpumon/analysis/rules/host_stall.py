"""GPUs that wait for one thread on their node, or work in turns with its cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, NotEvaluable, to_write
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.known import most_at_once
from gpumon.analysis.ledger import HELD_BACK
from gpumon.analysis.rules.gpu_ineffective import Shown
from gpumon.analysis.rules.gpu_waits import (
    MOVES_BYTES_PER_S,
    NO_CORES,
    beside_share,
    busy_between_pauses,
    by_node,
    in_turns,
    level_of,
    says,
)
from gpumon.analysis.rules.loader import loader_action
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import percent
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rules.stands import most_text, probed_of
from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, RunData, Track
from gpumon.analysis.signals import (
    Held,
    busy_track,
    devices_on,
    job_processes,
    mean_of,
    sustained,
    warm_up_end,
)
from gpumon.analysis.thresholds import Cores, Percent, Seconds


class HostStall(NamedTuple):
    seconds: Seconds = 300
    busy_low_percent: Percent = 5  # below, it is idle
    busy_high_percent: Percent = 70
    cores: Cores = 1.2  # for each process on a GPU


@rule(
    "host-stall",
    title="GPUs wait for processes of which each uses one core; or for CPU offload",
    why="The GPU waits for the CPU; a faster GPU would not help.",
    remedy="profile what the CPU does between the GPU's work",
    needs=(gpus,),
    folds=("low-busy", "idle-time"),
    wastes=HELD_BACK,
)
def host_stall(run: RunData, t: HostStall) -> Answers:
    """Few cores work: of each process on a GPU one, at ≥ 95 %. Variant: busy and CPU are
    anticorrelated (≤ −0.3), and at least half of the cores (4 and more) work in the GPU's dips, as
    CPU offload does, or the environments of reinforcement learning. Guards: servers and interactive
    jobs wait for others; information for programs that are not known to learn, because a thread
    that waits for the GPU by spinning looks the same. Threads are not measured one by one: a
    process at 95 to 120 % stands for one, with medium confidence.

    Source: no peer; Chameleon's DeepSpeed offload runs; the thresholds are proposed.
    """
    for each in by_node(run, lambda device, node: _stall_held(run, device, node, t)):
        yield each if isinstance(each, NotEvaluable) else _host_stall(run, *each)


def _stall_held(run: RunData, device: DeviceData, node: NodeData, t: HostStall) -> tuple[Held, str]:
    low, high = t.busy_low_percent, t.busy_high_percent
    first = warm_up_end(run, device)
    if "cpu_cores_used" not in node.job:
        return Held([], False), "the job's CPU use is not known"
    tracks = [busy_between_pauses(run, device), node.job["cpu_cores_used"]]
    ranks = _at_once(run, (p for each in devices_on(run, node) for p in job_processes(each)))
    own, most = {p.facts.pid for p in job_processes(device)}, t.cores * max(1, ranks)

    def one_thread(means: Sequence[float]) -> bool:
        busy, cores, process = means
        return low <= busy < high and cores <= most and _ONE[0] <= process <= _ONE[1]

    for pid, (facts, process) in node.processes.items():
        if ranks > 1 and not {pid, facts.ppid} & own:
            continue  # it may be that of another GPU
        held = sustained(run, t.seconds, one_thread, [*tracks, process], first)
        if held.spans:
            return held, "thread"
    in_range = sustained(run, t.seconds, lambda means: low <= means[0] < high, tracks, first)
    variant = in_turns(run, node, device, in_range.spans) if in_range.spans else ""
    if variant == "computes":
        return in_range, variant
    if variant == "unknown":
        return Held([], False), NO_CORES
    if in_range.spans and not node.processes:
        return Held([], False), "no process's CPU use is known"
    return Held([], in_range.known), ""


def _at_once(run: RunData, processes: Iterable[ProcessData]) -> int:
    """The most of them that were there at one time."""
    lives: dict[int, tuple[float, float]] = {}
    for each in processes:
        first, last = lives.get(each.facts.pid, (each.first, each.last))
        lives[each.facts.pid] = min(first, each.first), max(last, each.last)
    return most_at_once((first, last + run.bin_s) for first, last in lives.values())


def _host_stall(run: RunData, node: NodeData, variant: str, shown: Shown) -> Finding:
    kind = kind_of(run, shown.devices)
    busy = shown.means()["busy_percent"]
    uses_more, actions = False, []
    if variant == "thread":
        means = (track.average(*shown.spans[0]) for _, track in node.processes.values())
        count = sum(_ONE[0] <= each <= _ONE[1] for each in means if each is not None)
        who = f"{count} processes use 100 % of a core each" if count > 1 else _ONE_USES
        what = f"{who}, GPU busy {percent(busy)}"
        text = _ONE_THREAD.get(kind, "Profile that process: one thread prepares all of the work.")
        uses_more = kind is Kind.REINFORCEMENT
        if kind is Kind.LEARNING:
            text = _one_thread(shown)
            if (loader := _in_workers(node, shown, busy)) is not None:
                actions, uses_more = [loader], True
    else:
        dips = _cores_in_dips(node, shown)
        what = (
            f"GPU busy {percent(busy)}; between GPU work, {dips:.1f} of {node.cpus} cores are busy"
        )
        text = _COMPUTES.get(kind, "Profile what runs on the cores between the GPU's work.")
        if kind is Kind.LEARNING and (beside_share(run, node, shown.spans) or 0.0) > 0.5:
            text = _COMPUTES[Kind.REINFORCEMENT]
    cause = "for the host"
    if where := most_text(probed_of(run, shown.devices), shown.spans):
        what = f"{what}; {where}"
    elif variant == "thread" and len(shown.devices) > 1:
        cause = "for the host, or for each other"  # a thread that waits by spinning looks the same
    return shown.finding(
        run,
        level_of(run, shown) if kind in (Kind.LEARNING, Kind.REINFORCEMENT) else "info",
        what,
        says(shown, "wait", cause),
        confidence="medium",
        numbers={
            "busy_percent": busy,
            "cpu_cores_mean": mean_of(node.job["cpu_cores_used"], shown.spans),
        },
        actions=actions or [to_write(text)],
        uses_more=uses_more,
    )


def _frameworks(shown: Shown) -> set[str]:
    return {tag for each in shown.devices for p in job_processes(each) for tag in p.frameworks}


def _one_thread(shown: Shown) -> str:
    """Of a program that learns, by its framework."""
    tags = _frameworks(shown)
    if "torch" in tags:
        return "Move .item() and prints out of the loop; try larger batches or torch.compile."
    if "jax" in tags:
        return (
            "Pad the inputs to a few shapes: JAX compiles anew for each (jax_log_compiles shows "
            "it). Read results from the GPU less often."
        )
    return "Profile that process; use a larger batch, and read results from the GPU less often."


def _in_workers(node: NodeData, shown: Shown, busy_percent: float) -> Action | None:
    """To read the data in workers, where the process that uses the GPU reads it, too, and there
    are cores for that.
    """
    read = mean_of(node.job.get("read_bytes_per_s", Track()), shown.spans)
    most = (node.cpus or 0) // len(shown.devices) - 1
    if "torch" not in _frameworks(shown) or (read or 0.0) < MOVES_BYTES_PER_S:
        return None
    if most < _LEAST_WORKERS:
        return None
    workers = max(_LEAST_WORKERS, min(ceil(90 / busy_percent), most))
    text = "If that process loads the data, load it in workers; else profile it."
    return replace(loader_action(workers), text=text)


#: % of a core, of a process with one thread that computes
_ONE, _ONE_USES = (95.0, 120.0), "one process uses 100 % of a core"
#: fewer do not pay
_LEAST_WORKERS = 2
_ONE_THREAD = {
    Kind.REINFORCEMENT: "Run the environments in several processes, or on the GPU.",
    Kind.DYNAMICS: "Give each rank more cores, and more of the work to the GPU.",
}
_COMPUTES = {
    Kind.LEARNING: "If the optimizer runs on the CPU (offload), keep it on the GPU, or request "
    "more cores.",
    Kind.REINFORCEMENT: "Run environments or workers while the GPU learns, or request more cores.",
}


def _cores_in_dips(node: NodeData, shown: Shown) -> float:
    busy, span = busy_track(shown.devices[0]), shown.spans[0]
    middle = busy.average(*span) or 0.0
    pairs = zip(busy.mean[slice(*span)], node.job["cpu_cores_used"].mean[slice(*span)])
    values = [cores for at, cores in pairs if at <= middle and cores == cores]
    return fmean(values) if values else 0.0
