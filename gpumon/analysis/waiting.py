"""Cores that idle because the job's processes wait: bound to few of them, or blocked on I/O.

What a job uses then is no measure of what it needs, and no program that waits is serial.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gpumon.analysis.once import once
from gpumon.analysis.rundata import NodeData, RunData, Track
from gpumon.analysis.signals import Span, seconds_of, sustained
from gpumon.analysis.thresholds import CpuBinding, of_site

#: processes that run or wait for a core, in the mean, for each core in use; and one more
_RUNNABLE_PER_CORE = 1.5
_LEAST_USED = 0.85  # cores
#: the median of the cores in use is so near a whole number, and so many bins are so near the median
_OFF_WHOLE, _STEADY_SHARE, _OFF_MIDDLE = 0.1, 0.9, 0.15
#: part of the run that counts as its course, for what is said of all of it
_MOST_OF_RUN = 0.5
#: blocked: so long, by so much I/O pressure in %, or by so many processes
_BLOCKED_S, _IO_PRESSURE_PERCENT, _BLOCKED = 300.0, 20.0, 1.0

#: of one core: what makes a process one that works, and what all may use together; and the part
#: of it that one process does alone
_WORKS_PERCENT, _ONE_CORE_PERCENT, _MOST_OF_IT = 2.0, 110.0, 0.5


class Bound(NamedTuple):
    """A node on which threads wait for few cores while others that were allocated idle."""

    node: NodeData
    spans: list[Span]
    cores: float  # in use in the mean
    pressure_percent: float | None
    runnable: float | None  # processes


@once
def bound_nodes(run: RunData) -> list[Bound]:
    """Nodes on which the job's threads are confined to a part of its cores.

    Some wait for a core (pressure, or more processes runnable than cores in use), while half of
    the cores at least idle, and the cores in use stay at a whole number: bursts of more threads
    than cores wait as well, but go up and down. Source: sched_setaffinity(2), Linux's PSI; the
    numbers are proposed.
    """
    found = (_bound(run, node) for node in run.nodes)
    return [each for each in found if each is not None]


def _bound(run: RunData, node: NodeData) -> Bound | None:
    cores = node.job.get("cpu_cores_used", Track())
    pressure = node.job.get("cpu_pressure_percent", Track())
    if not node.cpus or node.cpus < 2:
        return None
    t = of_site(run.site, "cpu-binding", CpuBinding)
    most = t.used_share * node.cpus
    has_pressure = bool(pressure.known())

    def waits(means: Sequence[float]) -> bool:
        least = t.pressure_percent if has_pressure else _RUNNABLE_PER_CORE * means[0] + 1
        return _LEAST_USED <= means[0] <= most and means[1] >= least

    tracks = (cores, pressure if has_pressure else node.runnable)
    held = sustained(run, t.seconds, waits, tracks)
    spans = [span for span in held.spans if _is_steady(cores, span)]
    if not spans:
        return None
    longest = max(spans, key=lambda span: span.last - span.first)
    return Bound(
        node,
        spans,
        cores.average(*longest) or 0.0,
        pressure.average(*longest),
        node.runnable.average(*longest),
    )


def _is_steady(cores: Track, span: Span) -> bool:
    """At a whole number of cores nearly all the time: those that may be used are full."""
    values = cores.known(*span)
    middle = median(values)
    if abs(middle - round(middle)) > _OFF_WHOLE * middle:
        return False
    near = sum(abs(value - middle) <= _OFF_MIDDLE * middle for value in values)
    return near >= _STEADY_SHARE * len(values)


@once
def threads_of_one_core(run: RunData) -> int:
    """How many threads may be bound to one core, at least one for each core of the job, where it
    was not recorded whether threads wait (a kernel without PSI); else 0. Threads that sleep look
    the same.
    """
    for node in run.nodes:
        cores, threads = node.job.get("cpu_cores_used", Track()), node.threads.average() or 0.0
        is_known = bool(node.job.get("cpu_pressure_percent", Track()).known())
        values = cores.known()
        if is_known or not values or not node.cpus or threads < max(2, node.cpus):
            continue
        if 100 * median(values) <= _ONE_CORE_PERCENT and _is_steady(cores, Span(0, run.count)):
            return round(threads)
    return 0


@once
def is_blocked(run: RunData) -> bool:
    """Whether processes waited for I/O over most of the run: its idle cores prove nothing.

    By the cgroup's I/O pressure, or by processes in uninterruptible sleep; the host's iowait may be
    another job's.
    """
    return any(_is_blocked(run, node) for node in run.nodes)


def _is_blocked(run: RunData, node: NodeData) -> bool:
    pressure = node.job.get("io_pressure_percent", Track())
    signs = ((pressure, _IO_PRESSURE_PERCENT), (node.blocked, _BLOCKED))
    return any(
        seconds_of(run, sustained(run, _BLOCKED_S, lambda means: means[0] >= least, (track,)).spans)  # noqa: B023
        >= _MOST_OF_RUN * run.count * run.bin_s
        for track, least in signs
        if track.known()
    )


@once
def sharing_one_core(run: RunData) -> int:
    """How many processes share what one core can do; 0 where one does most of it, where all use
    more, or where none is known. Bound to one core, or waiting in turn: either way not serial.
    """
    means = [
        used
        for node in run.nodes
        for _, cpu in node.processes.values()
        if (used := cpu.average()) is not None and used >= _WORKS_PERCENT
    ]
    in_all = sum(means)
    is_shared = len(means) > 1 and max(means) < _MOST_OF_IT * in_all
    return len(means) if is_shared and in_all <= _ONE_CORE_PERCENT else 0
