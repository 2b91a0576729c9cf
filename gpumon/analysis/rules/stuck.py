"""Ranks that make no more steps, each of them at one place: by the probe's readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.once import once
from gpumon.analysis.rules.phrasing import alike
from gpumon.analysis.rules.programs import program
from gpumon.analysis.rules.stands import mostly_in, seen, where_text
from gpumon.analysis.rundata import DeviceData, ProgramData, RunData
from gpumon.analysis.signals import Span, io_tracks, is_interactive, job_devices
from gpumon.analysis.steps import probed, probed_on
from gpumon.analysis.thresholds import Seconds, of_site
from gpumon.model.units import plural

#: times as long as a step took (proposed)
_STEPS = 20.0
#: s: a process of which nothing came for so long has ended; and from that to the run's end
_GONE_S, AT_END_S = 60.0, 300.0
#: % of a core from which on a rank computes on the host; B/s of a job that reads or writes
HOST_PERCENT, IO_BYTES_PER_S = 50.0, 0.1 * (1 << 20)
_DRAM_PERCENT, _TENSOR_PERCENT = 5.0, 1.0
_WORKS, _IDLE = 0.5, 0.1  # share of the time in which a GPU works, or rests
_RESTS_PERCENT = 5.0  # of a core


class SuspectedHang(NamedTuple):
    seconds: Seconds = 300


class Stuck(NamedTuple):
    """The ranks of one program, which all stand where they stood at their last step."""

    programs: list[ProgramData]
    devices: list[DeviceData]
    span: Span
    seconds: float  # since the last step of any of them
    works: bool  # one that the others wait for computes, or data move: it may go on

    def says(self) -> str:
        """`rank 3 stands in train.py:131; ranks 0, 1 and 2 in train.py:120 → all_reduce`."""
        return says(self.programs, self.span)


def says(programs: Sequence[ProgramData], span: Span) -> str:
    """Where ranks stand, and what the loader's workers do of one that waits for data."""
    text = where_text(programs)
    for each in programs:
        if each.place.waits_for == "data" and each.workers:
            where = mostly_in(seen([each], [span], workers=True))
            if where:
                return f"{text}; its {plural(each.workers, 'worker')} in {where}"
    return text


@once
def stuck(run: RunData) -> Stuck | None:
    """Of several ranks none has made a step for 5 min and for 20 times as long as a step took, and
    each was seen at one place ever since. Live until now; of an ended run until its end.

    Guards: all ranks are there, and no GPU computes (by GPM, or one alone beside idle ones). Where
    a rank that the others wait for uses the CPU, or the job reads or writes, it may be an
    evaluation or a checkpoint. A process alone must not use the CPU at all, and stand at a line of
    the user's own; notebooks rest.
    """
    programs = [each for node in run.nodes for each in probed(node) if each.stepped is not None]
    for ranks in alike(programs, program):
        found = _stuck(run, ranks)
        if found is not None:
            return found
    return None


def _stuck(run: RunData, ranks: Sequence[ProgramData]) -> Stuck | None:
    end = max(each.last for each in ranks)
    if run.end - end > (_GONE_S if run.live else AT_END_S):
        return None
    if any(end - each.last > _GONE_S for each in ranks):
        return None
    since = max(max(each.stepped or 0.0, each.since) for each in ranks)
    stepped = max(each.stepped or 0.0 for each in ranks)
    usual_s = max((each.track("step_us").average() or 0.0) for each in ranks) / 1e6
    least_s = of_site(run.site, "suspected-hang", SuspectedHang).seconds
    if not usual_s or end - since < least_s or end - stepped < _STEPS * usual_s:
        return None  # or how long a step takes is not known: one may take hours
    span = Span(run.bin_at(since), run.count if run.live else run.bin_at(end) + 1)
    pids = {each.facts.pid for each in ranks}
    devices = [
        each for each in job_devices(run) if pids & {of.facts.pid for of in probed_on(run, each)}
    ]
    recent = Span(max(span.first, span.last - run.bins(least_s)), span.last)
    if any(computes(each, recent) for each in devices) or _one_works(run, ranks, devices, recent):
        return None
    works = _works(run, ranks, recent)
    if len(ranks) < 2 and (works or not _rests(run, ranks[0], devices, recent)):
        return None
    return Stuck(list(ranks), devices, span, end - stepped, works)


def _rests(run: RunData, program: ProgramData, devices: Sequence[DeviceData], span: Span) -> bool:
    """A process alone is known to do nothing, where its user did not choose that."""
    if not program.place.line or is_interactive(run, devices):
        return False
    used = [
        cpu.average(*span)
        for node in run.nodes
        for pid, (facts, cpu) in node.processes.items()
        if program.facts.pid in (pid, facts.ppid) and program in node.programs
    ]
    return bool(used) and all(each is not None and each < _RESTS_PERCENT for each in used)


def _one_works(
    run: RunData, ranks: Sequence[ProgramData], devices: Sequence[DeviceData], recent: Span
) -> bool:
    """The GPU of a rank that others wait for works while theirs rest: an evaluation on one."""
    active: dict[bool, list[float]] = {True: [], False: []}  # by whether its rank waits for others
    for device in devices:
        share = device.active.average(*recent)
        for each in probed_on(run, device):
            if each in ranks and share is not None:
                active[each.place.waits_for == "ranks"].append(share)
    waiting, awaited = active[True], active[False]
    return bool(waiting and awaited) and max(awaited) >= _WORKS > _IDLE > min(waiting)


def computes(device: DeviceData, recent: Span) -> bool:
    """By the GPU's own counters of what its kernels do, where it has them."""
    dram = device.track("dram_active_percent").average(*recent) or 0.0
    tensor = device.track("tensor_active_percent").average(*recent) or 0.0
    return dram > _DRAM_PERCENT or tensor > _TENSOR_PERCENT


def _works(run: RunData, ranks: Sequence[ProgramData], span: Span) -> bool:
    """The CPU use of ranks that wait for others, or all at one place, is no work: they may spin."""
    places = {each.place for each in ranks}
    awaited = [each for each in ranks if each.place.waits_for != "ranks" and len(places) > 1]
    pids = {each.facts.pid for each in awaited}
    for node in run.nodes:
        for pid, (facts, cpu) in node.processes.items():
            if {pid, facts.ppid} & pids and (cpu.average(*span) or 0.0) >= HOST_PERCENT:
                return True
        if any((each.average(*span) or 0.0) > IO_BYTES_PER_S for each in io_tracks(run, node.node)):
            return True
    return False
