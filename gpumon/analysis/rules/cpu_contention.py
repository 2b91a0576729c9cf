"""CPU: threads bound to few cores, cores that are the limit, cores far from their GPU."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable, to_do
from gpumon.analysis.kinds import learns
from gpumon.analysis.rightsize import changes
from gpumon.analysis.rightsize.requested import cores_of, requested
from gpumon.analysis.rules.advice import fewer_threads
from gpumon.analysis.rules.bottleneck import nodes_short_of_cores
from gpumon.analysis.rules.needs import samples
from gpumon.analysis.rules.phrasing import finding, percent
from gpumon.analysis.rules.rule import Checked, of_nodes, rule
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import Span, busy_track, devices_on, seconds_of, sustained
from gpumon.analysis.thresholds import Count, Percent, Seconds
from gpumon.analysis.waiting import Bound, bound_nodes
from gpumon.model.lines import Line
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import age_text

#: readings of the job's cgroup, and what GPUs reach that wait for no core
_PRESSURE = "cpu_pressure_percent"
_GPU_BUSY_PERCENT = 80.0


@rule(
    "cpu-binding",
    title="threads compete for a few cores while most allocated cores are idle",
    why="All processes share a few cores, so the run takes many times longer.",
    remedy="let the processes use all allocated cores",
    needs=(samples,),
)
def cpu_binding(run: RunData) -> Checked:
    """The job's threads are confined to fewer cores than the job has (`analysis.waiting`): a step
    without `--cpus-per-task`, a binding by MPI or OpenMP, or an affinity set by a library.

    Guards: only where some threads wait for a core; a program that uses few cores and waits for
    none is not bound. Where neither CPU pressure nor the processes' states were recorded, not
    evaluable. What binds them is not recorded: a mask of CPUs that the program, its launcher or
    its libraries set is told from the cores in use.
    """
    known = [
        node
        for node in run.nodes
        if node.cpus and (node.runnable.known() or node.job.get(_PRESSURE, Track()).known())
    ]
    if not known:
        return NotEvaluable(Lack.READINGS, "whether threads wait for a core is not known")
    return [_bound(run, each) for each in bound_nodes(run)]


def _bound(run: RunData, each: Bound) -> Finding:
    node, cpus = each.node, each.node.cpus or 0
    signs = []
    if each.pressure_percent is not None:
        signs.append(f"CPU pressure {percent(each.pressure_percent)}")
    if each.runnable is not None and each.runnable > each.cores:
        signs.append(f"{each.runnable:.0f} run or wait")
    return finding(
        run,
        "warning",
        f"only {each.cores:.1f} of {cpus} cores are busy, and threads wait for them",
        rest=f" ({', '.join(signs)}) for {age_text(seconds_of(run, each.spans))}",
        node=node,
        spans=each.spans,
        confidence="high" if each.pressure_percent is not None else "medium",
        numbers={
            "cores": cpus,
            "cores_used": each.cores,
            "cpu_pressure_percent": each.pressure_percent,
            "runnable": each.runnable,
        },
        actions=(
            _INHERIT if (requested(run).cpus_per_task or 1) > 1 and _has_srun(run) else None,
            to_do(_UNBIND),
        ),
    )


def _has_srun(run: RunData) -> bool:
    """Whether steps of the job were started by srun; also where no step is known."""
    steps = run.job.user_steps if run.job is not None else ()
    return not steps or any(each.id[:1].isdigit() for each in steps)


#: only where --cpus-per-task was asked for: srun takes no empty value
_INHERIT = Action(
    "export",
    Line("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"),
    text="srun does not inherit --cpus-per-task from sbatch.",
)
_UNBIND = (
    "Check with `taskset -cp PID` which cores the processes may use. With mpirun: --bind-to none, "
    "or one rank per core (--map-by core); with OpenMP: OMP_PROC_BIND, GOMP_CPU_AFFINITY."
)


class CpuStarved(NamedTuple):
    for_s: Seconds = 300
    busy_percent: Percent = 95  # of the node's cores
    throttled_percent: Percent = 1  # of the quota's periods
    pressure_percent: Percent = 20


@rule(
    "cpu-starved",
    title="all cores are busy and threads wait for them",
    why="Threads waited for a core, so the run took longer than it had to.",
    remedy="fewer threads, or more cores",
    needs=(samples,),
    folds=("cpu-oversubscribed",),
)
def cpu_starved(run: RunData, t: CpuStarved) -> Checked:
    """More threads than cores, and some of them waiting: the quota hit, or CPU pressure.

    Guards: pressure or throttling must be known, because threads that sleep count as threads, and
    threads that spin look busy; GPUs that are busy do not wait for the cores, and of those that do
    `input-bound` says more. Source: ClusterCockpit's high load; numbers proposed.
    """
    said = nodes_short_of_cores(run)
    answers = [_starved(run, node, t) for node in run.nodes if node.node not in said]
    found = [each for each in answers if isinstance(each, Finding)]
    return found or (answers[-1] if answers else None)


def _starved(run: RunData, node: NodeData, t: CpuStarved) -> Finding | NotEvaluable | None:
    cores = node.job.get("cpu_cores_used", Track())
    throttled = node.job.get("cpu_throttled_percent", Track())
    pressure = node.job.get(_PRESSURE, Track())
    if not node.cpus or not cores.known():
        return NotEvaluable(Lack.READINGS, "cores used are not known")
    if not node.threads.known():
        return NotEvaluable(Lack.READINGS, "the job's threads are not known")
    if not throttled.known() and not pressure.known():
        return NotEvaluable(Lack.READINGS, "neither throttling nor CPU pressure is known")
    cpus, busy = node.cpus, t.busy_percent / 100 * node.cpus
    held = sustained(
        run, t.for_s, lambda means: means[0] >= busy and means[1] > cpus, (cores, node.threads)
    )
    for span in reversed(held.spans):
        quota, waiting = throttled.average(*span) or 0, pressure.average(*span) or 0
        if quota >= t.throttled_percent or waiting >= t.pressure_percent:
            text = f"{cores.average(*span) or 0.0:.1f} of {cpus} cores are busy"
            text += f", throttled in {percent(quota)} of periods" if quota else ""
            text += _waits_text(waiting)
            return finding(
                run,
                "info" if _gpus_busy(run, node, span) else "warning",
                text,
                rest="; threads that spin look busy, too",
                node=node,
                spans=[span],
                confidence="medium",
                numbers={"cores": cpus, "threads": node.threads.average(*span)},
                actions=_threads_or_cores(run, node),
            )
    return None


def _waits_text(pressure_percent: float | None) -> str:
    """Of the time in which at least one of the job's threads waits for a core (Linux's PSI)."""
    return f", threads wait {percent(pressure_percent)} of the time" if pressure_percent else ""


def _gpus_busy(run: RunData, node: NodeData, span: Span) -> bool:
    """All of the job's GPUs there do not wait for the cores."""
    means = [busy_track(each).average(*span) for each in devices_on(run, node)]
    return bool(means) and all(mean is not None and mean >= _GPU_BUSY_PERCENT for mean in means)


def _threads_or_cores(run: RunData, node: NodeData) -> list[Action]:
    """One line of the two, which together would leave half of the cores idle."""
    threads, more = fewer_threads(run, node), _more_cores(run)
    if threads.after and more is not None:
        more = to_do(more.text)
    return [threads] if more is None else [threads, more]


def _more_cores(run: RunData) -> Action | None:
    """Twice as many, at most what a node has."""
    request = requested(run)
    of_nodes = [cores for node in run.nodes if (cores := cores_of(node)) is not None]
    if not request.cpus or not of_nodes or 2 * request.cpus > max(of_nodes):
        return None
    return changes.action_of(changes.cpus_line(request, 2 * request.cpus), "Or request more cores.")


class CpuOversubscribed(NamedTuple):
    for_s: Seconds = 600
    ratio: Count = 1.2  # threads, or processes that run or wait, per core
    pressure_percent: Percent = 10
    busy_percent: Percent = 85  # of the node's cores


@rule(
    "cpu-oversubscribed",
    title="more than {ratio} threads per core, and some wait, for {for_s}",
    why="Threads that share a core slow each other down.",
    remedy="`OMP_NUM_THREADS`, fewer workers",
)
def cpu_oversubscribed(run: RunData, t: CpuOversubscribed) -> Checked:
    """More threads than cores while nearly all cores are busy and the job's CPU pressure shows that
    some wait; without pressure, more processes that run or wait than cores.

    Guards: threads that sleep do not count, hence pressure and busy cores; the node's load does
    not either, because it counts processes that wait for I/O. Source: ClusterCockpit 1.2; the
    other numbers are proposed.
    """
    lacking = "whether threads wait for a core is not known for long enough"
    return of_nodes(run, lambda node: _oversubscribed(run, node, t), lacking)


def _oversubscribed(run: RunData, node: NodeData, t: CpuOversubscribed) -> list[Finding] | None:
    cpus, pressure = node.cpus, node.job.get(_PRESSURE, Track())
    cores = node.job.get("cpu_cores_used", Track())
    if not cpus or not cores.known():
        return None
    if node.threads.known() and pressure.known():
        count, tracks = "threads", [cores, node.threads, pressure]
    elif node.runnable.known():
        count, tracks = "processes that run or wait", [cores, node.runnable]
    else:
        return None
    least = (t.busy_percent / 100 * cpus, t.ratio * cpus, t.pressure_percent)
    held = sustained(
        run, t.for_s, lambda means: all(mean >= at for mean, at in zip(means, least)), tracks
    )
    if not held.spans or node.node in nodes_short_of_cores(run):
        return [] if held.known else None
    span = held.spans[-1]
    ranks = max(1, len(devices_on(run, node)))
    crowd, waiting = tracks[1].average(*span) or 0.0, pressure.average(*span)
    made = finding(
        run,
        "info",
        f"{crowd:.0f} {count} on {cpus} cores",
        rest=_waits_text(waiting),
        node=node,
        spans=[span],
        confidence="medium",
        numbers={"threads": crowd, "cores": cpus, "cpu_pressure_percent": waiting},
        actions=(
            fewer_threads(run, node),
            Action("code", Line("DataLoader(num_workers={})", max(1, cpus // ranks - 1)))
            if learns(run)
            else None,
        ),
    )
    return [made]


@rule(
    "numa-mismatch",
    title="no core of the job is next to its GPU",
    why="Data for the GPU must cross between CPU sockets.",
    remedy="`#SBATCH --gpu-bind=closest`",
    when="live",
)
def numa_mismatch(run: RunData) -> Checked:
    """The GPU's CPUs are its `cpu_affinity`, the job's the node's fact `job_cpus` (lists like
    `0-7,16`). Guards: a GPU without a NUMA node is not evaluable; whole nodes have all CPUs.
    Source: the affinity of `nvidia-smi topo -m`.
    """
    lacking = "the job's CPUs, or those next to its GPUs, are not recorded"
    return of_nodes(run, lambda node: _far(run, node), lacking)


def _far(run: RunData, node: NodeData) -> list[Finding] | None:
    held = _cpu_list(node.header.facts.get("job_cpus"))
    found: list[Finding] | None = None
    for device in devices_on(run, node):
        near = _cpu_list(device.device.facts.get("cpu_affinity"))
        place = number(device.device.facts.get("numa_node"))
        if not held or not near or place is None or place < 0:
            continue
        found = found or []
        if held & near:
            continue
        made = finding(
            run,
            "info",
            f"GPU {device.device.label} is on NUMA node {place:.0f}, but none of your CPUs is",
            head=f"{clean(device.node)}: ",
            devices=[device],
            numbers={"numa_node": place},
            actions=(
                Action("sbatch", Line("#SBATCH --gpu-bind=closest")),
                Action("shell", Line("srun --accel-bind=g ...")),
            ),
        )
        found.append(made)
    return found


def _cpu_list(reading: object) -> set[int]:
    """`0-7,16` as numbers; empty where it is no such list."""
    cpus: set[int] = set()
    for part in reading.split(",") if isinstance(reading, str) else ():
        first, _, last = part.strip().partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) > 1 << 16:
            return set()
        cpus.update(range(int(first), int(last) + 1))
    return cpus
