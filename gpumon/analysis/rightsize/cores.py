"""How many cores a job needs at once: by its minutes, its bursts, and its processes."""

from __future__ import annotations

from math import ceil, inf
from statistics import fmean, median
from typing import NamedTuple

from gpumon.analysis.accounting import used
from gpumon.analysis.known import highest
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.directives import options_of_submit_line
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.model.reading import number
from gpumon.slurm.job import Job

#: in so much of the time a job may want more cores than it gets
_RARELY = 0.05
#: cores that one thread uses which works all the time: at least in the median, and at most
ONE_THREAD = 0.95, 1.15
#: of the CPU time: processes that were seen at work used at least so much of it, or others came and
#: went between two samples (proposed)
_SEEN_SHARE = 0.5
#: times its time that a run may take with fewer cores
LONGER = 1.1


def cores_at_once(node: NodeData) -> float | None:
    """Cores in use at one moment, bursts of the rarest twentieth apart. The mean of a minute hides
    loaders that work for seconds in turn with a GPU. None where that is not known.
    """
    track = node.job.get("cpu_cores_used", Track())
    highs = [value for value in track.high if value == value]
    return _rarely_exceeded(highs)


def cores_for_bursts(used: float, most: float, longer: float = 0.05) -> float:
    """Cores with which a run takes longer by that part of its time at most, even if it used `most`
    cores at once in bursts that no sample shows, and none between them: BLAS and OpenMP with serial
    parts.
    """
    return used / (longer + used / most) if used > 0 and most > 0 else 0.0


class Unseen(NamedTuple):
    """Of the time without samples: its share of the run, and the cores of a node in its mean."""

    share: float
    cores: float


def cores_to_last(run: RunData, node: NodeData, cpus: float, unseen: Unseen) -> float:
    """Cores of a node, of `cpus`, with which the run takes at most a tenth longer, however its
    threads take turns.

    Fewer cores hold up the part of the time in which all threads work at once, which is no more
    than the cores used by the number of threads, and in which no GPU covers for them: so much as
    its least busy working GPU was not busy. One thread that works all the time in its process has
    no bursts; of those that live between two samples there may be any number.
    """
    cores = node.job.get("cpu_cores_used", Track())
    tracks = [(cpu, 0.01) for _, cpu in node.processes.values()] or [(cores, 1.0)]
    steady = sum(_is_one_thread(track, unit) for track, unit in tracks)
    threads = None if unseen.cores or _has_unseen(node, cores) else node.threads.peak()
    most = min(cpus, threads or cpus) - steady
    if most <= 0:
        return float(steady)
    rows = [row for row in ledger_of(run).rows if row.device.node == node.node]
    exposed = []
    for n, value in enumerate(cores.mean):
        if value == value:
            busy = [row.used[n] for row in rows if row.states[n] is State.WORKING]
            free = 1 - min(busy, default=0.0)
            exposed.append(min(free, max(0.0, value - steady) / most))
    share = fmean(exposed) if exposed else 1.0
    share += unseen.share * (min(1.0, unseen.cores / most) - share)
    return steady + cores_for_bursts(share * most, most, _longer(run))


def _longer(run: RunData) -> float:
    """Part of its time by which a run may take longer: less, where its limit has no such room."""
    limit_s = requested(run).time_limit_s
    room = limit_s / (LONGER * run.elapsed_s) - 1 if limit_s and run.elapsed_s else inf
    return min(LONGER - 1, max(0.01, room))


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


#: the share of half its CPUs above which a job must have used both threads of its cores; time
#: is counted in whole seconds, and Slurm's own processes are in it
_BOTH_THREADS = 1.1


def threads_per_core(run: RunData) -> int | None:
    """Hardware threads of a core, each of which Slurm may count as a CPU; None: not known."""
    if not run.has_samples:
        return None if run.job is None else threads_of_job(run.job)
    told = highest(number(each.header.facts.get("threads_per_core")) for each in run.nodes)
    return None if told is None else int(told)


@once
def threads_of_job(job: Job) -> int | None:
    """By accounting alone: 2 where the job could use one of two hardware threads of each core, and
    Slurm counts both as CPUs: by --hint=nomultithread or --threads-per-core=1, or because whole
    cores were allocated to it, twice as many CPUs as it requested. None: not known.

    A job that used more than half of its CPUs used both threads, whatever it asked for.
    """
    cpus, asked = job.allocated.cpus, job.requested.resources.cpus
    if not cpus or cpus % 2:
        return None
    options = options_of_submit_line(job.submit_line)
    is_single = options.get("hint") == "nomultithread" or options.get("threads-per-core") == "1"
    if not is_single and (asked is None or cpus != 2 * asked):
        return None
    mean = used(job).cpu_cores_mean
    return None if mean is not None and mean > _BOTH_THREADS * cpus / 2 else 2


def usable_cpus(job: Job) -> int | None:
    """The allocated CPUs, as far as the job could use them."""
    cpus = job.allocated.cpus
    return cpus if cpus is None else cpus // (threads_of_job(job) or 1)
