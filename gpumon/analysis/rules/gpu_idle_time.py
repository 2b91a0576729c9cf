"""GPUs of a running job that stopped working, and what the site does about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable, Outcome, to_do
from gpumon.analysis.ledger import AT_WORK, IDLE, State, ledger_of
from gpumon.analysis.rules.host_phase import host_phase
from gpumon.analysis.rules.needs import allocation, gpus
from gpumon.analysis.rules.phrasing import GPU_HELD, finding, gpus_text
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.unused import IdleTime, not_seen, polled_confidence
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    Span,
    is_interactive,
    is_notebook,
    is_server,
    job_devices,
    job_processes,
    seconds_of,
    window_of,
)
from gpumon.analysis.thresholds import Percent, Seconds, of_site
from gpumon.model.lines import Line, word
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text

#: a policy strikes within this time: critical
_SOON_S = 1800.0


class _Countdown(NamedTuple):
    """A site's rule that runs against the job."""

    idle_s: float
    period_s: float
    left_s: float
    what: str  # "no GPU use since the start"


def _countdowns(run: RunData) -> list[_Countdown]:
    """Each rule of the site that counts now; none where the job is exempt or ends before it."""
    policy, ledger = run.site.policy, ledger_of(run)
    idle = ledger.idle_now
    if idle is None or _is_exempt(run):
        return []
    never = all(row.never_worked for row in ledger.rows) and run.coverage.from_start
    found = []
    if policy.zero_start_h is not None and never:
        found.append((run.elapsed_s, policy.zero_start_h * 3600, "no GPU use since the start"))
    if policy.zero_run_h is not None:
        idle_s = (run.elapsed_s if never else 0.0) or run.end - window_of(run, idle)[0]
        found.append((idle_s, policy.zero_run_h * 3600, "idle"))
    ends = run.job.end if run.job else None
    clocks = [
        _Countdown(idle, period, max(0.0, period - idle), what) for idle, period, what in found
    ]
    return [each for each in clocks if ends is None or run.end + each.left_s < ends]


def _is_exempt(run: RunData) -> bool:
    policy, job = run.site.policy, run.job
    partitions = {node.header.job.partition for node in run.nodes if node.header.job}
    partitions |= {job.partition} if job else set()
    if partitions & set(policy.exempt_partitions):
        return True
    below_h, limit_s = policy.exempt_walltime_below_h, job.time_limit_s if job else None
    return below_h is not None and limit_s is not None and limit_s < below_h * 3600


def _ends(run: RunData, what: str) -> str:
    return f"{clean(run.site.name) or 'this site'} ends {what}"


def site_policy(run: RunData) -> Outcome | None:
    """A rule of the site for idle GPUs."""
    policy = run.site.policy
    known = policy.zero_start_h is not None or policy.zero_run_h is not None
    return None if known else NotEvaluable(Lack.SITE, "the site file has no rule for idle GPUs")


class PolicyKillSoon(NamedTuple):
    left_s: Seconds = _SOON_S
    period_percent: Percent = 20  # of the rule's period, where that is longer


@rule(
    "policy-kill-soon",
    title="the site's policy will soon end the idle job",
    why="The site ends jobs with idle GPUs; unsaved work is lost.",
    remedy="use the GPUs, or save and end it",
    when="live",
    needs=(site_policy, gpus, allocation),
    folds=("gpu-idle-now", "low-busy"),
    wastes=IDLE,
)
def policy_kill_soon(run: RunData, t: PolicyKillSoon) -> Checked:
    """Rules: no GPU use in the first A hours (needs samples from the job's start), B idle hours in
    a row. Guards: exempt partitions and wall times of the site's file; a time limit that ends the
    job first; unknown activity → not evaluable. On polling alone confidence is medium.

    Source: UVA 3 h and 5 h, Princeton 2 h with mails at 60 and 105 min; the margin is proposed.
    """
    devices = job_devices(run)
    idle = ledger_of(run).idle_now
    if idle is None:
        return _not_idle(run)
    share = t.period_percent / 100
    soon = [
        each for each in _countdowns(run) if each.left_s <= max(t.left_s, share * each.period_s)
    ]
    if not soon:
        return None
    clock = min(soon, key=lambda each: each.left_s)
    warns = [f"{minutes:g} min" for minutes in run.site.policy.warn_min]
    warned = f" (warns at {' and '.join(warns)})" if warns and clock.what != "idle" else ""
    left = age_text(clock.left_s)
    return finding(
        run,
        "critical",
        clock.what,
        head=f"{_ends(run, 'this job')} in {left}: ",
        rest=f" for {age_text(clock.idle_s)} of the allowed {age_text(clock.period_s)}{warned}",
        devices=devices,
        spans=[idle],
        confidence=polled_confidence(devices),
        numbers={"idle_s": clock.idle_s, "period_s": clock.period_s, "left_s": clock.left_s},
        actions=[
            Action("shell", _end_it(run), text="Start GPU work now; else save, then end the job:")
        ],
        harm_in_s=clock.left_s,
    )


def _not_idle(run: RunData) -> list[NotEvaluable]:
    """Clear where a device works now; else their activity is not known."""
    rows = ledger_of(run).rows
    if any({*row.states[-2:]} & {*AT_WORK, State.HUNG} for row in rows):
        return []
    return [not_seen(run, row.device) for row in rows if State.UNMEASURED in row.states[-2:]]


class IdleNow(NamedTuple):
    seconds: Seconds = 600


@rule(
    "gpu-idle-now",
    title="all GPUs idle for {seconds} after earlier work",
    why=GPU_HELD,
    remedy="save and end the job, or find out what it waits for",
    when="live",
    needs=(gpus, allocation),
    wastes=IDLE,
)
def idle_now(run: RunData, t: IdleNow) -> Checked:
    """Critical when a site's rule leaves less than 30 min. Guards: more I/O or CPU use than the
    thresholds may be a checkpoint, an evaluation or preprocessing: the text says so, it stays a
    warning, and nothing ends the job. People pause, and servers wait for requests: information,
    unless for long. Unknown activity → not evaluable.

    Source: all-smi alerts after 15 idle minutes; 10 min are proposed.
    """
    devices, ledger = job_devices(run), ledger_of(run)
    if all(row.never_worked for row in ledger.rows):
        return None
    idle = ledger.idle_now
    if idle is None:
        return _not_idle(run)
    if seconds_of(run, [idle]) < t.seconds:
        return None
    left_s = min((each.left_s for each in _countdowns(run)), default=None)
    lately = Span(max(idle.first, idle.last - run.bins(600)), idle.last)
    host = host_phase(run, lately)
    # a checkpoint, an evaluation, preprocessing
    phase = f"meanwhile {host.text}" if host.kind in ("staging", "cpu") else ""
    is_soon = left_s is not None and left_s < _SOON_S
    since, now = window_of(run, idle)
    text = f"idle for {age_text(now - since)}"
    left = f"; {_ends(run, 'idle jobs')}: {age_text(left_s)} left" if left_s is not None else ""
    name = gpus_text(run, devices)
    paused = is_interactive(run, devices) or any(map(is_server, devices))
    patience_s = of_site(run.site, "idle-time", IdleTime).server_s if paused else 0.0
    level = "warning" if now - since >= patience_s else "info"
    made = finding(
        run,
        "critical" if is_soon and not phase else level,
        text + (f"; {phase}" if phase else ""),
        head=f"{name} ",
        rest=left,
        devices=devices,
        spans=[idle],
        confidence=polled_confidence(devices),
        numbers={"idle_s": now - since, "left_s": left_s},
        actions=[_after_a_look(run, is_at_work=bool(phase))],
        harm_in_s=left_s,
    )
    return replace(made, title=f"{name} {text} ({phase})") if phase else made


def _after_a_look(run: RunData, *, is_at_work: bool) -> Action:
    """What ends the job is offered only where nothing is seen to go on."""
    if is_at_work:
        text = "Check the job's output. If this part needs no GPU, run it in a CPU job next time."
        return to_do(text)
    if is_interactive(run, job_devices(run)):
        return Action("shell", _end_it(run), text="Resume work, or save it and end the session.")
    return Action("shell", _end_it(run), text="Check the job's output; if it is stuck, end it.")


def _end_it(run: RunData) -> Line:
    """Of a job that still runs."""
    job = run.job if run.live else None
    return Line("scancel {}", word("job", job.id) if job else None)


class JupyterIdle(NamedTuple):
    seconds: Seconds = 1800


@rule(
    "jupyter-idle",
    title="an idle interactive job holds GPU memory for {seconds}",
    why=GPU_HELD,
    remedy="stop the session when leaving it",
    needs=(gpus,),
    folds=("gpu-idle-now", "low-busy"),
    wastes=IDLE,
)
def jupyter_idle(run: RunData, t: JupyterIdle) -> Answers:
    """Interactive by the job's name (`interactive`, `sys/dashboard/…`, `ood`) or an ipykernel's
    command. A report takes the longest idle time of the run. Guards: a kernel is named as one,
    never as left over; unknown activity or memory → not evaluable.

    Source: jobstats knows these names, and flags interactive jobs above 8 h; 30 min are proposed.
    """
    ledger = ledger_of(run)
    for row in ledger.rows if is_interactive(run, job_devices(run)) else ():
        spans = ledger.stretches(row, t.seconds, *IDLE)
        if run.live:
            spans = [each for each in spans if each.last == run.count]
        span = max(spans, key=lambda each: each.last - each.first, default=None)
        if span is not None:
            yield from _jupyter_idle(run, row.device, span)
        elif row.count(State.UNMEASURED) == len(row.states):
            yield not_seen(run, row.device)


def _jupyter_idle(run: RunData, device: DeviceData, span: Span) -> Iterator[Finding]:
    """Of the job's process that held most memory at the end of the span, if any did."""
    tail = max(span.first, span.last - 6)
    held = [(p.mem_bytes.average(tail, span.last) or 0.0, p.facts) for p in job_processes(device)]
    size, facts = max(held, key=lambda each: each[0], default=(0.0, None))
    if facts is None or size <= 0:
        return
    what = "notebook kernel" if is_notebook(facts) else clean(facts.name, 32) or "process"
    start, end = window_of(run, span)
    holds = "holds" if run.live else "held"
    text = "End the session when you stop using its GPU."
    if run.live:
        shut = "shut the kernel down, or " if is_notebook(facts) else ""
        text = f"Save your work, then {shut}end the session."
    phase = host_phase(run, span)
    meanwhile = f"; meanwhile {phase.text}" if phase.works else ""
    yield finding(
        run,
        "warning",
        f"{what} {facts.pid} {holds} {bytes_text(size)} on {gpus_text(run, [device])}, "
        f"idle for {age_text(end - start)}{meanwhile}",
        devices=[device],
        spans=[span],
        confidence=polled_confidence([device]),
        numbers={"pid": facts.pid, "mem_bytes": size, "idle_s": end - start},
        actions=[Action("shell", _end_it(run), text=text)],
    )
