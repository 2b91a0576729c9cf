"""Some of the job's GPUs, or of its nodes, idle while others work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.activity import traces_text
from gpumon.analysis.finding import (
    Action,
    Change,
    Finding,
    Lack,
    NotEvaluable,
    ask_for,
    to_do,
    to_write,
)
from gpumon.analysis.ledger import IDLE, Row, State, ledger_of
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.cores import ONE_THREAD
from gpumon.analysis.rightsize.gpus import crowded_gpu
from gpumon.analysis.rightsize.nodes import serves_others
from gpumon.analysis.rightsize.proof import unproven
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules import jobstats
from gpumon.analysis.rules.needs import allocation, gpus_or_means
from gpumon.analysis.rules.phrasing import (
    GPU_HELD,
    ages_text,
    alike,
    fewer_gpus,
    finding,
    gpus_text,
    missing,
    most_on_a_node,
    percent,
    use_or_request_fewer,
)
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rules.unused import (
    CONSEQUENCES,
    idle_level,
    joined,
    level_of_part,
    not_seen,
    polled_confidence,
    polling_text,
    whole_run_confidence,
    work_text,
)
from gpumon.analysis.rundata import DeviceData, NodeData, RunData, Track
from gpumon.analysis.signals import (
    Span,
    active_share,
    busy_track,
    devices_on,
    is_allocated,
    is_interactive,
    job_devices,
    job_processes,
    mean_of,
    observed,
    seconds_of,
    window_of,
)
from gpumon.analysis.thresholds import Percent, Seconds, of_site
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural

#: nodes that a finding names one by one
_MOST_NAMED = 8


class PartlyIdle(NamedTuple):
    seconds: Seconds = 300
    live_s: Seconds = 900  # pipelines start up; the last epoch may be evaluated on one GPU
    busy_percent: Percent = 20  # of one that works


@rule(
    "gpus-partly-idle",
    title="some GPUs idle while another works; {seconds}, live {live_s}",
    why=GPU_HELD,
    remedy="request as many as worked, or start a rank on each; what uses fewer is its own job",
    needs=(gpus_or_means, allocation),
    folds=(*CONSEQUENCES, "gpu-imbalance"),
    wastes=IDLE,
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
    if not job_devices(run):
        return jobstats.partly_idle(run, t.seconds, t.busy_percent)
    ledger, need_s = ledger_of(run), t.live_s if run.live else t.seconds
    rows = [row for row in ledger.rows if row.device.node not in idle_nodes(run)]  # `nodes-idle`
    busy = [row for row in rows if row.used_share >= t.busy_percent / 100]
    rest = [row for row in rows if row not in busy]
    unknown = [not_seen(run, row.device) for row in rest if not row.is_known]
    known = [row for row in rest if row.is_known]
    worked = [*busy, *(row for row in known if row.has_worked)]
    held = [row for row in known if row not in worked
            and ledger.in_bins(row.bins(*IDLE)) >= need_s]  # fmt: skip
    unused = [row for row in held if ledger.is_unused(row.device)]
    hardly = [row for row in held if row not in unused]
    is_session = is_interactive(run, [row.device for row in worked])
    left = None if is_session else _alone(run, worked, need_s)
    found = [left] if left is not None else []
    if busy and unused:
        found.append(_partly_idle(run, unused, len(unknown)))
    if busy and hardly:
        found.append(_hardly_used(run, hardly))
    return [*unknown, *found]


def _partly_idle(run: RunData, rows: Sequence[Row], unknown: int) -> Finding:
    ledger, devices, idle = ledger_of(run), job_devices(run), [row.device for row in rows]
    labels = {each.label for each in idle}
    used = [each for each in devices if each.label not in labels]  # or not known to be idle
    busy = [(each, value) for each in used if (value := busy_track(each).average()) is not None]
    idle_s = sum(ledger.in_bins(row.bins(*IDLE)) for row in rows) / len(rows)
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
        f"{', '.join(shown)} in {age_text(idle_s)}"
        + joined(rest, work_text(run), polling_text(run, idle)),
        devices=idle,
        spans=[observed(run)],
        confidence=confidence,
        numbers={
            "gpus": len(devices),
            "gpus_idle": len(idle),
            "gpus_unknown": unknown,
            "gpus_worth": ledger.worth(),
            "idle_s": idle_s,
        },
        actions=_use_or_return(run, used, busy),
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
        return [to_write(text)]
    if requested(run).is_exclusive:
        text = (
            "--exclusive reserves all GPUs of a node, whatever --gres requests. If the job can "
            f"share the node, leave it out and request {plural(most_on_a_node(used), 'GPU')}."
        )
        return [to_do(text), *_start(run, busy, most_on_a_node(devices))]
    start = _start(run, busy, most_on_a_node(devices))
    if not unproven(run):
        fewer = fewer_gpus(run, used, "Or use all of them.")
        if fewer.changes:
            return [fewer, *start]
        # a request per node has one number for all nodes, which one of them needs as it is
        held, is_per_node = most_on_a_node(devices), requested(run).gpu_form != "job"
        if len(run.nodes) > 1 and is_per_node and most_on_a_node(used) == held:
            text = f"Use all of them, or fewer nodes; one node used all of its {held}."
            return [to_do(text), *start]
    return [use_or_request_fewer(devices), *start]


def _start(run: RunData, busy: Sequence[tuple[DeviceData, float]], most: int) -> list[Action]:
    """How to use all of them, `most` on the node; how a launcher reaches several is not known."""
    request = requested(run)
    if (request.tasks_per_node or (request.tasks or 0) // request.nodes) >= most > 1:
        text = "Find out why some tasks used no GPU: each must choose its own by its local rank."
        return [to_write(text)]
    if request.nodes > 1:
        text = "Start a process on each GPU of every node; a node that only coordinates needs none."
        return [to_write(text)]
    if not any("torch" in process.frameworks for each, _ in busy for process in each.processes):
        text = "Start a process on each GPU, or use the program's own option for several GPUs."
        return [to_write(text)]
    return [
        Action("code", Line("torchrun --nproc_per_node={} train.py", most), text="To use all:"),
        Action("code", Line("devices={}, strategy=DDPStrategy()", most), text="In Lightning:"),
    ]


def _hardly_used(run: RunData, rows: Sequence[Row]) -> Finding:
    """Less than a use, more than nothing: no line, since the program may need them."""
    devices, idle = job_devices(run), [row.device for row in rows]
    shares = [active_share(each) or 0.0 for each in idle]
    active = f"active {percent(100 * max(shares))} of the time"
    many = f"{len(idle)} of {len(devices)} GPUs"
    name = gpus_text(run, idle)
    return finding(
        run,
        level_of_part(run, "warning" if is_allocated(run) else "info"),
        f"{many} barely used: {name}, {active}" if any(shares) else f"{many} ran no kernel: {name}",
        rest=joined(traces_text(idle), work_text(run), polling_text(run, idle)),
        devices=idle,
        spans=[observed(run)],
        confidence=whole_run_confidence(run, idle),
        numbers={
            "gpus": len(devices),
            "active_percent": 100 * max(shares),
            "gpus_worth": ledger_of(run).worth(),
        },
        actions=[to_do("Give them work, or try the program on fewer GPUs.")],
        uses_more=True,
    )


# -- that worked, and then idle beside others ------------------------------------------------------

#: s between the end of a process and that of its GPU's work
_TOGETHER_S = 180.0
#: GPUs of which each is told when it was idle
_MOST_TOLD = 4
_NO_WORK = (
    "Find out from the job's output why there was no work there. Run what uses fewer GPUs, and "
    "each of independent runs, as a job of its own."
)


class _Alone(NamedTuple):
    """A device that was idle while others worked."""

    device: DeviceData
    spans: list[Span]
    idle_s: float
    ended: bool  # with the last process of the job there


def _alone(run: RunData, rows: Sequence[Row], least_s: float) -> Finding | None:
    """Of these devices, which all worked at some time; live those that are idle now.

    One finding: their work ended, or paused, at different times perhaps.
    """
    found = [one for row in rows if (one := _idle_beside(run, row, least_s)) is not None]
    if not found:
        return None
    wasted_s = sum(each.idle_s for each in found)
    most_s = max(each.idle_s for each in found)
    longest_s = max(seconds_of(run, [span]) for each in found for span in each.spans)
    level = idle_level(run, most_s, longest_s, wasted_s)
    if not level:
        return None
    them = [each.device for each in found]
    idle = ages_text(each.idle_s for each in found)
    ended = ""
    if all(each.ended for each in found):
        ended = "; their processes ended then" if len(found) > 1 else "; its process ended then"
    return finding(
        run,
        level,
        f"{gpus_text(run, them)} idle for {idle} of {age_text(run.elapsed_s)} while others "
        + ("work" if run.live else "worked"),
        rest=f" ({wasted_s / 3600:.1f} GPU-h){_when(run, found)}{ended}",
        devices=them,
        spans=[span for each in found for span in each.spans],
        confidence=polled_confidence(them),
        numbers={"gpus": len(job_devices(run)), "gpus_idle": len(them), "idle_s": most_s},
        actions=[to_do(_NO_WORK)],
    )


def _idle_beside(run: RunData, row: Row, least_s: float) -> _Alone | None:
    ledger = ledger_of(run)
    spans = ledger.stretches(row, least_s, State.ALONE)
    if run.live:
        spans = [each for each in spans if each.last >= run.count - 1]
    if not spans:
        return None
    bins = (n for span in spans for n in range(*span) if row.states[n] is State.ALONE)
    return _Alone(row.device, spans, ledger.in_bins(bins), _ended(run, row.device, spans[-1]))


def _ended(run: RunData, device: DeviceData, span: Span) -> bool:
    """The last process of the job there ended as its work did."""
    since, _ = window_of(run, span)
    known = job_processes(device)
    return bool(known) and all(each.ended and each.last <= since + _TOGETHER_S for each in known)


def _when(run: RunData, found: Sequence[_Alone]) -> str:
    """From when to when each was idle; "" where that would be a list."""
    groups = alike(found, lambda each: _times(run, each))
    if len(groups) > _MOST_TOLD:
        return ""
    names = [f"{gpus_text(run, [each.device for each in group])} " for group in groups]
    if len(groups) == 1:
        names = [""]
    return "; " + ", ".join(name + _times(run, group[0]) for name, group in zip(names, groups))


def _times(run: RunData, one: _Alone) -> str:
    """`since 2 h 00 min after the start`."""
    if len(one.spans) > 1:
        return "several times"
    start, end = (at - run.start for at in window_of(run, one.spans[0]))
    if start < _TOGETHER_S:
        return f"for the first {age_text(end)}"
    if run.elapsed_s - end < _TOGETHER_S:
        return f"since {age_text(start)} after the start"
    return f"from {age_text(start)} to {age_text(end)} after the start"


# -- nodes --------------------------------------------------------------------------------------


#: a node, and where it did nothing
_IdleNode = tuple[NodeData, list[Span]]
_SPLIT = to_do("Split the work evenly, or give the part that runs on fewer nodes a job of its own.")


class NodesIdle(NamedTuple):
    seconds: Seconds = 600


@rule(
    "nodes-idle",
    title="a node of several idle for {seconds}, cores and GPUs",
    why="An idle node costs as much waiting time and budget as a busy one.",
    remedy="request fewer nodes, or start the program with `srun`",
    folds=(*CONSEQUENCES, "gpu-imbalance"),
    wastes=IDLE,
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
    idle = [(node, spans) for node in run.nodes if (spans := idle_nodes(run).get(node.node))]
    if len(idle) == len(run.nodes):
        return None
    unknown = [
        missing(node.node, "the job's CPU use is not known")
        for node in run.nodes
        if "cpu_cores_used" not in node.job or not node.cpus
    ]
    always = [each for each in idle if ledger_of(run).is_idle(each[0].node)]
    partly = [each for each in idle if each not in always]
    return [
        *unknown,
        *([_nodes_idle(run, always, always=True)] if always else []),
        *([_nodes_idle(run, partly, always=False)] if partly else []),
    ]


@once
def idle_nodes(run: RunData) -> dict[str, list[Span]]:
    """Where nodes of several did nothing for long; not one that holds memory or moves data for the
    others all the time. Live until now.
    """
    least_s = of_site(run.site, "nodes-idle", NodesIdle).seconds
    least_s = least_s if run.live else max(least_s, run.elapsed_s / 10)
    found = {}
    for node in run.nodes:
        spans = ledger_of(run).idle_nodes.get(node.node, [])
        if run.live:
            spans = [each for each in spans if each.last >= run.count - 1]
        covers = ledger_of(run).is_idle(node.node)
        lasting = [each for each in spans if seconds_of(run, [each]) >= least_s]
        if lasting and not (covers and serves_others(run, node)):
            found[node.node] = spans if covers else lasting
    return found


def _used_one_core(run: RunData) -> bool:
    cores = [node.job.get("cpu_cores_used", Track()).average() for node in run.nodes]
    return sum(value or 0.0 for value in cores) <= ONE_THREAD[1]


def _nodes_idle(run: RunData, idle: Sequence[_IdleNode], *, always: bool) -> Finding:
    """`always`: in the whole run; else the job needs these nodes for a part of it."""
    ledger, devices = ledger_of(run), [each for node, _ in idle for each in devices_on(run, node)]
    confidence = whole_run_confidence(run, devices)
    used = [mean_of(node.job["cpu_cores_used"], spans) or 0.0 for node, spans in idle]
    sure = confidence == "high" and always and all(map(ledger.is_unused, devices))
    cpu_percent = 100 * sum(used) / sum(node.cpus or 1 for node, _ in idle)
    seconds = [ledger.seconds(spans) for _, spans in idle]
    gpus = f", {plural(len(devices), 'GPU')} idle" if devices else ""
    lasted = f" for {ages_text(seconds)} of {age_text(run.elapsed_s)}"
    what = f"{_nodes_text(run, idle)} idle{'' if always else lasted}: {percent(cpu_percent)} CPU"
    return finding(
        run,
        level_of_part(run, "critical" if sure else "warning"),
        f"{what}{gpus}",
        rest=lasted + (joined(work_text(run)) if devices else "") if always else "",
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
        actions=[_fewer_nodes(run, len(idle), devices) if always else _SPLIT],
        uses_more=not _used_one_core(run),
    )


def _fewer_nodes(run: RunData, idle: int, devices: Sequence[DeviceData]) -> Action:
    count = requested(run).nodes
    text = "Start the program on every node with srun or its own launcher, or request fewer nodes."
    if not devices and _used_one_core(run):
        text = "Request one node: the program ran on one core."
    return ask_for(Change("--nodes", count, count - idle), text=text)


def _nodes_text(run: RunData, idle: Sequence[_IdleNode]) -> str:
    names = [clean(node.node) for node, _ in idle]
    if len(names) == 1:
        seen = " recorded" if run.coverage.unrecorded else ""
        return f"node {names[0]} of {len(run.nodes)}{seen} was"
    named = f" ({', '.join(names)})" if len(names) <= _MOST_NAMED else ""
    return f"{len(names)} of {len(run.nodes)} nodes{named} were"
