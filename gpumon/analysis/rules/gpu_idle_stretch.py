"""Time in which the GPUs of a run that worked were idle together, or one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.finding import Action, Change, Finding, Lack, NotEvaluable, ask_for
from gpumon.analysis.idle import Turns, idle_together, turns, worked_s
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.rightsize.amounts import completed_s, less_time
from gpumon.analysis.rightsize.cores import ONE_THREAD
from gpumon.analysis.rules.host_phase import Phase, host_phase, total_cores
from gpumon.analysis.rules.needs import allocation, gpus
from gpumon.analysis.rules.phrasing import GPU_HELD, finding, gpus_text, unread
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.stands import most_text, probed_of
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import (
    ACTIVITY,
    MOST,
    Span,
    io_tracks,
    is_interactive,
    is_mostly_known,
    is_server,
    job_devices,
    job_processes,
    last_active,
    observed,
    seconds_of,
    window_of,
)
from gpumon.analysis.thresholds import Gpus, Percent, Phases, Seconds, of_site
from gpumon.model.lines import EMPTY, Line
from gpumon.model.units import age_text, plural

#: stretches between work, from which on they and the work alternate (proposed)
_ALTERNATES = 6
#: of a core: a shell that sleeps takes less (proposed)
_RESTING_CORES = 0.1
#: B/s (proposed)
_RESTING_IO = 1e6
#: s before the end of the tail, in which a process that was there still ran
_AT_END_S = 60.0
_OWN_JOB = Line("sbatch --dependency=afterok:JOBID gpu-part.sh")


class IdleTime(NamedTuple):
    seconds: Seconds = 600  # in all
    stretch_s: Seconds = 120  # each between work
    short_s: Seconds = 40  # or each of these, where they are so much of the run:
    short_percent: Percent = 25
    percent: Percent = 5  # of the run; information below what `phases` says
    server_s: Seconds = 1800  # a server may wait so long for a request


@rule(
    "idle-time",
    title="all GPUs idle together before their first work, or between: {seconds} and {percent} "
    "of the run",
    why=GPU_HELD,
    remedy="move the host phase to a job of its own; start the GPU job after it",
    needs=(gpus, allocation),
    folds=("low-busy",),
)
def idle_time(run: RunData, t: IdleTime) -> Answers:
    """One finding for the start and one for all stretches between work, with what the host did
    meanwhile, which shows what to do. Of an ended run with next to no work, one for all of it.

    Guards: servers wait for requests: information, unless for long. Interactive jobs may pause
    between work. Polling alone misses work for minutes, by chance or in step with it: of such
    GPUs only long stretches count between work. Stretches of less than two minutes count where they
    are a quarter of the run, but for reinforcement learning, whose environments have their turn.
    Unknown activity of a device → not evaluable.

    Source: asked for in jobstats#28 for the end; all thresholds are proposed.
    """
    devices = job_devices(run)
    whole = observed(run)
    yield from (unread(d, *ACTIVITY) for d in devices if not is_mostly_known(d.active, whole))
    idle = idle_together(run, t.stretch_s)
    places = [("before", idle.start)]
    if not is_interactive(run, devices):
        least_s = t.seconds if any(each.polled for each in devices) else t.stretch_s
        middle = [each for each in idle.middle if seconds_of(run, [each]) >= least_s]
        places.append(("between", middle or _short(run, t)))
    if not run.live:
        places.append(("throughout", idle.throughout))
    for where, spans in places:
        if seconds_of(run, spans) - worked_s(run, spans) >= t.seconds:
            yield from _weighed(run, t, where, spans)


def _short(run: RunData, t: IdleTime) -> list[Span]:
    """Shorter stretches between work, where they are a large part of the run."""
    devices = job_devices(run)
    if any(each.polled for each in devices) or kind_of(run, devices) is Kind.REINFORCEMENT:
        return []
    found = idle_together(run, t.short_s).middle
    is_much = seconds_of(run, found) >= t.short_percent / 100 * run.elapsed_s
    return found if is_much else []


def idle_level(run: RunData, t: IdleTime, idle_s: float, longest_s: float, wasted_s: float) -> str:
    """By its share of the run, and by what it cost; "" where it is too little to be told."""
    phases = of_site(run.site, "phases", Phases)
    costs = wasted_s >= phases.gpu_hours * 3600
    if idle_s < t.percent / 100 * run.elapsed_s and not costs:
        return ""
    waits = longest_s < t.server_s and any(map(is_server, job_devices(run)))
    much = costs or idle_s >= phases.least_percent / 100 * run.elapsed_s
    return "warning" if much and not waits else "info"


def _weighed(run: RunData, t: IdleTime, where: str, spans: Sequence[Span]) -> Answers:
    devices = job_devices(run)
    idle_s = seconds_of(run, spans) - worked_s(run, spans)
    wasted_s = _wasted_s(run, spans)
    longest = max(spans, key=lambda span: span.last - span.first)
    level = idle_level(run, t, idle_s, seconds_of(run, [longest]), wasted_s)
    if not level:
        return
    phase = host_phase(run, longest)
    yield finding(
        run,
        level,
        f"{gpus_text(run, devices)} idle for {age_text(idle_s)} of {age_text(run.elapsed_s)}, "
        f"{_place(run, where, spans)}",
        rest=_rest(phase, wasted_s) + _stood(run, spans),
        devices=devices,
        spans=spans,
        confidence=_confidence(devices),
        numbers={"idle_s": idle_s, "stretches": len(spans)},
        actions=[_what_to_do(run, where, phase, alternates=len(spans) >= _ALTERNATES)],
        wasted_s=wasted_s,
    )


def _place(run: RunData, where: str, spans: Sequence[Span]) -> str:
    """Where in the run these stretches lie, and what little work is in them."""
    work_s = worked_s(run, spans)
    if where == "between":
        return f"in {len(spans)} stretches between work" if len(spans) > 1 else "between work"
    if where == "throughout":
        return f"working for only {age_text(work_s)}"
    if work_s:
        return f"at the start, but for {age_text(work_s)} of work"
    return f"before {'its' if len(job_devices(run)) == 1 else 'their'} first work"


def _wasted_s(run: RunData, spans: Sequence[Span]) -> float:
    """Of all devices together."""
    shares = (
        each.active.mean[span.first : span.last] for each in job_devices(run) for span in spans
    )
    return sum(each.count(0.0) for each in shares) * run.bin_s


def _rest(phase: Phase, wasted_s: float) -> str:
    """What the host did, and the cost."""
    meanwhile = f"; meanwhile {phase.text}" if phase.kind else ""
    return f" ({wasted_s / 3600:.1f} GPU-h){meanwhile}"


def _stood(run: RunData, spans: Sequence[Span]) -> str:
    """Where the probe saw the processes meanwhile."""
    where = most_text(probed_of(run, job_devices(run)), spans)
    return f"; {where}" if where else ""


def _what_to_do(run: RunData, where: str, phase: Phase, *, alternates: bool) -> Action:
    """By what the host did meanwhile; `alternates`: so often that no job can be split there."""
    if is_interactive(run, job_devices(run)):
        text = "Start a session with a GPU when you are ready to use it; prepare in one without."
        return Action("shell", EMPTY, text=text)
    if any(map(is_server, job_devices(run))) and not phase.works:
        return Action("shell", EMPTY, text="Run the server only while it receives requests.")
    texts = {
        "staging": "Copy or unpack the data in a CPU job, and start the GPU job after it.",
        "cpu": "Do this part in a CPU job, and start the GPU job after it.",
        "prepare": "Prepare or compile in a CPU job, or keep the result for the next run.",
    }
    if where == "between":
        texts |= {
            "staging": "Load the next data while the GPUs work, or keep it on the node's own disk.",
            "cpu": "Split the job: run the CPU part as a job of its own"
            + (", or request fewer GPUs." if len(job_devices(run)) > 1 else "."),
            "prepare": "Let the GPUs work meanwhile, or split the job at this point.",
        }
        if alternates:
            overlap = "Let the GPUs work meanwhile, or "
            texts["cpu"] = f"{overlap}give this part more cores."
            texts["prepare"] = f"{overlap}spread this part over the cores."
    if where == "throughout":
        text = "Do this part in a CPU job; request a GPU only for the part that uses it."
        texts = dict.fromkeys(texts, text)
    if phase.kind in texts:
        line = _OWN_JOB if where == "before" else EMPTY
        return Action("shell", line, text=texts[phase.kind])
    if where == "before":
        text = "Find out what the program waited for, and submit the job when that is ready."
    else:
        text = "Find out what the program waited for; see the job's output around these times."
    return Action("shell", EMPTY, text=text)


@rule(
    "gpus-in-turns",
    title="GPUs that work one after another, with the durations of `idle-time`",
    why=GPU_HELD,
    remedy="run the parts at the same time, or one after another on fewer GPUs",
    needs=(gpus, allocation),
    folds=("low-busy", "gpu-imbalance", "gpus-partly-idle"),
)
def in_turns(run: RunData) -> Checked:
    """Each idle while another works, and never all at a time, in the whole run or in a phase of it.

    Guards: a device that hardly worked is `gpus-partly-idle`; interactive jobs may take turns;
    requests to a server, and other short pieces of work, reach one GPU at a time by chance;
    unknown activity → not evaluable. No line: whether the parts fit in fewer GPUs is not known.

    Source: proposed.
    """
    devices, whole = job_devices(run), observed(run)
    unknown = [unread(d, *ACTIVITY) for d in devices if not is_mostly_known(d.active, whole)]
    t = of_site(run.site, "idle-time", IdleTime)
    taken = turns(run, of_site(run.site, "gpus", Gpus).working_share, t.stretch_s)
    if taken is None or is_interactive(run, devices) or any(map(is_server, devices)):
        return unknown
    return _turns(run, t, taken)


def _turns(run: RunData, t: IdleTime, taken: Turns) -> Finding | None:
    devices = taken.devices
    wasted_s = taken.idle_bins * run.bin_s
    each_s = wasted_s / len(devices)
    level = idle_level(run, t, each_s, each_s, wasted_s)
    if not level or each_s < t.seconds:
        return None
    parts_s = seconds_of(run, taken.parts)
    while_ = "" if parts_s >= MOST * run.elapsed_s else f" for {age_text(parts_s)}"
    text = (
        "Run the parts at the same time, or one after another on "
        f"{plural(taken.most, 'GPU')} if each part fits in the memory there."
    )
    return finding(
        run,
        level,
        f"{gpus_text(run, devices)} worked one after another{while_}: never more than "
        f"{taken.most} of {len(devices)} at a time",
        rest=f"; each was idle for {age_text(each_s)} while others worked",
        devices=devices,
        spans=taken.parts,
        confidence=_confidence(devices),
        numbers={"gpus": len(devices), "gpus_at_a_time": taken.most, "idle_s": each_s},
        actions=[Action("shell", EMPTY, text=text)],
        wasted_s=wasted_s,
        uses_more=True,
    )


def _confidence(devices: Sequence[DeviceData]) -> str:
    """In idle time: on polling alone medium."""
    return "medium" if any(each.polled for each in devices) else "high"


# -- at the end ------------------------------------------------------------------------------------


@rule(
    "idle-tail",
    title="no GPU work at the end, with the durations of `idle-time`",
    why=GPU_HELD,
    remedy="end the job after its GPU work; do the rest in a CPU job",
    when="report",
    needs=(gpus, allocation),
    folds=("low-busy", "jupyter-idle"),
)
def idle_tail(run: RunData) -> Checked:
    """Guards: samples that end before that, or gaps in the tail → not evaluable; a job that never
    worked has no tail. The words differ for jobs that were ended by the limit or by someone. A
    shorter limit only where the host did nothing either, and for no less than the longest of the
    array's tasks.

    Source: asked for in jobstats#28; the thresholds are proposed.
    """
    t = of_site(run.site, "idle-time", IdleTime)
    devices = job_devices(run)
    worked = [n for n in map(last_active, devices) if n is not None]
    if not worked:
        return None
    unseen_s = run.end - (run.grid_start + run.count * run.bin_s)
    since_s = run.end - (run.grid_start + (max(worked) + 1) * run.bin_s)
    if unseen_s > max(t.seconds, run.elapsed_s / 10) / 10 and since_s >= t.seconds:
        why = f"the samples end {age_text(unseen_s)} before the job"
        return NotEvaluable(Lack.READINGS, why)
    last = Span(max(worked) + 1, run.count)
    unknown = [each for each in devices if not is_mostly_known(each.active, last)]
    if unknown and since_s >= t.seconds:
        return [unread(each, *ACTIVITY) for each in unknown]
    (tail,) = idle_together(run, t.stretch_s).end or (None,)
    if tail is None or seconds_of(run, [tail]) < t.seconds:
        return None
    idle_s, wasted_s = seconds_of(run, [tail]), _wasted_s(run, [tail])
    level = idle_level(run, t, idle_s, idle_s, wasted_s)
    return _idle_tail(run, level, tail) if level else None


def _idle_tail(run: RunData, level: str, tail: Span) -> Finding:
    devices = job_devices(run)
    start, end = window_of(run, tail)
    idle_s = end - start
    state = run.job.state if run.job else ""
    until = {"TIMEOUT": ", until the time limit", "CANCELLED": ", until it was cancelled"}
    phase, wasted_s = host_phase(run, tail), _wasted_s(run, [tail])
    return finding(
        run,
        level,
        f"{gpus_text(run, devices)} idle for the last {age_text(idle_s)} of "
        f"{age_text(run.elapsed_s)}{until.get(state, '')}",
        rest=_rest(phase, wasted_s),
        devices=devices,
        spans=[tail],
        confidence=_confidence(devices),
        numbers={"worked_s": start - run.start, "idle_s": idle_s},
        actions=[_end(run, tail, phase), _shorter(run, tail)],
        wasted_s=wasted_s,
    )


def _end(run: RunData, tail: Span, phase: Phase) -> Action:
    devices = job_devices(run)
    if is_interactive(run, devices):
        return Action("shell", EMPTY, text="End the session when you stop using its GPU.")
    if any(map(is_server, devices)):
        return Action("shell", EMPTY, text="Stop the server after its last request.")
    if phase.works and not _may_spin(run, tail, phase):
        text = "Do the work after the last GPU phase in a CPU job that starts after this one."
        return Action("shell", Line("sbatch --dependency=afterok:JOBID cpu-part.sh"), text=text)
    if phase.works or _still_ran(run, tail):
        text = "The program still ran: find out what it waited for, and let it end after its work."
        return Action("shell", EMPTY, text=text)
    text = (
        "Find out what the script did after its program ended; if it only waited (sleep, a "
        "keep-alive), let it end."
    )
    return Action("shell", EMPTY, text=text)


def _may_spin(run: RunData, tail: Span, phase: Phase) -> bool:
    """One thread was busy until the time limit: perhaps with nothing but waiting."""
    if run.job is None or run.job.state != "TIMEOUT" or phase.kind != "prepare":
        return False
    return (total_cores(run, tail) or 0.0) <= ONE_THREAD[1]


def _still_ran(run: RunData, tail: Span) -> bool:
    """A process of the job was on a GPU until the end."""
    held = (each.last for device in job_devices(run) for each in job_processes(device))
    return max(held, default=0.0) >= window_of(run, tail)[1] - _AT_END_S


def _shorter(run: RunData, tail: Span) -> Action | None:
    """The time limit for the working part; none where the program still ran, as one that sends its
    results, where it is not known whether the host worked, or of a session, which its user ends.
    """
    if is_interactive(run, job_devices(run)):
        return None
    limit_s = run.job.time_limit_s if run.job else None
    until = _host_worked_until(run, tail)
    if limit_s is None or until is None or _still_ran(run, tail):
        return None
    own = run.job.id if run.job else ""
    others = [each for each in run.siblings if each.id != own]
    needed_s = less_time([window_of(run, Span(until, until))[0] - run.start, *completed_s(others)])
    if needed_s is None or needed_s >= limit_s:
        return None
    return ask_for(Change("--time", int(limit_s), needed_s))


def _host_worked_until(run: RunData, tail: Span) -> int | None:
    """The bin of the tail from which on no node's cores worked, nor its storage; None where that of
    the cores is not known.
    """
    until = tail.first
    for node in run.nodes:
        cores = node.job.get("cpu_cores_used")
        if cores is None or not is_mostly_known(cores, tail):
            return None
        moved = [each.mean for each in io_tracks(run, node.node)]
        worked = (
            n
            for n in range(tail.last - 1, until - 1, -1)
            if cores.mean[n] >= _RESTING_CORES or any(each[n] >= _RESTING_IO for each in moved)
        )
        until = max(until, next(worked, until - 1) + 1)
    return until
