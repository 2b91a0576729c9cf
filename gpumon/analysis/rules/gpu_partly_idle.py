"""Some of the job's GPUs, or of its nodes, idle while others work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Change, Finding, Lack, NotEvaluable, ask_for
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.cores import ONE_THREAD
from gpumon.analysis.rightsize.gpus import crowded_gpu
from gpumon.analysis.rightsize.nodes import serves_others
from gpumon.analysis.rightsize.proof import unproven
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules import jobstats
from gpumon.analysis.rules.gpu_idle import (
    CONSEQUENCES,
    joined,
    level_of_part,
    polling_text,
    whole_run_confidence,
    work_text,
)
from gpumon.analysis.rules.gpu_idle_alone import alone
from gpumon.analysis.rules.needs import gpus_or_means
from gpumon.analysis.rules.phrasing import (
    GPU_HELD,
    ages_text,
    fewer_gpus,
    finding,
    gpus_text,
    missing,
    most_on_a_node,
    percent,
    unread,
    use_or_request_fewer,
)
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import DeviceData, NodeData, RunData, Track
from gpumon.analysis.signals import (
    ACTIVITY,
    Span,
    active_share,
    busy_track,
    devices_on,
    is_allocated,
    is_interactive,
    is_mostly_known,
    job_devices,
    job_processes,
    known_s,
    observed,
    seconds_of,
    sustained,
)
from gpumon.analysis.thresholds import Cores, Percent, Seconds, of_site
from gpumon.analysis.use import gpus_worth, is_unused, is_used_otherwise, traces_text, work_percent
from gpumon.model.lines import EMPTY, Line
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural

#: nodes that a finding names one by one
_MOST_NAMED = 8


class PartlyIdle(NamedTuple):
    seconds: Seconds = 300
    live_s: Seconds = 900  # pipelines start up; the last epoch may be evaluated on one GPU
    active_percent: Percent = 1  # of its bins, at most, of a GPU called idle
    busy_percent: Percent = 20  # of one that works


@rule(
    "gpus-partly-idle",
    title="some GPUs idle while another works; {seconds}, live {live_s}",
    why=GPU_HELD,
    remedy="request as many as worked, or start a rank on each; what uses fewer is its own job",
    needs=(gpus_or_means,),
    folds=(*CONSEQUENCES, "gpu-imbalance"),
)
def partly_idle(run: RunData, t: PartlyIdle) -> Checked:
    """Critical of those that every reading shows at rest all the time, where samples cover the
    whole run; a warning of those that worked in less than 1 % of it, or whose memory was filled,
    and while the job runs: their turn may come. Information where samples begin late or end early.
    Those that worked and then idle beside others are weighed as `idle-time` is, and named with the
    time at which their work ended.

    Guards: a reservation is no use, TensorFlow reserves memory on every visible GPU; a device
    whose activity is not known counts neither as idle nor as working; one that copied is used.

    Source: jobstats "did not use k of N"; percentages and times are proposed.
    """
    devices = job_devices(run)
    if not devices:
        return jobstats.partly_idle(run, t.seconds, t.busy_percent)
    need_s = t.live_s if run.live else t.seconds
    unused: list[DeviceData] = []
    hardly: list[DeviceData] = []
    worked: list[DeviceData] = []
    unknown, works = [], False
    idle_nodes = {node.node for node, _ in _idle_nodes(run).found}  # `nodes-idle`
    for device in devices:
        share = active_share(device)
        if device.node in idle_nodes:
            continue
        if (work_percent(device) or 0.0) >= t.busy_percent:
            works = True
            worked.append(device)
        elif share is None or not is_mostly_known(device.active, observed(run)):
            unknown.append(unread(device, *ACTIVITY))
        elif share >= t.active_percent / 100:
            worked.append(device)
        elif known_s(run, device.active) < need_s or is_used_otherwise(run, device):
            continue
        elif is_unused(device):
            unused.append(device)
        else:
            hardly.append(device)
    left = None if is_interactive(run, worked) else alone(run, worked, need_s)
    found = [left] if left is not None else []
    if works and unused:
        found.append(_partly_idle(run, unused, len(unknown)))
    if works and hardly:
        found.append(_hardly_used(run, hardly))
    return [*unknown, *found]


def _partly_idle(run: RunData, idle: Sequence[DeviceData], unknown: int) -> Finding:
    devices = job_devices(run)
    labels = {each.label for each in idle}
    used = [each for each in devices if each.label not in labels]  # or not known to be idle
    busy = [(each, value) for each in used if (value := busy_track(each).average()) is not None]
    idle_s = sum(known_s(run, each.active) for each in idle)
    shown = [f"{gpus_text(run, [each])} was busy {percent(value)}" for each, value in busy]
    if len(shown) > 4:
        mean = percent(sum(value for _, value in busy) / len(busy))
        shown = [f"the others were busy {mean} on average"]
    rest = f"{plural(unknown, 'GPU')} unknown" if unknown else ""
    confidence = whole_run_confidence(run, idle)
    sure = is_allocated(run) and confidence == "high" and not run.live
    return finding(
        run,
        level_of_part(run, "critical" if sure else "warning"),
        f"{len(idle)} of {len(devices)} GPUs idle: {gpus_text(run, idle)}",
        f"{', '.join(shown)} in {age_text(idle_s / len(idle))}"
        + joined(rest, work_text(devices), polling_text(run, idle)),
        devices=idle,
        spans=[observed(run)],
        confidence=confidence,
        numbers={
            "gpus": len(devices),
            "gpus_idle": len(idle),
            "gpus_unknown": unknown,
            "gpus_worth": gpus_worth(devices),
            "idle_s": idle_s / len(idle),
        },
        actions=_use_or_return(run, used, busy),
        wasted_s=idle_s,
        uses_more=True,
    )


def _use_or_return(
    run: RunData, used: Sequence[DeviceData], busy: Sequence[tuple[DeviceData, float]]
) -> list[Action]:
    devices = job_devices(run)
    crowded = crowded_gpu(run)
    if crowded is not None:
        text = (
            f"{len(job_processes(crowded))} processes share {gpus_text(run, [crowded])}: let each "
            "choose its own GPU by its local rank (torch.cuda.set_device, CUDA_VISIBLE_DEVICES)."
        )
        return [Action("code", EMPTY, text=text)]
    if requested(run).is_exclusive:
        text = (
            "--exclusive reserves all GPUs of a node, whatever --gres requests. If the job can "
            f"share the node, leave it out and request {plural(most_on_a_node(used), 'GPU')}."
        )
        return [Action("shell", EMPTY, text=text), *_start(run, busy, most_on_a_node(devices))]
    start = _start(run, busy, most_on_a_node(devices))
    if not unproven(run):
        fewer = fewer_gpus(run, used, "Or use all of them.")
        if fewer.changes:
            return [fewer, *start]
        if _is_one_node_full(run, used, devices):
            held = most_on_a_node(devices)
            text = f"Use all of them, or fewer nodes; one node used all of its {held}."
            return [Action("shell", EMPTY, text=text), *start]
    return [use_or_request_fewer(devices), *start]


def _start(run: RunData, busy: Sequence[tuple[DeviceData, float]], most: int) -> list[Action]:
    """How to use all of them, `most` on the node; how a launcher reaches several is not known."""
    request = requested(run)
    if (request.tasks_per_node or (request.tasks or 0) // request.nodes) >= most > 1:
        text = "Find out why some tasks used no GPU: each must choose its own by its local rank."
        return [Action("code", EMPTY, text=text)]
    if request.nodes > 1:
        text = "Start a process on each GPU of every node; a node that only coordinates needs none."
        return [Action("code", EMPTY, text=text)]
    if not any("torch" in process.frameworks for each, _ in busy for process in each.processes):
        text = "Start a process on each GPU, or use the program's own option for several GPUs."
        return [Action("code", EMPTY, text=text)]
    return [
        Action("code", Line("torchrun --nproc_per_node={} train.py", most), text="To use all:"),
        Action("code", Line("devices={}, strategy=DDPStrategy()", most), text="In Lightning:"),
    ]


def _hardly_used(run: RunData, idle: Sequence[DeviceData]) -> Finding:
    """Less than a use, more than nothing: no line, since the program may need them."""
    devices = job_devices(run)
    shares = [active_share(each) or 0.0 for each in idle]
    active = f"active {percent(100 * max(shares))} of the time"
    many = f"{len(idle)} of {len(devices)} GPUs"
    name = gpus_text(run, idle)
    return finding(
        run,
        level_of_part(run, "warning" if is_allocated(run) else "info"),
        f"{many} barely used: {name}, {active}" if any(shares) else f"{many} ran no kernel: {name}",
        rest=joined(traces_text(idle), work_text(devices), polling_text(run, idle)),
        devices=idle,
        spans=[observed(run)],
        confidence=whole_run_confidence(run, idle),
        numbers={
            "gpus": len(devices),
            "active_percent": 100 * max(shares),
            "gpus_worth": gpus_worth(devices),
        },
        actions=[Action("shell", EMPTY, text="Give them work, or try the program on fewer GPUs.")],
        uses_more=True,
        wasted_s=sum((1 - share) * known_s(run, each.active) for each, share in zip(idle, shares)),
    )


def _is_one_node_full(
    run: RunData, used: Sequence[DeviceData], devices: Sequence[DeviceData]
) -> bool:
    """A request per node has one number for all nodes, which one of them needs as it is."""
    if len(run.nodes) < 2 or requested(run).gpu_form == "job":
        return False
    return most_on_a_node(used) == most_on_a_node(devices)


class NodesIdle(NamedTuple):
    seconds: Seconds = 600
    cpu_percent: Percent = 1  # of its cores …
    cores: Cores = 0.1  # … and at most so many: what coordinates others uses more
    critical_cores: Cores = 0.05


@rule(
    "nodes-idle",
    title="a node of several idle for {seconds}, cores and GPUs",
    why="An idle node costs as much waiting time and budget as a busy one.",
    remedy="request fewer nodes, or start the program with `srun`",
    folds=(*CONSEQUENCES, "gpu-imbalance"),
)
def nodes_idle(run: RunData, t: NodesIdle) -> Checked:
    """Of an ended run the idle time must also be a tenth of it. Critical where it was all of it,
    and next to nothing ran there.

    Guards: a node that held a program's memory or moved data all the time serves the others; the
    first 120 s, in which launchers work on the head node alone; a node that was not
    reached is not idle; where every node is idle, `gpu-never-used` says so.

    Source: jobstats "did not use k of N nodes"; the thresholds are proposed.
    """
    if len(run.nodes) < 2:
        several = run.job is not None and len(run.job.nodes) > 1
        return NotEvaluable(Lack.READINGS, "samples of one node only") if several else None
    idle = _idle_nodes(run)
    if len(idle.found) == len(run.nodes):
        return None
    always = [each for each in idle.found if _covers(run, each[1])]
    partly = [each for each in idle.found if each not in always]
    return [
        *idle.unknown,
        *([_always_idle(run, always)] if always else []),
        *([_sometimes_idle(run, partly)] if partly else []),
    ]


class _IdleNodes(NamedTuple):
    """Where a node did nothing; and what is unknown of others."""

    found: list[tuple[NodeData, list[Span]]]
    unknown: list[NotEvaluable]


@once
def _idle_nodes(run: RunData) -> _IdleNodes:
    """None of a run on one node."""
    t = of_site(run.site, "nodes-idle", NodesIdle)
    answer = _IdleNodes([], [])
    need_s = t.seconds if run.live else max(t.seconds, run.elapsed_s / 10)
    for node in run.nodes if len(run.nodes) > 1 else ():
        if "cpu_cores_used" not in node.job or not node.cpus:
            answer.unknown.append(missing(node.node, "the job's CPU use is not known"))
            continue
        limit = min(t.cpu_percent / 100 * node.cpus, t.cores)
        tracks = [node.job["cpu_cores_used"], *(each.active for each in devices_on(run, node))]

        def rests(means: Sequence[float], limit: float = limit) -> bool:
            return means[0] < limit and not any(means[1:])

        held, known = sustained(run, need_s, rests, tracks, first=_launched(run))
        spans = _to_its_ends(held, tracks, rests)
        if spans and not (_covers(run, spans) and serves_others(run, node)):
            answer.found.append((node, spans))
        elif not spans and not known:
            answer.unknown.append(missing(node.node, "too few readings"))
    return answer


def _to_its_ends(
    spans: Sequence[Span], tracks: Sequence[Track], holds: Callable[[Sequence[float]], bool]
) -> list[Span]:
    """The spans, longer by the bins beside them of which the same holds: windows are long."""
    bins = [holds(values) for values in zip(*(each.mean for each in tracks))]
    found: list[Span] = []
    for first, last in spans:
        least = found[-1].last if found else 0
        while first > least and bins[first - 1]:
            first -= 1
        while last < len(bins) and bins[last]:
            last += 1
        found.append(Span(first, max(first, last)))
    return found


def _launched(run: RunData) -> int:
    """The bin from which on a launcher on the head node has started the others."""
    return run.bin_at(run.start + 120.0)


def _covers(run: RunData, spans: Sequence[Span]) -> bool:
    """All of the run since all was launched, but for a moment."""
    begun = _launched(run)
    return sum(last - max(first, begun) for first, last in spans) >= 0.95 * (run.count - begun)


def _always_idle(run: RunData, idle: Sequence[tuple[NodeData, list[Span]]]) -> Finding:
    count = requested(run).nodes
    devices = [device for node, _ in idle for device in devices_on(run, node)]
    fewer = Change("--nodes", count, count - len(idle))
    text = "Start the program on every node with srun or its own launcher, or request fewer nodes."
    confidence = whole_run_confidence(run, devices)
    cores = [node.job["cpu_cores_used"].average() or 0.0 for node, _ in idle]
    most = of_site(run.site, "nodes-idle", NodesIdle).critical_cores
    sure = confidence == "high" and all(map(is_unused, devices)) and max(cores) < most
    if not devices and _used_one_core(run):
        text = "Request one node: the program ran on one core."
    were = "were" if len(idle) > 1 else "was"
    return _nodes_idle(
        run,
        level_of_part(run, "critical" if sure else "warning"),
        idle,
        f"{_nodes_text(run, idle)} {were} idle",
        joined(work_text(job_devices(run))) if devices else "",
        confidence,
        ask_for(fewer, text=text),
        always=True,
    )


def _used_one_core(run: RunData) -> bool:
    cores = [node.job.get("cpu_cores_used", Track()).average() for node in run.nodes]
    return sum(value or 0.0 for value in cores) <= ONE_THREAD[1]


def _sometimes_idle(run: RunData, idle: Sequence[tuple[NodeData, list[Span]]]) -> Finding:
    """The job needs these nodes for a part of the run."""
    devices = [device for node, _ in idle for device in devices_on(run, node)]
    were = "were" if len(idle) > 1 else "was"
    text = "Split the work evenly, or give the part that runs on fewer nodes a job of its own."
    return _nodes_idle(
        run,
        level_of_part(run, "warning"),
        idle,
        f"{_nodes_text(run, idle)} {were} idle",
        "",
        whole_run_confidence(run, devices),
        Action("shell", EMPTY, text=text),
    )


def _nodes_text(run: RunData, idle: Sequence[tuple[NodeData, list[Span]]]) -> str:
    names = [clean(node.node) for node, _ in idle]
    if len(names) == 1:
        seen = " recorded" if run.coverage.unrecorded else ""
        return f"node {names[0]} of {len(run.nodes)}{seen}"
    told = f" ({', '.join(names)})" if len(names) <= _MOST_NAMED else ""
    return f"{len(names)} of {len(run.nodes)} nodes{told}"


def _nodes_idle(
    run: RunData,
    level: str,
    idle: Sequence[tuple[NodeData, list[Span]]],
    what: str,
    more: str,
    confidence: str,
    action: Action,
    *,
    always: bool = False,
) -> Finding:
    devices = [device for node, _ in idle for device in devices_on(run, node)]
    cores = [
        (value, node.cpus or 1)
        for node, spans in idle
        for span in spans
        for value in node.job["cpu_cores_used"].known(*span)
    ]
    cpu_percent = 100 * sum(used for used, _ in cores) / sum(cpus for _, cpus in cores)
    seconds = [seconds_of(run, spans) for _, spans in idle]
    gpus = f", {plural(len(devices), 'GPU')} idle" if devices else ""
    used = f"{percent(cpu_percent)} CPU{gpus}"
    lasted = f" for {ages_text(seconds)} of {age_text(run.elapsed_s)}"
    return finding(
        run,
        level,
        f"{what}{'' if always else lasted}: {used}",
        rest=f"{lasted if always else ''}{more}",
        devices=devices,
        spans=[observed(run)] if always else [span for _, spans in idle for span in spans],
        subject=" ".join(node.node for node, _ in idle),
        confidence=confidence,
        numbers={
            "nodes_idle": len(idle),
            "cpu_percent": cpu_percent,
            "gpus": len(devices),
            "seconds": max(seconds),
        },
        actions=[action],
        uses_more=not _used_one_core(run),
        wasted_s=sum(
            known_s(run, each.active, *span)
            for node, spans in idle
            for each in devices_on(run, node)
            for span in ([observed(run)] if always else spans)
        ),
    )
