"""Time in which the GPUs of a run that worked were idle together, or one after another."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gpumon.analysis.finding import Action, Change, Finding, Lack, NotEvaluable, ask_for, to_do
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.ledger import TOGETHER, State, ledger_of, runs_of
from gpumon.analysis.rightsize.amounts import completed_s, less_time
from gpumon.analysis.rightsize.cores import ONE_THREAD
from gpumon.analysis.rules.host_phase import Phase, host_phase, total_cores
from gpumon.analysis.rules.needs import allocation, gpus
from gpumon.analysis.rules.phrasing import GPU_HELD, finding, gpus_text
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rules.stands import most_text, probed_of
from gpumon.analysis.rules.unused import IdleTime, idle_level, not_seen, polled_confidence
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import (
    MOST,
    Span,
    io_tracks,
    is_interactive,
    is_mostly_known,
    is_server,
    job_devices,
    job_processes,
    seconds_of,
    window_of,
)
from gpumon.analysis.thresholds import of_site
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


@rule(
    "idle-time",
    title="all GPUs idle together before their first work, or between: {seconds} and {percent} "
    "of the run",
    why=GPU_HELD,
    remedy="move the host phase to a job of its own; start the GPU job after it",
    needs=(gpus, allocation),
    wastes=TOGETHER,
)
def idle_time(run: RunData, t: IdleTime) -> Answers:
    """One finding for the start and one for all stretches between work, with what the host did
    meanwhile, which shows what to do. Of an ended run with next to no work, or one that has just
    begun to, one for all of it.

    Guards: servers wait for requests: information, unless for long. Interactive jobs may pause
    between work. Polling alone misses work for minutes, by chance or in step with it: of such
    GPUs only long stretches count between work. Stretches of less than two minutes count where they
    are a quarter of the run, but for reinforcement learning, whose environments have their turn.
    Unknown activity of a device → not evaluable.

    Source: asked for in jobstats#28 for the end; all thresholds are proposed.
    """
    devices, ledger = job_devices(run), ledger_of(run)
    yield from (not_seen(run, row.device) for row in ledger.rows if not row.is_known)
    places: list[tuple[State, Sequence[Span]]] = []
    if run.coverage.from_start:
        places.append((State.BEFORE, ledger.spans_of(State.BEFORE)))
    if not is_interactive(run, devices):
        places.append((State.BETWEEN, _lasting(run, t, ledger.spans_of(State.BETWEEN))))
    worked = any(not row.never_worked for row in ledger.rows)
    is_over = not run.live or ledger.idle_now is None
    if run.coverage.from_start and is_over and worked:
        places.append((State.THROUGHOUT, ledger.spans_of(State.THROUGHOUT)))
    for where, spans in places:
        yield from _weighed(run, where, spans)


def _lasting(run: RunData, t: IdleTime, spans: Sequence[Span]) -> list[Span]:
    """Those that last; shorter ones, too, where they are a large part of the run."""
    devices = job_devices(run)
    polled = any(each.polled for each in devices)
    least_s = t.seconds if polled else t.stretch_s
    long = [each for each in spans if seconds_of(run, [each]) >= least_s]
    if long or polled or kind_of(run, devices) is Kind.REINFORCEMENT:
        return long
    short = [each for each in spans if seconds_of(run, [each]) >= t.short_s]
    return short if seconds_of(run, short) >= t.short_percent / 100 * run.elapsed_s else []


def _weighed(run: RunData, where: State, spans: Sequence[Span]) -> Answers:
    devices, ledger = job_devices(run), ledger_of(run)
    idle_s = sum(map(ledger.at_rest, spans))
    wasted_s = _wasted_s(run, spans)
    longest = max(spans, key=lambda span: span.last - span.first, default=Span(0, 0))
    level = idle_level(run, idle_s, ledger.seconds([longest]), wasted_s)
    if not level:
        return
    phase = host_phase(run, longest)
    stood = most_text(probed_of(run, devices), spans)  # where the probe saw the processes
    yield finding(
        run,
        level,
        f"{gpus_text(run, devices)} idle for {age_text(idle_s)} of {age_text(run.elapsed_s)}, "
        f"{_place(run, where, spans)}",
        rest=_rest(phase, wasted_s) + (f"; {stood}" if stood else ""),
        devices=devices,
        spans=spans,
        confidence=polled_confidence(devices),
        numbers={"idle_s": idle_s, "stretches": len(spans)},
        actions=[_what_to_do(run, where, phase, alternates=len(spans) >= _ALTERNATES)],
    )


def _place(run: RunData, where: State, spans: Sequence[Span]) -> str:
    """Where in the run these stretches lie, and what little work is in them."""
    ledger = ledger_of(run)
    work_s = ledger.seconds(spans) - sum(map(ledger.at_rest, spans))
    if where is State.BETWEEN:
        return f"in {len(spans)} stretches between work" if len(spans) > 1 else "between work"
    if where is State.THROUGHOUT:
        work_s = ledger.seconds([ledger.whole]) - sum(map(ledger.at_rest, spans))
        return f"working for only {age_text(work_s)}"
    if work_s:
        return f"at the start, but for {age_text(work_s)} of work"
    return f"before {'its' if len(job_devices(run)) == 1 else 'their'} first work"


def _wasted_s(run: RunData, spans: Sequence[Span]) -> float:
    """Of all devices together."""
    ledger = ledger_of(run)
    return sum(ledger.unused_s(row, range(*span)) for row in ledger.rows for span in spans)


def _rest(phase: Phase, wasted_s: float) -> str:
    """What the host did, and the cost."""
    meanwhile = f"; meanwhile {phase.text}" if phase.kind else ""
    return f" ({wasted_s / 3600:.1f} GPU-h){meanwhile}"


def _what_to_do(run: RunData, where: State, phase: Phase, *, alternates: bool) -> Action:
    """By what the host did meanwhile; `alternates`: so often that no job can be split there."""
    if is_interactive(run, job_devices(run)):
        text = "Start a session with a GPU when you are ready to use it; prepare in one without."
        return to_do(text)
    if any(map(is_server, job_devices(run))) and not phase.works:
        return to_do("Run the server only while it receives requests.")
    texts = {
        "staging": "Copy or unpack the data to shared storage in a CPU job before the GPU job.",
        "cpu": "Do this part in a CPU job, and start the GPU job after it.",
        "prepare": "Prepare or compile in a CPU job, or keep the result for the next run.",
    }
    if where is State.BETWEEN:
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
    if where is State.THROUGHOUT:
        text = "Do this part in a CPU job; request a GPU only for the part that uses it."
        texts = dict.fromkeys(texts, text)
    if phase.kind in texts:
        line = _OWN_JOB if where is State.BEFORE else EMPTY
        return Action("shell", line, text=texts[phase.kind])
    if where is State.BEFORE:
        text = "Find out what the program waited for, and submit the job when that is ready."
    else:
        text = "Find out what the program waited for; see the job's output around these times."
    return to_do(text)


@rule(
    "gpus-in-turns",
    title="GPUs that work one after another, with the durations of `idle-time`",
    why=GPU_HELD,
    remedy="run the parts at the same time, or one after another on fewer GPUs",
    needs=(gpus, allocation),
    folds=("gpu-imbalance",),
    wastes=(State.TURNS,),
)
def in_turns(run: RunData) -> Checked:
    """Each idle while another works, and never all at a time, in the whole run or in a phase of it.

    Guards: a device that hardly worked is `gpus-partly-idle`; interactive jobs may take turns;
    requests to a server, and other short pieces of work, reach one GPU at a time by chance;
    unknown activity → not evaluable. No line: whether the parts fit in fewer GPUs is not known.

    Source: proposed.
    """
    devices, ledger = job_devices(run), ledger_of(run)
    unknown = [not_seen(run, row.device) for row in ledger.rows if not row.is_known]
    taking = [row for row in ledger.rows if row.count(State.TURNS) and row.has_worked]
    if not taking or is_interactive(run, devices):
        return unknown
    spans = runs_of([any(row.states[n] is State.TURNS for row in taking) for n in range(run.count)])
    idle_s = [ledger.in_bins(row.bins(State.TURNS)) for row in taking]
    mean_s, them = fmean(idle_s), [row.device for row in taking]
    level = idle_level(run, mean_s, mean_s, sum(idle_s))
    if not level:
        return unknown
    most = ledger.turns_most
    together_s = seconds_of(run, spans)
    while_ = "" if together_s >= MOST * run.elapsed_s else f" for {age_text(together_s)}"
    text = (
        "Run the parts at the same time, or one after another on "
        f"{plural(most, 'GPU')} if each part fits in the memory there."
    )
    return finding(
        run,
        level,
        f"{gpus_text(run, them)} worked one after another{while_}: never more than "
        f"{most} of {len(them)} at a time",
        rest=f"; each was idle for {age_text(mean_s)} while others worked",
        devices=them,
        spans=spans,
        confidence=polled_confidence(them),
        numbers={"gpus": len(them), "gpus_at_a_time": most, "idle_s": mean_s},
        actions=[to_do(text)],
        uses_more=True,
    )


# -- at the end ------------------------------------------------------------------------------------


@rule(
    "idle-tail",
    title="no GPU work at the end, with the durations of `idle-time`",
    why=GPU_HELD,
    remedy="end the job after its GPU work; do the rest in a CPU job",
    when="report",
    needs=(gpus, allocation),
    folds=("jupyter-idle",),
    wastes=TOGETHER,
)
def idle_tail(run: RunData) -> Checked:
    """Guards: samples that end before that, or gaps in the tail → not evaluable; a job that never
    worked has no tail. The words differ for jobs that were ended by the limit or by someone. A
    shorter limit only where the host did nothing either, and for no less than the longest of the
    array's tasks.

    Source: asked for in jobstats#28; the thresholds are proposed.
    """
    t, ledger = of_site(run.site, "idle-time", IdleTime), ledger_of(run)
    if all(row.never_worked for row in ledger.rows):
        return None
    tail = max(ledger.spans_of(State.BEHIND), default=None)
    unseen_s = run.end - ledger.end
    since_s = run.end - (ledger.last_work() or run.end)
    if unseen_s > max(t.seconds, run.elapsed_s / 10) / 10 and since_s >= t.seconds:
        why = f"the samples end {age_text(unseen_s)} before the job"
        return NotEvaluable(Lack.READINGS, why)
    if tail is None:
        unknown = [not_seen(run, row.device) for row in ledger.rows
                   if run.count and row.states[-1] is State.UNMEASURED]  # fmt: skip
        return unknown if since_s >= t.seconds else None
    idle_s = ledger.seconds([tail])
    level = idle_level(run, idle_s, idle_s, _wasted_s(run, [tail]))
    return _idle_tail(run, level, tail) if level else None


def _idle_tail(run: RunData, level: str, tail: Span) -> Finding:
    devices = job_devices(run)
    start, end = window_of(run, tail)
    idle_s = end - start
    state = run.job.state if run.job else ""
    until = {"TIMEOUT": ", until the time limit", "CANCELLED": ", until it was cancelled"}
    phase = host_phase(run, tail)
    return finding(
        run,
        level,
        f"{gpus_text(run, devices)} idle for the last {age_text(idle_s)} of "
        f"{age_text(run.elapsed_s)}{until.get(state, '')}",
        rest=_rest(phase, _wasted_s(run, [tail])),
        devices=devices,
        spans=[tail],
        confidence=polled_confidence(devices),
        numbers={"worked_s": start - run.start, "idle_s": idle_s},
        actions=[_end(run, tail, phase), _shorter(run, tail)],
    )


def _end(run: RunData, tail: Span, phase: Phase) -> Action:
    devices = job_devices(run)
    if is_interactive(run, devices):
        return to_do("End the session when you stop using its GPU.")
    if any(map(is_server, devices)):
        return to_do("Stop the server after its last request.")
    if phase.works and not _may_spin(run, tail, phase):
        text = "Do the work after the last GPU phase in a CPU job that starts after this one."
        return Action("shell", Line("sbatch --dependency=afterok:JOBID cpu-part.sh"), text=text)
    if phase.works or _still_ran(run, tail):
        text = "The program still ran: find out what it waited for, and let it end after its work."
        return to_do(text)
    text = (
        "Find out what the script did after its program ended; if it only waited (sleep, a "
        "keep-alive), let it end."
    )
    return to_do(text)


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
    worked_s = window_of(run, Span(until, until))[0] - run.start
    needed_s = less_time([worked_s, *completed_s(others)], limit_s)
    return None if needed_s is None else ask_for(Change("--time", int(limit_s), needed_s))


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
