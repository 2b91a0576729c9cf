"""How many cores a job needs at once: by its minutes, its bursts, and its processes."""

from __future__ import annotations

from math import ceil, inf
from statistics import fmean, median
from typing import NamedTuple

from gpumon.analysis.accounting import Used, used
from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.known import highest, total
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.amounts import accounted
from gpumon.analysis.rightsize.gpus import gpus_need
from gpumon.analysis.rightsize.proof import is_whole, is_worth
from gpumon.analysis.rightsize.requested import cores_of, node_types, requested
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import devices_on, job_devices, job_processes
from gpumon.analysis.waiting import bound_nodes, is_blocked, sharing_one_core, threads_of_one_core
from gpumon.model.reading import number
from gpumon.slurm.job import Job
from gpumon.slurm.options import options_of_submit_line

#: in so much of the time a job may want more cores than it gets
_RARELY = 0.05
#: cores that one thread uses which works all the time: at least in the median, and at most
ONE_THREAD = 0.95, 1.15
#: of the CPU time: processes that were seen at work used at least so much of it, or others came and
#: went between two samples (proposed)
_SEEN_SHARE = 0.5
#: times its time that a run may take with fewer cores; by accounting alone
LONGER, _LONGER_ACCOUNTED = 1.1, 1.05
#: times the most of a minute
_MORE_CORES = 1.2
#: s without samples, and CPU time in this part of what was recorded, that count (proposed)
_UNSEEN_S, _UNSEEN_SHARE = 60.0, 0.05
#: part of the run that may be unknown but for its CPU time
_MOST_UNSEEN = 0.5


def cores_at_once(node: NodeData) -> float | None:
    """Cores in use at one moment, bursts of the rarest twentieth apart. The mean of a minute hides
    loaders that work for seconds in turn with a GPU. None where that is not known.
    """
    track = node.job.get("cpu_cores_used", Track())
    highs = sorted(value for value in track.high if value == value)
    return highs[ceil((1 - _RARELY) * len(highs)) - 1] if highs else None


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


# -- the request -----------------------------------------------------------------------------------


def peak_cores(run: RunData) -> float | None:
    """Largest mean of a minute on one node; None as soon as a node is missing: it may be it."""
    peaks = [each.peak60_cores for each in run.nodes]
    if len(peaks) < requested(run).nodes or None in peaks:
        return None
    return highest(peaks)


def _processes_wait(run: RunData) -> bool:
    may_be_bound = not run.devices and threads_of_one_core(run)
    return bool(bound_nodes(run) or is_blocked(run) or sharing_one_core(run) or may_be_bound)


class CpusNeed(NamedTuple):
    """CPUs per node."""

    cpus: int
    because: str  # what decides their number
    seen: int  # as far as samples show


@once
def cpus_need(run: RunData) -> CpusNeed | None:
    """The most of: 1.2 × the most of a minute, cores at once, one for each process on a GPU and
    one, the tasks, and with how many the run takes at most a tenth longer (`cores_to_last`). One,
    where one thread alone works.

    The peak of a minute, or a counter's mean over the part that was not recorded, where that is
    more. None where nothing tells of the rest, and where processes waited. By accounting alone the
    CPU time decides, with a twentieth in place of a tenth.
    """
    if not run.has_samples:
        return _accounted_need(run)
    request, peak = requested(run), peak_cores(run)
    cpus, unseen = request.cpus, None if peak is None else _unseen_cores(run)
    if peak is None or unseen is None or not cpus or _processes_wait(run):
        return None
    peak = max(peak, unseen.cores)
    # one thread per core: two on a core are slower than on a core each
    threads = threads_per_core(run) or 1
    cores = highest(cores_at_once(each) for each in run.nodes) or 0.0
    lasts = max(cores_to_last(run, each, cpus / threads, unseen) for each in run.nodes)
    tasks = _parts(run)
    if not _feeders(run) and tasks <= 1 and max(peak, cores, lasts) <= ONE_THREAD[1]:
        return CpusNeed(1, "", 1)
    needs = {
        "1.2 × the most of any minute": _MORE_CORES * threads * peak,
        "one for each process on a GPU, and one more": 1.0 + _feeders(run),
        f"{cores:.1f} in use at once": threads * cores,
        f"{tasks} tasks": float(tasks),
    }
    seen = max(needs, key=lambda each: needs[each])
    needed = _whole_cores(needs[seen], threads)
    if threads * lasts <= needed:
        return CpusNeed(needed, seen, needed)
    fewer = "with fewer it may be over 10 % slower"
    return CpusNeed(_whole_cores(threads * lasts, threads), fewer, needed)


def _accounted_need(run: RunData) -> CpusNeed | None:
    """On one node, of which Slurm counts all that a job does. The mean is no measure of a node of
    several, nor of a part that one of several tasks used; one thread may be all that there is.
    """
    request, figures, threads = requested(run), accounted(run), threads_per_core(run) or 1
    mean = None if isinstance(figures, NotEvaluable) else figures.cpu_cores_mean
    steps = run.job.user_steps if run.job is not None else []
    if not mean or not request.cpus or request.nodes > 1 or any((s.tasks or 1) > 1 for s in steps):
        return None
    if (request.tasks or 1) > 1 or ONE_THREAD[0] <= mean <= ONE_THREAD[1]:
        return None
    most, longer = request.cpus / threads, min(_LONGER_ACCOUNTED - 1, _longer(run))
    lasts = cores_for_bursts(min(mean, most), most, longer)
    needed = max(_whole_cores(threads * lasts, threads), 1 + (request.gpus or 0))
    return CpusNeed(needed, f"with fewer it may be over {100 * longer:.0f} % slower", needed)


def _parts(run: RunData) -> int:
    """Tasks of a node; where the line would change their number, processes that were seen."""
    request = requested(run)
    tasks = request.tasks_per_node or ceil((request.tasks or 1) / request.nodes)
    if tasks > 1 and (request.cpus_per_task or 1) == 1:
        return max(1, *(len(each.processes) for each in run.nodes))
    return tasks


def _whole_cores(cpus: float, threads: int) -> int:
    return threads * ceil(cpus / threads - 1e-9)


def fewer_cpus(run: RunData) -> CpusNeed | None:
    """Where they are so much fewer that the request is worth a change, also than what was asked
    for. Of a node on which no other job can run none are of use to anybody.
    """
    need, request = cpus_need(run), requested(run)
    if need is None or not request.cpus or request.is_alone:
        return None
    asked = run.job.requested.resources.cpus if run.job is not None else None
    if asked and need.cpus >= asked / request.nodes:
        return None
    return need if is_worth(request.cpus, need.cpus) else None


def _feeders(run: RunData) -> int:
    """GPUs that the job needs, or processes on them, of the node with most. Of a run that was seen
    in part, which proves no need of fewer, all of them.
    """
    need = gpus_need(run) if is_whole(run) else None
    feeders = need[0] if need else requested(run).gpus or 0
    for devices in (devices_on(run, node) for node in run.nodes):
        pids = {each.facts.pid for device in devices for each in job_processes(device)}
        feeders = max(feeders, len(pids), 0 if need else len(devices))
    return feeders


def _unseen_cores(run: RunData) -> Unseen | None:
    """By what accounting, or the kernel's counter where it knows the whole run, has more than the
    samples; no cores where that is little. None where nothing tells, or most was not recorded.
    """
    covered_s = min(each.covered_s for each in run.nodes)
    share = max(0.0, 1 - covered_s / run.elapsed_s) if run.elapsed_s else 0.0
    if share * run.elapsed_s < _UNSEEN_S:
        return Unseen(0.0, 0.0)
    figures, is_counted = accounted(run), run.coverage.from_start and run.coverage.to_end
    in_all = figures.cpu_core_s if isinstance(figures, Used) else None
    if in_all is None and is_counted:
        in_all = total(each.cpu_core_s for each in run.nodes)
    if in_all is None or share > _MOST_UNSEEN or run.coverage.unrecorded:
        return None
    more = in_all - sum(
        each.job.get("cpu_cores_used", Track()).total()[0] * run.bin_s for each in run.nodes
    )
    unseen_s = share * run.elapsed_s * len(run.nodes)
    return Unseen(share, more / unseen_s if more > _UNSEEN_SHARE * in_all else 0.0)


def cpus_for(peak: float, cpus: int, feeders: int) -> int:
    """Of `cpus`, for tasks of which the peak of a minute alone is known: an even number. `feeders`:
    GPUs.
    """
    is_one = ONE_THREAD[0] <= peak <= ONE_THREAD[1]
    bursts = 0.0 if is_one else cores_for_bursts(peak, cpus)
    return 2 * ceil(max(1 + feeders, 1.1 * peak, bursts) / 2 - 1e-9)


def more_cpus(run: RunData) -> int | None:
    """CPUs per node where the GPUs wait for data: ceil(CPUs · 0.9 / busy), at most the fair share.

    None where that is no more, or the GPUs' mean busy is not known. Without the site's share, the
    node's own processors are the bound.
    """
    request = requested(run)
    values = [each.track("busy_percent").average() for each in job_devices(run)]
    known = [value for value in values if value]
    if not known or not request.cpus or not request.gpus:
        return None
    wanted = ceil(request.cpus * 0.9 / (sum(known) / len(known) / 100))
    share = cores_per_gpu(run)
    bound = highest(map(cores_of, run.nodes)) if share is None else share * request.gpus
    if bound is None:
        return None
    wanted = min(wanted, int(bound))
    return wanted if wanted > request.cpus else None


def cores_per_gpu(run: RunData) -> float | None:
    """A GPU's share of its node's cores; None where the site does not say."""
    return highest(each.cores / each.gpus for each in node_types(run) if each.gpus)
