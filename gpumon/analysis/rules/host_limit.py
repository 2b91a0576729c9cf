"""Host memory: near its limit, killed, growing, swapping."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isnan
from statistics import fmean
from typing import NamedTuple

from gpumon.analysis.accounting import out_of_memory, used
from gpumon.analysis.finding import Action, Finding, Lack, NotEvaluable, to_do
from gpumon.analysis.kinds import learns
from gpumon.analysis.rightsize import amounts
from gpumon.analysis.rightsize.amounts import MIB
from gpumon.analysis.rightsize.changes import action_of, memory_line
from gpumon.analysis.rightsize.leaking import HostLeak, host_leaks, outlasts
from gpumon.analysis.rightsize.requested import mem_limit_bytes, requested
from gpumon.analysis.rules.advice import COPY_HERE
from gpumon.analysis.rules.bottleneck import storage_waits
from gpumon.analysis.rules.phrasing import filling_text, finding, more_memory, percent
from gpumon.analysis.rules.rule import Checked, of_nodes, rule
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import WARM_UP_S, Span, growth_per_s, seconds_of, sustained
from gpumon.analysis.thresholds import Bytes, Percent
from gpumon.model.lines import Line
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text, rate_text
from gpumon.slurm.job import Job

_SLURMD_OOM = re.compile(r"Detected (\d+) oom[_-]kill event", re.IGNORECASE)
#: what programs write that get no host memory; shared memory counts as the job's, too
_NO_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory|\bMemoryError\b|"
    r"std::bad_alloc|Bus error|out of shared memory|OutOfMemoryError: Java heap|"
    r"Unable to allocate|DataLoader worker \(pid[^)]*\) is killed by signal: Killed"
)
_RATE_S = 300.0
#: exit code of a program that SIGKILL ended, as shells report it; and a peak that may be its reason
_SIGKILL, _NEAR_SHARE = 137, 0.9


class MemNearLimit(NamedTuple):
    warning_percent: Percent = 90  # of the cgroup's limit
    critical_percent: Percent = 97


@rule(
    "mem-near-limit",
    title="host memory at {warning_percent} ({critical_percent}) of its limit, page cache excluded",
    why="At the limit the kernel kills the job; everything not saved is lost.",
    remedy="save now; request more next time",
    when="live",
)
def mem_near_limit(run: RunData, t: MemNearLimit) -> Checked:
    """Guards: what is charged does not count, page cache fills it; a reading older than a minute
    says nothing. Source: slurmwatch's "OOM guard"; numbers proposed.
    """
    lacking = "memory or its limit is not known"
    return of_nodes(run, lambda node: _near_limit(run, node, t), lacking)


def _near_limit(run: RunData, node: NodeData, t: MemNearLimit) -> list[Finding] | None:
    limit = mem_limit_bytes(node)
    track = node.job.get("mem_used_bytes", Track())
    newest = track.known(max(0, run.count - run.bins(60)))[-1:]
    if limit is None or not newest:
        return None
    now, share = newest[0], 100 * newest[0] / limit
    if share < t.warning_percent:
        return []
    per_s = growth_per_s(run, track, _RATE_S)
    left_s = None if per_s is None else max(0.0, limit - now) / per_s
    line = more_memory(run)
    made = finding(
        run,
        "critical" if share >= t.critical_percent else "warning",
        of_bytes_text(now, limit) + filling_text(per_s, left_s),
        head=f"{clean(node.node)}: host memory ",
        rest=f" ({percent(share)}), page cache not counted",
        subject=node.node,
        numbers={"used_bytes": now, "limit_bytes": limit},
        actions=[
            to_do("Save a checkpoint now, if the program can."),
            action_of(line, "A larger request helps the next run.") if line else None,
        ],
        harm_in_s=left_s,
    )
    return [made]


@rule(
    "oom-killed",
    title="the kernel killed a process of the job",
    why="What the process had not saved is lost.",
    remedy="request more memory",
    folds=("mem-near-limit",),
)
def oom_killed(run: RunData) -> Checked:
    """By any of: its cgroup's counter; state OUT_OF_MEMORY or signal 125 of the job or a step;
    slurmd's line in the job's output; exit code 137 with a peak near the limit.

    Guards: a warning when the job COMPLETED (a worker died). Where the kernel's own peak, read
    after a kill, stayed far below the limit, another limit or the whole node ran out, and no more
    memory is advised. MaxRSS, which is 0 for steps that died early, proves nothing alone. Anybody
    can send SIGKILL: with a peak far below the limit exit 137 is no lack of memory, and with one
    near it a warning, as is a failed allocation in the log of a FAILED job with such a peak.
    """
    proofs = list(_proofs(run))
    codes = (run.job.exit_code, run.job.derived_exit_code) if run.job else ()
    is_proven = bool(proofs)
    failed = run.job is not None and run.job.state == "FAILED"
    says_so = failed and _NO_MEMORY.search(run.log_tail)
    was_killed = _SIGKILL in [code.code for code in codes if code]
    if not proofs and (was_killed or says_so) and _was_near_limit(run):
        if was_killed:
            proofs = ["killed by SIGKILL (exit code 137) near its limit"]
        else:
            proofs = ["its output names a failed allocation, and its peak was near its limit"]
    if not proofs:
        counted = any(each.oom_kills is not None for each in run.nodes)
        known = counted or (run.job is not None and run.job.has_ended)
        missing = "neither the kernel's count nor an ended job"
        return None if known else NotEvaluable(Lack.SLURM, missing)
    asked = requested(run).mem_bytes
    limit = f", limit {bytes_text(asked)}" if asked else ""
    completed = run.job is not None and run.job.state == "COMPLETED"
    peak = _peak_far_below(run)
    rest = "".join(f"; {each}" for each in proofs[1:])
    rest += "; the job still COMPLETED" if completed else ""
    if not is_proven and run.nodes and all(each.oom_kills == 0 for each in run.nodes):
        rest += "; until the last sample the kernel had killed no process"
    if peak is not None:
        rest += f"; its own peak was {bytes_text(peak)}, so another limit or the whole node ran out"
    line = more_memory(run) if peak is None else None
    advice = "Fewer workers or smaller batches need less, too." if line else "Use fewer processes."
    if requested(run).is_whole_memory:
        advice = "It had all memory of its node: use a node with more, or several nodes."
    return finding(
        run,
        "critical" if is_proven and not completed else "warning",
        proofs[0] + limit,
        head="out of memory: " if is_proven else "possibly out of memory: ",
        rest=rest,
        confidence="high" if is_proven else "medium",
        numbers={"requested_bytes": asked or None},
        actions=[action_of(line, advice)],
    )


def _peak_far_below(run: RunData) -> float | None:
    """The kernel's own peak where a kill was counted, if it is known and far below the limit."""
    killed = [each for each in run.nodes if each.oom_kills]
    peaks = [each.mem_charged_peak_bytes for each in killed]
    limits = [mem_limit_bytes(each) for each in killed]
    if not killed or any(
        peak is None or limit is None or peak >= _NEAR_SHARE * limit
        for peak, limit in zip(peaks, limits)
    ):
        return None
    return max(peak for peak in peaks if peak is not None)


def _was_near_limit(run: RunData) -> bool:
    """By a peak without page cache, which fills any limit."""
    asked = requested(run).mem_bytes
    peaks = [each.mem_peak_bytes for each in run.nodes]
    if run.job is not None and not (figures := used(run.job)).is_upper_bound:
        peaks.append(figures.mem_bytes)
    return asked is not None and any(peak >= _NEAR_SHARE * asked for peak in peaks if peak)


def _proofs(run: RunData) -> Iterator[str]:
    for node in run.nodes:
        if node.oom_kills:
            plural = "es" if node.oom_kills > 1 else ""
            yield f"{clean(node.node)}: {node.oom_kills} process{plural} killed"
    if run.job is not None:
        for where in out_of_memory(run.job):
            yield _slurm_proof(run.job, where)
    if line := _SLURMD_OOM.search(run.log_tail):
        yield f"slurmd detected {line.group(1)} in the job's output"


def _slurm_proof(job: Job, where: str) -> str:
    if where == "job":
        code = next((c for c in (job.exit_code, job.derived_exit_code) if c and c.signal), None)
        return f"job {clean(job.state)} ({code})" if code else f"job {clean(job.state)}"
    step = next(each for each in job.steps if each.id == where)
    return f"step {clean(job.id)}.{clean(where)} {clean(step.state)} ({step.exit_code})"


# -- growth and swap -------------------------------------------------------------------------------


@rule(
    "host-leak",
    title="host memory grows steadily, page cache excluded",
    why="When it reaches the limit, the kernel kills the job.",
    remedy="find the list or cache that grows",
)
def host_leak(run: RunData) -> Checked:
    """The leak rule (`analysis.leak`) on anonymous memory alone, per node, against the limit; and
    whether the request, or a larger one, lasts for the time limit at that pace. Information where
    the request lasts for longer than any run of the job.

    Guards: never on all memory, where page cache filling up looks like a leak; 10 min of warm-up
    and 40 min of data are the rule's own.
    """
    asked = requested(run).mem_bytes
    known = [
        each.job.get("mem_anon_bytes", Track()).known() and (asked or mem_limit_bytes(each))
        for each in run.nodes
    ]
    if not any(known):
        return NotEvaluable(Lack.READINGS, "anonymous memory or its limit is not known")
    return [_leaking(run, each) for each in host_leaks(run)]


def _leaking(run: RunData, found: HostLeak) -> Finding:
    grows = found.leak
    pace = f"{bytes_text(3600 * grows.per_s)}/h"
    lasts, more = _lasts(run, found)
    text = "Find lists or caches that grow."
    if learns(run):
        text = "Find lists or caches that grow, and what each DataLoader worker copies."
    mem = requested(run).mem_bytes
    harmless = mem is not None and outlasts(run, found.lasts_s(mem))
    full_in_s = found.lasts_s(mem) - run.elapsed_s if mem else grows.full_in_s
    when = f"over {age_text(run.elapsed_s)}"
    if run.live:
        when = f"and is full in about {age_text(max(0.0, full_in_s))}"
    return finding(
        run,
        "info" if harmless else "warning",
        f"anonymous memory {'grows' if run.live else 'grew'} by {pace} {when}",
        rest="" if run.live else lasts,
        node=found.node,
        numbers={"per_s": grows.per_s, "full_in_s": grows.full_in_s, "z": grows.z},
        actions=(more, Action("code", Line("import tracemalloc; tracemalloc.start()"), text=text)),
        harm_in_s=full_in_s if run.live else None,
    )


def _lasts(run: RunData, found: HostLeak) -> tuple[str, Action | None]:
    """How long the request lasts at that pace, and what to do where that is too short."""
    request = requested(run)
    mem, limit_s = request.mem_bytes, request.time_limit_s
    if mem is None:
        return "", None
    note = f"; at that pace, {bytes_text(mem)} per node last {age_text(found.lasts_s(mem))}"
    if limit_s is None:
        return note, None
    note += f"; the time limit is {age_text(limit_s)}"
    if found.lasts_s(mem) > limit_s:
        return note, None
    if run.job is not None and run.job.state == "COMPLETED":
        text = "If it keeps results on purpose, request more memory only for a longer run."
        return note, to_do(text)
    more = amounts.more_memory(run)
    line = None if more is None else memory_line(request, more)
    if line is None or more is None:
        text = "Save checkpoints and restart: no memory request lasts for the time limit."
        return note, to_do(text)
    wanted = amounts.round_memory(more)
    lasts = f"At that pace, {bytes_text(wanted)} per node would last "
    lasts += f"{age_text(found.lasts_s(wanted))}."
    return note, action_of(line, lasts)


class SwapIo(NamedTuple):
    io_pressure_percent: Percent = 40
    growth_bytes: Bytes = 64 * MIB  # in 5 min


@rule(
    "swap-io",
    title="the job swaps, or its processes wait for I/O",
    why="Processes that wait for the disk do not compute.",
    remedy="request more memory, or copy the data to the node's own disk",
)
def swap_io(run: RunData, t: SwapIo) -> Checked:
    """After the warm-up: the job's swap rises over 5 min, or some of its processes wait for I/O.

    Guards: loading libraries at the start is normal; where GPUs wait for the same storage,
    `input-bound` says so. The kernel's `full` pressure is not recorded;
    `some`, which is, is larger, hence 40 in place of 20. Numbers proposed.
    """
    lacking = "neither swap nor I/O pressure is known"
    return of_nodes(run, lambda node: _swapping(run, node, t), lacking)


def _swap_growth(run: RunData, swap: Track, first: int) -> dict[Span, float]:
    """By how much swap grew in each five minutes of which that is known."""
    width = run.bins(_RATE_S)
    values = swap.mean
    return {
        Span(n, n + width): values[n + width] - values[n]
        for n in range(first, len(values) - width)
        if not isnan(values[n]) and not isnan(values[n + width])
    }


def _is_within(span: Span, other: Span) -> bool:
    """For the most part."""
    shared = min(span.last, other.last) - max(span.first, other.first)
    return shared >= 0.5 * (span.last - span.first)


def _swapping(run: RunData, node: NodeData, t: SwapIo) -> list[Finding] | None:
    warm, most = run.bins(WARM_UP_S), t.io_pressure_percent
    swap = node.job.get("swap_used_bytes", Track())
    pressure = node.job.get("io_pressure_percent", Track())
    grown = _swap_growth(run, swap, warm)
    held = sustained(run, _RATE_S, lambda means: means[0] >= most, (pressure,), warm)
    if not grown and not held.known:
        return None
    words = []
    swapped = [span for span, amount in grown.items() if amount >= t.growth_bytes]
    if swapped:
        rate = rate_text(max(grown.values()) / _RATE_S)
        words.append(f"the job's swap grew to {bytes_text(swap.peak() or 0)} (+{rate})")
    told = storage_waits(run, node) if held.spans else []
    spans = [span for span in held.spans if not any(_is_within(span, each) for each in told)]
    if spans:
        waited = [value for span in spans for value in pressure.known(*span)]
        share, length = percent(fmean(waited)), age_text(seconds_of(run, spans))
        words.append(f"processes waited for I/O {share} of {length}")
    if not words:
        return []
    line = more_memory(run) if swapped else None
    made = finding(
        run,
        "warning",
        ", ".join(words),
        rest=", after the first minutes",
        node=node,
        spans=[*swapped, *spans],
        confidence="medium",
        actions=(
            action_of(line) if line else None,
            Action(
                "shell", COPY_HERE, text="Copy the data to the node's own disk, and read it there."
            ),
        ),
    )
    return [made]
