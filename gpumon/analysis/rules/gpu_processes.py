"""Processes on devices that should not be there: left behind, of others, or astray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, NotEvaluable, to_do, to_write
from gpumon.analysis.rules.phrasing import (
    alike,
    finding,
    gpus_text,
    missing,
    range_text,
    staff_actions,
)
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, RunData
from gpumon.analysis.signals import Span, is_notebook, job_devices
from gpumon.analysis.thresholds import Seconds
from gpumon.model.lines import EMPTY, Line, word
from gpumon.model.sample import Process
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text

_NOW_S = 60.0
#: services that sites run on every device
_SERVICES = (
    "Xorg", "Xwayland", "gnome-shell", "nvidia-cuda-mps", "nv-hostengine", "dcgm",
    "nvidia-persiste", "nv-fabricmanage",
)  # fmt: skip
_LEAST_BYTES = 50 * (1 << 20)
#: GRES of which several jobs use one GPU
_SHARES = ("shard", "mps")
#: so long must a process have held memory, of a run that ended
_HELD_S = 60.0


class LeftoverProcs(NamedTuple):
    seconds: Seconds = 300


@rule(
    "leftover-procs",
    title="a leftover process of yours on a GPU",
    why="The leftover process holds memory that your program needs.",
    remedy="end it",
    when="live",
)
def leftover_procs(run: RunData, t: LeftoverProcs) -> Answers:
    """(a) The user's own process holds device memory outside of any job; or (b) one of the job
    does nothing (SM 0, CPU 0), its parent is gone, and another one on a device ended.

    Guards: a notebook's kernel is named so; where SM or CPU use is not known, (b) is not raised;
    without a job around the recorder (a) is nobody's leftover.
    """
    yield from _unreadable(run)
    for node, devices in run.by_node():
        if node.header.job is None:
            continue
        died = any(each.ended for device in devices for each in device.processes)
        for device in devices:
            for process, held in _holders(run, device):
                facts = process.facts
                if facts.own and not facts.in_job and not facts.job and not facts.note:
                    yield _leftover(run, device, process, held, "in no job")
                elif facts.in_job and died and _is_orphan(run, node, process, t.seconds):
                    why = f"parent gone, idle for {age_text(t.seconds)}"
                    yield _leftover(run, device, process, held, why)


def _leftover(
    run: RunData, device: DeviceData, process: ProcessData, held: float, why: str
) -> Finding:
    facts = process.facts
    what = "notebook kernel" if is_notebook(facts) else clean(facts.name, 40)
    who, size = f"pid {facts.pid} {what}", bytes_text(held)
    node = word("node", device.node)
    kill = Line("kill {}", word("pid", str(facts.pid))) if node else EMPTY
    text = f"On node {node}; this ends only that process." if node else "End only that process."
    return finding(
        run,
        "warning",
        f"{who} holds {size}, {why}",
        head=f"{gpus_text(run, [device])}: ",
        devices=[device],
        spans=[_from(run, process)],
        confidence="medium" if facts.in_job else "high",
        numbers={"held_bytes": held, "pid": facts.pid},
        actions=[Action("shell", kill, text=text)],
    )


@rule(
    "foreign-proc",
    title="a process on your GPU that is not the job's",
    why="Processes that share a GPU slow each other down.",
    remedy="report it to the site's staff",
)
def foreign_proc(run: RunData) -> Answers:
    """A process on the job's device that is not the job's (another job's, another user's, root's),
    or one of the job's elsewhere. Of an ended run: one that held memory there for a minute.

    Guards: display servers, MPS, DCGM and processes of another PID namespace; only where at least
    one process is known to stand in the job's cgroup, because else nobody's does; a GPU that was
    asked for in shares is meant for several.
    """
    if _asked_for_shares(run):
        return
    yield from _unreadable(run)
    ours = {each.label for each in job_devices(run)}
    found: list[_Foreign] = []
    for node, devices in run.by_node():
        if node.header.job is None:
            continue
        seen: list[Process] = [each.facts for device in devices for each in device.processes]
        if not any(facts.in_job for facts in (*seen, *(f for f, _ in node.processes.values()))):
            yield missing(node.node, "no process is known to be in the job's cgroup")
            continue
        for device in devices:
            is_ours = device.label in ours
            for process, held in _holders(run, device):
                facts = process.facts
                # live, `leftover-procs` has the user's own ones of no job
                is_left = facts.own and not facts.job and run.live
                another = is_ours and not facts.in_job and not is_left
                if not facts.note and (another or (facts.in_job and not is_ours)):
                    found.append(_Foreign(device, process, held, is_ours))
    for same in alike(found, lambda e: (e.device.node, e.process.facts.pid, e.is_ours)):
        yield _foreign(run, same)


def _asked_for_shares(run: RunData) -> bool:
    """`--gres=shard:2` and `mps:50`: parts of a GPU that others use too."""
    gres = run.job.requested.gres if run.job else ""
    return any(part.removeprefix("gres/").startswith(_SHARES) for part in gres.split(","))


class _Foreign(NamedTuple):
    """A process on a device where it should not be, and the bytes that it holds there."""

    device: DeviceData
    process: ProcessData
    held: float
    is_ours: bool  # the device; else the process


def _foreign(run: RunData, found: Sequence[_Foreign]) -> Finding:
    """Of one process, on all devices that it is on."""
    device, process, _, is_ours = found[0]
    facts, devices = process.facts, [each.device for each in found]
    gpus, size = gpus_text(run, devices), range_text((each.held for each in found), bytes_text)
    if is_ours:
        whose = _owner(facts)
        verb = "uses" if run.live else "used"
        title = f"pid {facts.pid} ({whose}) {verb} {size} on your {gpus}"
        action = staff_actions(run, device.node, f"pid {facts.pid} ({whose}) on {gpus}")[0]
        if facts.own:
            text = "Your own processes outside of this job share its GPU."
            action = to_do(text)
    else:
        verb, are = "runs" if run.live else "ran", "is" if len(found) == 1 else "are"
        title = f"your pid {facts.pid} {verb} on {gpus}, which {are} not in the job ({size})"
        text = "Delete every line that sets CUDA_VISIBLE_DEVICES; keep Slurm's value."
        action = to_write(text)
    return finding(
        run,
        "warning",
        title,
        devices=devices,
        spans=[_from(run, each.process) for each in found],
        numbers={"held_bytes": max(each.held for each in found), "pid": facts.pid},
        actions=[action],
    )


def _owner(facts: Process) -> str:
    if facts.job:
        return f"job {clean(facts.job, 40)}" + ("" if facts.own else " of another user")
    if facts.own:
        return "yours, in no job"
    return "root" if facts.uid == 0 else "another user"


# -- what is known of a process --------------------------------------------------------------------


def _unreadable(run: RunData) -> Iterator[NotEvaluable]:
    for each in run.devices:
        if not each.process_list_known:
            yield missing(each, "processes are not known")


def _holders(run: RunData, device: DeviceData) -> Iterator[tuple[ProcessData, float]]:
    """Processes that hold memory there now, and how much; no services of the site.

    Of a run that ended: that held it for a minute at least, and their most.
    """
    if device.device.uuid in {each.device.mig.parent for each in run.devices if each.device.mig}:
        return
    for each in device.processes:
        known = each.mem_bytes.known()
        if run.live:
            held = known[-1] if known else 0.0
            is_there = not each.ended and each.last >= run.end - _NOW_S
        else:
            held = max(known, default=0.0)
            is_there = each.last - each.first >= _HELD_S
        if is_there and held >= _LEAST_BYTES and not each.facts.name.startswith(_SERVICES):
            yield each, held


def _is_orphan(run: RunData, node: NodeData, process: ProcessData, seconds: float) -> bool:
    """Its parent ended (it is init's now, or the parent's end was seen), and it stands still."""
    gone = {
        event.pid for name, event in run.events if name == node.node and event.kind == "process-end"
    }
    orphan = process.facts.ppid == 1 or process.facts.ppid in gone
    return orphan and _is_still(run, node, process, seconds)


def _is_still(run: RunData, node: NodeData, process: ProcessData, seconds: float) -> bool:
    """Known to use neither SMs nor a core for so long until now."""
    bins = run.bins(seconds)
    cpu = node.processes.get(process.facts.pid)
    if bins > run.count or cpu is None:
        return False
    for track in (process.sm_percent, cpu[1]):
        recent = track.known(run.count - bins)
        if len(recent) < 0.8 * bins or max(recent) >= 1:
            return False
    return True


def _from(run: RunData, process: ProcessData) -> Span:
    last = run.count if run.live else min(run.bin_at(process.last) + 1, run.count)
    return Span(min(run.bin_at(process.first), last), last)
