"""Time in which a job without GPUs computed nothing: it waited, or its script did not end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.analysis.finding import Lack, NotEvaluable, to_do
from gpumon.analysis.once import once
from gpumon.analysis.programs import OF_A_COORDINATOR, coordinates
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.core_time import cores_in_all
from gpumon.analysis.rules.gpu_waits import MOVES_BYTES_PER_S
from gpumon.analysis.rules.needs import samples
from gpumon.analysis.rules.phrasing import CORES_HELD, finding
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import Span, is_interactive, seconds_of, sustained
from gpumon.analysis.thresholds import CpuIdle, of_site
from gpumon.model.units import age_text

#: s; windows of a stretch, no shorter than two samples
_WINDOW_S = 300.0
#: of the time processes waited for storage, in %; processes in uninterruptible sleep (proposed)
_PRESSURE_PERCENT, _BLOCKED = 20.0, 0.5
#: times the threshold, that a mean must reach to be work between two stretches (proposed)
_WORKS = 2.0
#: part of the run from which on other rules say it better, and that a stretch may miss at an edge
_ALL, _EDGE = 0.95, 0.02


@once
def idle_cores(run: RunData) -> Sequence[Span]:
    """Stretches of an ended CPU job in which no process computed, nor moved or waited for data.

    None of a job that is there for people or other jobs, nor of one that was suspended, nor where a
    node was not recorded.
    """
    request = requested(run)
    t = of_site(run.site, "cpu-idle", CpuIdle)
    cores = [node.job.get("cpu_cores_used", Track()) for node in run.nodes]
    if run.live or request.gpus != 0 or run.devices or len(cores) < request.nodes:
        return []
    suspended_s = run.job.suspended_s if run.job is not None else None
    if is_interactive(run, []) or coordinates(run) or (suspended_s or 0.0) >= _WINDOW_S:
        return []
    window_s = max(_WINDOW_S, 2 * (run.coverage.interval_s or 0.0))
    held = sustained(run, window_s, lambda means: max(means) < t.cores, cores)
    return [
        span
        for span in _joined(run, held.spans, cores, _WORKS * t.cores)
        if seconds_of(run, [span]) >= t.seconds
        and not any(_moves_data(node, span) for node in run.nodes)
    ]


def _joined(
    run: RunData, spans: Sequence[Span], cores: Sequence[Track], most: float
) -> Iterator[Span]:
    """Spans between which, or beside which, no node used so many cores count as one: a use that
    varies about the threshold is no work.
    """
    joined = Span(0, 0)
    for span in (*spans, Span(run.count, run.count)):
        if joined.last < span.first:
            means = [each.average(joined.last, span.first) for each in cores]
            if any(mean is None or mean >= most for mean in means):
                yield joined
                joined = span
        joined = Span(joined.first, span.last)
    yield joined


def _moves_data(node: NodeData, span: Span) -> bool:
    rates = [node.job.get(f"{way}_bytes_per_s", Track()) for way in ("read", "write")]
    rates += [
        track for each in node.net.values() for name, track in each.items() if "bytes" in name
    ]
    waits = ((node.job.get("io_pressure_percent", Track()), _PRESSURE_PERCENT),
             (node.blocked, _BLOCKED))  # fmt: skip
    signs = [*((rate, MOVES_BYTES_PER_S) for rate in rates), *waits]
    return any((track.average(*span) or 0.0) >= least for track, least in signs)


def waited_s(run: RunData) -> float:
    """How long a CPU job that also worked computed nothing; 0 of one that hardly worked."""
    idle_s = seconds_of(run, idle_cores(run))
    return idle_s if idle_s < _ALL * run.elapsed_s else 0.0


def idle_end_s(run: RunData) -> float:
    """How long a CPU job computed nothing before it ended; 0 where it did, or is not known."""
    spans = idle_cores(run)
    at_end = bool(spans) and _place(run, spans[-1]) == "at the end"
    return seconds_of(run, spans[-1:]) if at_end else 0.0


def _place(run: RunData, span: Span) -> str:
    edge = _EDGE * run.count
    if run.coverage.to_end and run.count - span.last <= edge:
        return "at the end"
    return "at the start" if run.coverage.from_start and span.first <= edge else "between work"


@rule(
    "cpu-idle-time",
    title="a CPU job that computed nothing for a long time",
    why=CORES_HELD,
    remedy="find out what the program waited for; end the script after its last command",
    when="report",
    needs=(samples,),
)
def cpu_idle_time(run: RunData) -> Checked:
    """At the start, between work, at the end; where it is nearly all of it, `cpu-never-used` or
    `cpu-low` says it. Information of one or two cores. Guards: sessions of people, programs that
    launch other jobs, jobs that were suspended, and stretches in which data moves or processes wait
    for storage are not idle; every node must be recorded. No line: the next run may not wait.
    Numbers proposed.
    """
    if requested(run).gpus is None:
        return NotEvaluable(Lack.SLURM, "it is unknown whether the job had GPUs")
    spans, idle_s = idle_cores(run), waited_s(run)
    if not idle_s:
        return None
    places = [_place(run, span) for span in spans]
    where = " and ".join(dict.fromkeys(places))
    longest = places[max(range(len(spans)), key=lambda n: spans[n].last - spans[n].first)]
    state = run.job.state if run.job else ""
    until = _UNTIL.get(state, "") if places[-1] == "at the end" else ""
    cores = cores_in_all(run)
    return finding(
        run,
        "info" if cores <= OF_A_COORDINATOR else "warning",
        f"the CPU was idle for {age_text(idle_s)} of {age_text(run.elapsed_s)}, {where}{until}",
        rest=f" ({idle_s / 3600 * cores:.0f} core-hours)" if cores else "",
        spans=spans,
        numbers={"idle_s": idle_s, "stretches": len(spans)},
        confidence="high" if run.coverage.covered_percent >= 100 * _ALL else "medium",
        actions=[to_do(_WHAT_TO_DO[longest])],
    )


_UNTIL = {"TIMEOUT": ", until the time limit", "CANCELLED": ", until it was cancelled"}
_WHAT_TO_DO = {
    "at the start": "Find out what the program waited for (a license, a download, another job), "
    "and start the job when it is available.",
    "between work": "Find out what the program waited for; see the job's output around these "
    "times.",
    "at the end": "Find out what the script waited for after its work, and let it end then.",
}
