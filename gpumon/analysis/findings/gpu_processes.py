"""Processes on devices that should not be there: left behind, of others, or astray."""

from __future__ import annotations

from dataclasses import replace

from gpumon.analysis.evidence import DeviceEvidence, Evidence, NodeEvidence, ProcessEvidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import finding, gpus_text, outcome, staff_actions
from gpumon.analysis.rules import Outcome, Rule
from gpumon.analysis.signals import Span, is_notebook, job_devices
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


def leftover_procs(evidence: Evidence) -> Outcome:
    """(a) The user's own process holds device memory outside of any job; or (b) one of the job
    does nothing for 5 min (SM 0, CPU 0), its parent is gone, and another one on a device ended.

    Guards: a notebook's kernel is named so; where SM or CPU use is not known, (b) is not raised;
    without a job around the recorder (a) is nobody's leftover. Live only.
    """
    seconds = evidence.site.threshold("leftover-procs.seconds", 300)
    found: list[Finding] = []
    unknown = _unreadable(evidence)
    for node, devices in evidence.by_node():
        if node.header.job is None:
            continue
        died = {pid for device in devices for pid in _ended(device)}
        for device in devices:
            for process in _present(evidence, device):
                held = _held(process)
                if held is None or held < _LEAST_BYTES:
                    continue
                facts = process.facts
                outside = facts.own and not facts.in_job and not facts.job and not facts.note
                idle = facts.in_job and bool(died) and _orphan(evidence, node, process)
                if idle and not outside:
                    idle = _is_still(evidence, node, process, seconds)
                if outside or idle:
                    found.append(_leftover(evidence, device, process, held, seconds, outside))
    return outcome(found, unknown)


def _leftover(
    evidence: Evidence,
    device: DeviceEvidence,
    process: ProcessEvidence,
    held: float,
    seconds: float,
    outside: bool,
) -> Finding:
    facts = process.facts
    what = "notebook kernel" if is_notebook(facts) else clean(facts.name, 40)
    why = "in no job" if outside else f"parent gone, idle for {age_text(seconds)}"
    size = bytes_text(held)
    node = word("node", device.node)
    made = finding(
        evidence, [device], [_from(evidence, process)],
        id="leftover-procs", level="warning",
        title=f"{gpus_text(evidence, [device])}: pid {facts.pid} {what} still holds {size}",
        text=f"pid {facts.pid} {what} {size}, {why}",
        confidence="high" if outside else "medium",
        numbers={"held_bytes": held, "pid": facts.pid},
        actions=(Action("shell", Line("kill {}", word("pid", str(facts.pid))) if node else EMPTY,
                        text=f"On node {node}; that process alone."
                        if node else "End that process alone."),),
    )  # fmt: skip
    return replace(made, resource="gpu-mem")


def foreign_proc(evidence: Evidence) -> Outcome:
    """A process on the job's device that is not the job's, or one of the job's elsewhere.

    Guards: display servers, MPS, DCGM and processes of another PID namespace; only where at least
    one process is known to stand in the job's cgroup, because else nobody's does. Live only.
    """
    found: list[Finding] = []
    unknown = _unreadable(evidence)
    ours = {each.label for each in job_devices(evidence)}
    for node, devices in evidence.by_node():
        if node.header.job is None:
            continue
        if not _knows_job(node, devices):
            unknown[node.node] = "no process is known to stand in the job's cgroup"
            continue
        for device in devices:
            for process in _present(evidence, device):
                facts, held = process.facts, _held(process)
                if held is None or held < _LEAST_BYTES or facts.note:
                    continue
                is_ours = device.label in ours
                another = is_ours and not facts.in_job and (not facts.own or facts.job)
                if another or (facts.in_job and not is_ours):
                    found.append(_foreign(evidence, device, process, held, is_ours))
    return outcome(found, unknown)


def _foreign(
    evidence: Evidence,
    device: DeviceEvidence,
    process: ProcessEvidence,
    held: float,
    is_ours: bool,
) -> Finding:
    facts = process.facts
    gpu, size = gpus_text(evidence, [device]), bytes_text(held)
    if is_ours:
        whose = f"job {clean(facts.job, 40)}" if facts.own else "another user"
        title = f"pid {facts.pid} ({whose}) uses {size} on your {gpu}"
        actions = staff_actions(device.node, f"pid {facts.pid} ({whose}) on {device.label}")[:1]
        if facts.own:
            actions = (Action("shell", EMPTY, text="Two of your jobs share this device."),)
    else:
        title = f"your pid {facts.pid} runs on {gpu}, which is not in the job ({size})"
        actions = (
            Action("export", Line("unset CUDA_VISIBLE_DEVICES"),
                   text="Slurm sets it; remove what the program or script sets itself."),
        )  # fmt: skip
    return finding(
        evidence, [device], [_from(evidence, process)],
        id="foreign-proc", level="warning", title=title, text=title,
        numbers={"held_bytes": held, "pid": facts.pid}, actions=actions,
    )  # fmt: skip


# -- what is known of a process --------------------------------------------------------------------


def _unreadable(evidence: Evidence) -> dict[str, str]:
    return {
        each.label: "processes are not known"
        for each in evidence.devices
        if not each.process_list_known
    }


def _present(evidence: Evidence, device: DeviceEvidence) -> list[ProcessEvidence]:
    """There now, and no service of the site."""
    if device.device.uuid in {
        each.device.mig.parent for each in evidence.devices if each.device.mig
    }:
        return []
    return [
        each
        for each in device.processes
        if not each.ended
        and each.last >= evidence.end - _NOW_S
        and not each.facts.name.startswith(_SERVICES)
    ]


def _held(process: ProcessEvidence) -> float | None:
    known = process.mem_bytes.known()
    return known[-1] if known else None


def _ended(device: DeviceEvidence) -> list[int]:
    return [each.facts.pid for each in device.processes if each.ended]


def _orphan(evidence: Evidence, node: NodeEvidence, process: ProcessEvidence) -> bool:
    """Its parent ended: it is init's now, or the parent's end was seen."""
    gone = {
        event.pid
        for name, event in evidence.events
        if name == node.node and event.kind == "process-end"
    }
    return process.facts.ppid == 1 or process.facts.ppid in gone


def _is_still(
    evidence: Evidence, node: NodeEvidence, process: ProcessEvidence, seconds: float
) -> bool:
    """Known to use neither SMs nor a core for so long until now."""
    bins = evidence.bins(seconds)
    if bins > evidence.count:
        return False
    cpu = node.processes.get(process.facts.pid)
    if cpu is None:
        return False  # nobody knows
    for track in (process.sm_percent, cpu[1]):
        recent = track.known(evidence.count - bins)
        if len(recent) < 0.8 * bins or max(recent) >= 1:
            return False
    return True


def _knows_job(node: NodeEvidence, devices: list[DeviceEvidence]) -> bool:
    on_devices: list[Process] = [each.facts for device in devices for each in device.processes]
    others = [facts for facts, _ in node.processes.values()]
    return any(facts.in_job for facts in on_devices + others)


def _from(evidence: Evidence, process: ProcessEvidence) -> Span:
    return Span(min(evidence.bin_at(process.first), evidence.count), evidence.count)


PROCESS_RULES: tuple[Rule, ...] = (
    Rule("leftover-procs", leftover_procs, report=False),
    Rule("foreign-proc", foreign_proc, report=False),
)
