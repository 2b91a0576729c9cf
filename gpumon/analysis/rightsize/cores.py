"""How many cores a job needs at once: by its minutes, its bursts, and its processes."""

from __future__ import annotations

from collections import Counter
from math import ceil
from statistics import median

from gpumon.analysis.known import highest
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import devices_on, job_processes

#: in so much of the time a job may want more cores than it gets
_RARELY = 0.05
#: of one core: a process that uses less is not counted
_WORKS_PERCENT = 5.0
#: cores that one thread uses which works all the time: at least in the median, and at most
ONE_THREAD = 0.95, 1.15
#: of the CPU time: processes that were seen at work used at least so much of it, or others came and
#: went between two samples (proposed)
_SEEN_SHARE = 0.5
#: part of its time by which a run may take longer with fewer cores
_LONGER = 0.05


def cores_at_once(node: NodeData) -> float | None:
    """Cores in use at one moment, bursts of the rarest twentieth apart. The mean of a minute hides
    loaders that work for seconds in turn with a GPU. None where that is not known.
    """
    track = node.job.get("cpu_cores_used", Track())
    highs = [value for value in track.high if value == value]
    return _rarely_exceeded(highs)


def processes_at_once(run: RunData, node: NodeData) -> int:
    """Processes that use the CPU at the same time: ranks and loaders are started by number, and a
    rank without a core of its own holds up all others. 0 where they are not known.
    """
    on_devices = {e.facts.pid for d in devices_on(run, node) for e in job_processes(d)}
    count: Counter[int] = Counter()
    for pid, (facts, track) in node.processes.items():
        is_loader = facts.ppid in on_devices and pid not in on_devices
        least = 0.0 if is_loader else _WORKS_PERCENT
        count.update(n for n, value in enumerate(track.mean) if value > least)
    return int(_rarely_exceeded([float(count[n]) for n in range(run.count)]) or 0)


def cores_for_bursts(used: float, most: float) -> float:
    """Cores with which a run takes at most 5 % longer, even if it used `most` cores at once in
    bursts that no sample shows, and none between them: BLAS and OpenMP with serial parts.
    """
    return used / (_LONGER + used / most) if used > 0 and most > 0 else 0.0


def bursts_of(node: NodeData, cpus: float) -> float:
    """The same of a node, as far as its number of threads allows bursts at all. Threads that work
    all the time, one in its process, have none; of those that live between two samples there may
    be any number.
    """
    cores = node.job.get("cpu_cores_used", Track())
    tracks = [(cpu, 0.01) for _, cpu in node.processes.values()] or [(cores, 1.0)]
    steady = sum(_is_one_thread(track, unit) for track, unit in tracks)
    threads = None if _has_unseen(node, cores) else node.threads.peak()
    most = min(cpus, threads or cpus) - steady
    rest = (cores.average() or 0.0) - steady
    return steady + (cores_for_bursts(rest, most) if rest > _LONGER else 0.0)


def _has_unseen(node: NodeData, cores: Track) -> bool:
    """Whether threads or processes used the cores that no sample shows."""
    threads, seen = node.threads.peak(), [sum(cpu.known()) for _, cpu in node.processes.values()]
    if threads is not None and (node.peak60_cores or 0.0) > threads * ONE_THREAD[1]:
        return True
    return bool(seen) and sum(seen) / 100 < _SEEN_SHARE * sum(cores.known())


def _is_one_thread(track: Track, unit: float) -> bool:
    """Whether one thread works all the time. `unit`: cores of a reading of 1."""
    values, (least, most) = track.known(), ONE_THREAD
    return bool(values) and unit * median(values) >= least and unit * max(values) <= most


def largest_process(run: RunData) -> float | None:
    """Cores that one process used; None where no process is known."""
    shares = [t.peak() for node in run.nodes for _, t in node.processes.values()]
    most = highest(shares)
    return None if most is None else most / 100


def _rarely_exceeded(values: list[float]) -> float | None:
    ordered = sorted(values)
    return ordered[ceil((1 - _RARELY) * len(ordered)) - 1] if ordered else None
