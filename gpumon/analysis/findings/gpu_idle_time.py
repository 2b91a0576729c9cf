"""GPUs that worked and then did not, and what the site does about it (findings, 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from gpumon.analysis.evidence import DeviceEvidence, Evidence, ProcessEvidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.gpu_idle import NO_JOB
from gpumon.analysis.findings.words import (
    finding,
    gpus_text,
    outcome,
    percent,
    without_devices,
)
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import (
    Span,
    busy_track,
    first_active,
    idle_since,
    idle_spans,
    is_allocated,
    is_interactive,
    is_mostly_known,
    is_notebook,
    job_devices,
    job_processes,
    known_s,
    last_active,
    seconds_of,
    why_missing,
    window_of,
)
from gpumon.model.lines import Line, word
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, clock_text

_ACTIVITY = ("busy_percent", "sm_active_percent")
_QUARTER_S = 900
#: a policy strikes within this time: critical
_SOON_S = 1800.0


# -- the site's clock ----------------------------------------------------------------------------


class _Countdown(NamedTuple):
    """A site's rule that runs against the job."""

    idle_s: float
    period_s: float
    left_s: float
    what: str  # "no GPU use since the start"


def _countdowns(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> list[_Countdown]:
    """Each rule of the site that counts now; none where the job is exempt or ends before it."""
    policy = evidence.site.policy
    idle = idle_since(evidence, devices)
    if idle is None or _is_exempt(evidence):
        return []
    never = all(first_active(each) is None for each in devices)
    found = []
    if policy.zero_start_h is not None and never and evidence.coverage.from_start:
        period_s = policy.zero_start_h * 3600
        found.append(_Countdown(evidence.elapsed_s, period_s, 0.0, "no GPU use since the start"))
    if policy.zero_run_h is not None:
        period_s = policy.zero_run_h * 3600
        idle_s = evidence.elapsed_s if never and evidence.coverage.from_start else 0.0
        idle_s = idle_s or evidence.end - window_of(evidence, idle)[0]
        found.append(_Countdown(idle_s, period_s, 0.0, "idle"))
    found = [each._replace(left_s=max(0.0, each.period_s - each.idle_s)) for each in found]
    ends = evidence.job.end if evidence.job else None
    return [each for each in found if ends is None or evidence.end + each.left_s < ends]


def _is_exempt(evidence: Evidence) -> bool:
    policy, job = evidence.site.policy, evidence.job
    partitions = {node.header.job.partition for node in evidence.nodes if node.header.job}
    partitions |= {job.partition} if job else set()
    if partitions & set(policy.exempt_partitions):
        return True
    below_h, limit_s = policy.exempt_walltime_below_h, job.time_limit_s if job else None
    return below_h is not None and limit_s is not None and limit_s < below_h * 3600


def _site_name(evidence: Evidence) -> str:
    return clean(evidence.site.name) or "this site"


def policy_kill_soon(evidence: Evidence) -> Outcome:
    """policy-kill-soon: a site rule ends the job in ≤ max(30 min, 20 % of the rule's period).

    Rules: no GPU use in the first A hours (needs samples from the job's start), B idle hours in a
    row. Guards: exempt partitions and wall times of the site's file; a time limit that ends the
    job first; unknown activity → not evaluable. On polling alone confidence is medium.

    Source: UVA 3 h and 5 h, Princeton 2 h with mails at 60 and 105 min; the margin is proposed.
    """
    policy = evidence.site.policy
    devices = job_devices(evidence)
    if policy.zero_start_h is None and policy.zero_run_h is None:
        return NotEvaluable("no rule of the site for idle GPUs is known")
    if not devices:
        return without_devices(evidence)
    if not is_allocated(evidence):
        return NO_JOB
    if idle_since(evidence, devices) is None:
        return _not_idle(evidence, devices)
    share = evidence.site.threshold("policy-kill-soon.period_percent", 20) / 100
    at_least = evidence.site.threshold("policy-kill-soon.left_s", _SOON_S)
    soon = [
        each
        for each in _countdowns(evidence, devices)
        if each.left_s <= max(at_least, share * each.period_s)
    ]
    if not soon:
        return []
    return [_policy_finding(evidence, devices, min(soon, key=lambda each: each.left_s))]


def _policy_finding(
    evidence: Evidence, devices: Sequence[DeviceEvidence], clock: _Countdown
) -> Finding:
    idle = idle_since(evidence, devices) or Span(0, 0)
    warns = [f"{minutes:g} min" for minutes in evidence.site.policy.warn_min]
    warned = f" (warns at {' and '.join(warns)})" if warns and clock.what != "idle" else ""
    left = age_text(clock.left_s)
    return finding(
        evidence, devices, [idle],
        id="policy-kill-soon", level="critical",
        confidence="medium" if any(each.polled for each in devices) else "high",
        title=f"{_site_name(evidence)} ends this job in {left}: {clock.what}",
        text=f"{clock.what} for {age_text(clock.idle_s)} of {age_text(clock.period_s)}; "
             f"{_site_name(evidence)} ends such jobs{warned}: {left} left",
        numbers={"idle_s": clock.idle_s, "period_s": clock.period_s, "left_s": clock.left_s},
        actions=(Action("shell", _end_it(evidence),
                        text="End the job, or start GPU work now."),),
        wasted_s=sum(known_s(evidence, each.active, *idle) for each in devices),
        harm_in_s=clock.left_s,
    )  # fmt: skip


def _not_idle(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> Outcome:
    """Clear where a device works now; else their activity is not known."""
    last = max((n for n in map(last_active, devices) if n is not None), default=-1)
    if last >= evidence.count - 2:
        return []
    since = Span(last + 1, evidence.count)
    return outcome([], {
        each.label: why_missing(each, *_ACTIVITY)
        for each in devices
        if not is_mostly_known(each.active, since)
    })  # fmt: skip


# -- gpu-idle-now --------------------------------------------------------------------------------


def idle_now(evidence: Evidence) -> Outcome:
    """gpu-idle-now: all GPUs inactive for 10 min, after having been active. Live.

    Critical when a site's rule leaves less than 30 min. Guards: I/O above 50 MB/s or CPU above
    half of the job's cores may be a checkpoint, an evaluation or preprocessing: the text says
    "CPU/IO phase" and it stays a warning. Unknown activity → not evaluable.

    Source: all-smi alerts after 15 idle minutes; 10 min are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if not is_allocated(evidence):
        return NO_JOB
    if all(first_active(each) is None for each in devices):
        return []
    idle = idle_since(evidence, devices)
    if idle is None:
        return _not_idle(evidence, devices)
    need_s = evidence.site.threshold("gpu-idle-now.seconds", 600)
    if seconds_of(evidence, [idle]) < need_s:
        return []
    left_s = min((each.left_s for each in _countdowns(evidence, devices)), default=None)
    phase = _host_phase(evidence, Span(max(idle.first, idle.last - evidence.bins(600)), idle.last))
    is_soon = left_s is not None and left_s < _SOON_S
    since, now = window_of(evidence, idle)
    text = f"idle for {age_text(now - since)}" + (f"; {phase}" if phase else "")
    if left_s is not None:
        text += f"; {_site_name(evidence)} ends idle jobs: {age_text(left_s)} left"
    return [
        finding(
            evidence, devices, [idle],
            id="gpu-idle-now", level="critical" if is_soon and not phase else "warning",
            confidence="medium" if any(each.polled for each in devices) else "high",
            title=f"{gpus_text(evidence, devices)} idle for {age_text(now - since)}"
                  + (f" ({phase})" if phase else ""),
            text=text,
            numbers={"idle_s": now - since, "left_s": left_s},
            actions=(Action("shell", _end_it(evidence),
                            text="Resume work, or end the job."),),
            wasted_s=sum(known_s(evidence, each.active, *idle) for each in devices),
            harm_in_s=left_s,
        )
    ]  # fmt: skip


def _host_phase(evidence: Evidence, span: Span) -> str:
    """`CPU/IO phase` and why, where the host works; "" where it does not, or is not known."""
    io = cores = cpus = 0.0
    for node in evidence.nodes:
        for name in ("read_bytes_per_s", "write_bytes_per_s"):
            io += (node.job[name].average(*span) or 0.0) if name in node.job else 0.0
        if "cpu_cores_used" in node.job and node.cpus:
            cores += node.job["cpu_cores_used"].average(*span) or 0.0
            cpus += node.cpus
    if io > evidence.site.threshold("gpu-idle-now.io_mb_per_s", 50) * 1e6:
        return f"CPU/IO phase: {io / 1e6:.0f} MB/s"
    if cpus and cores > evidence.site.threshold("gpu-idle-now.cpu_percent", 50) / 100 * cpus:
        return f"CPU/IO phase: {cores:.1f} of {cpus:.0f} cores work"
    return ""


# -- idle-tail -----------------------------------------------------------------------------------


def idle_tail(evidence: Evidence) -> Outcome:
    """idle-tail: the last active bin ends ≥ max(10 min, 10 % of elapsed) before the job's end.

    Guards: samples that end before that, or gaps in the tail → not evaluable; a job that never
    worked has no tail. The words differ for jobs that were ended by the limit or by someone.

    Source: asked for in jobstats#28; the thresholds are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if not is_allocated(evidence):
        return NO_JOB
    worked = [n for n in map(last_active, devices) if n is not None]
    if not worked:
        return []
    need_s = max(evidence.site.threshold("idle-tail.seconds", 600), evidence.elapsed_s / 10)
    end = evidence.grid_start + evidence.count * evidence.bin_s
    tail = Span(max(worked) + 1, evidence.count)
    if evidence.end - (evidence.grid_start + tail.first * evidence.bin_s) < need_s:
        return []
    if evidence.end - end > need_s / 10:
        return NotEvaluable(f"the samples end {age_text(evidence.end - end)} before the job")
    if idle_since(evidence, devices) is None:
        return _not_idle(evidence, devices)
    return [_idle_tail(evidence, devices, tail)]


def _idle_tail(evidence: Evidence, devices: Sequence[DeviceEvidence], tail: Span) -> Finding:
    job = evidence.job
    first = min(n for n in map(first_active, devices) if n is not None)
    busy = [busy_track(each).average(first, tail.first) for each in devices]
    known = [value for value in busy if value is not None]
    busy_text = f"busy {percent(sum(known) / len(known))}" if known else "busy"
    start, end = window_of(evidence, tail)
    worked_s, idle_s = start - evidence.start, end - start
    wasted_s = sum(known_s(evidence, each.active, *tail) for each in devices)
    state = job.state if job else ""
    until = {"TIMEOUT": "until the time limit", "CANCELLED": "until it was cancelled"}
    return finding(
        evidence, devices, [tail],
        id="idle-tail", level="warning",
        confidence="medium" if any(each.polled for each in devices) else "high",
        title=f"{gpus_text(evidence, devices)} idle for the last {age_text(idle_s)}",
        text=f"GPUs {busy_text} for {clock_text(worked_s)}, then idle for {clock_text(idle_s)} "
             f"{until.get(state, 'until the end')} ({wasted_s / 3600:.1f} GPU-h wasted)",
        numbers={"worked_s": worked_s, "idle_s": idle_s,
                 "busy_mean_percent": sum(known) / len(known) if known else None},
        actions=(Action("code", Line("exit"), text="Let the script end after its last command; "
                        "remove sleep and keep-alives."), _shorter(evidence, worked_s)),
        wasted_s=wasted_s,
    )  # fmt: skip


def _shorter(evidence: Evidence, worked_s: float) -> Action | None:
    """The time limit for the working part: 1.25 times it, in quarters (findings, 10.5)."""
    limit_s = evidence.job.time_limit_s if evidence.job else None
    needed_s = ceil(1.25 * worked_s / _QUARTER_S) * _QUARTER_S
    if limit_s is None or needed_s >= limit_s:
        return None
    return Action(
        "sbatch",
        *(Line("#SBATCH -t {}", word("time", clock_text(each))) for each in (needed_s, limit_s)),
    )


def _end_it(evidence: Evidence) -> Line:
    return Line("scancel {}", word("job", evidence.job.id) if evidence.job else None)


# -- jupyter-idle --------------------------------------------------------------------------------


def jupyter_idle(evidence: Evidence) -> Outcome:
    """jupyter-idle: an interactive job holds GPU memory and does nothing for 30 min.

    Interactive by the job's name (`interactive`, `sys/dashboard/…`, `ood`) or an ipykernel's
    command. A report takes the longest idle time of the run. Guards: a kernel is named as one,
    never as left over; unknown activity or memory → not evaluable.

    Source: jobstats knows these names, and flags interactive jobs above 8 h; 30 min are proposed.
    """
    devices = job_devices(evidence)
    if not devices:
        return without_devices(evidence)
    if not is_interactive(evidence, devices):
        return []
    need_s = evidence.site.threshold("jupyter-idle.seconds", 1800)
    found, unknown = [], {}
    for device in devices:
        spans = idle_spans([device], evidence.count)
        if evidence.live:
            spans = [each for each in spans if each.last == evidence.count]
        span = max(spans, key=lambda each: each.last - each.first, default=None)
        if not device.active.known():
            unknown[device.label] = why_missing(device, *_ACTIVITY)
        elif span is not None and known_s(evidence, device.active, *span) >= need_s:
            held = _holders(device, span)
            if held:
                found.append(_jupyter_idle(evidence, device, span, held))
    return outcome(found, unknown)


def _holders(device: DeviceEvidence, span: Span) -> list[tuple[ProcessEvidence, float]]:
    """The job's processes that held memory at the end of the span, most first."""
    tail = max(span.first, span.last - 6)
    held = [
        (each, each.mem_bytes.average(tail, span.last) or 0.0) for each in job_processes(device)
    ]
    return sorted((each for each in held if each[1] > 0), key=lambda each: -each[1])


def _jupyter_idle(
    evidence: Evidence,
    device: DeviceEvidence,
    span: Span,
    held: Sequence[tuple[ProcessEvidence, float]],
) -> Finding:
    process, size = held[0]
    notebook = is_notebook(process.facts)
    what = "notebook kernel" if notebook else clean(process.facts.name, 32) or "process"
    start, end = window_of(evidence, span)
    hold = f"{what} {process.facts.pid} holds {bytes_text(size)}"
    return finding(
        evidence, [device], [span],
        id="jupyter-idle", level="warning",
        confidence="medium" if device.polled else "high",
        title=f"{hold} on {gpus_text(evidence, [device])}, idle {age_text(end - start)}",
        text=f"{hold}, idle {age_text(end - start)}",
        numbers={"pid": process.facts.pid, "mem_bytes": size, "idle_s": end - start},
        actions=(Action("shell", _end_it(evidence),
                        text="Shut the kernel down (Kernel, Shut Down), or end the job; next time "
                             "ask for a shorter one."),),
        wasted_s=known_s(evidence, device.active, *span),
    )  # fmt: skip


RULES = (
    Rule("gpu-idle-now", idle_now, report=False),
    Rule("policy-kill-soon", policy_kill_soon, report=False),
    Rule("idle-tail", idle_tail, live=False),
    Rule("jupyter-idle", jupyter_idle),
)
